// The one gate: a call that passes can be computed, whatever its arguments.
#pragma once

#include "attention/problem.h"

namespace heed {

/// Checks a forward call and resolves it. With outputs = null (explain) q, k, v and bias may have
/// no data. Throws heed::Error in the name of `function`.
[[nodiscard]] Problem check_forward(const char* function, const ConstTensorView& q,
                                    const ConstTensorView& k, const ConstTensorView& v,
                                    const ForwardOutputs* outputs, const AttentionOptions& options);

}  // namespace heed

// The one gate: a call that passes can be computed, whatever its arguments.
#pragma once

#include <array>

#include "attention/checker.h"
#include "attention/problem.h"
#include "attention/ragged.h"

namespace heed {

/// What a call reads of q, k, v and bias: for `sizes` their data may be null.
enum class Reads { sizes, elements };

/// Checks tensors and options and resolves them; outputs, and then place_entries, are left to the
/// caller.
[[nodiscard]] Problem check_inputs(const Checker& check, const ConstTensorView& q,
                                   const ConstTensorView& k, const ConstTensorView& v,
                                   const AttentionOptions& options, Reads reads);

/// The views of the options, by their names.
[[nodiscard]] std::array<NamedView, 11> option_views(const AttentionOptions& options);

/// Checks a forward call and resolves it. Throws heed::Error.
[[nodiscard]] Problem check_forward(const ConstTensorView& q, const ConstTensorView& k,
                                    const ConstTensorView& v, const ForwardOutputs& outputs,
                                    const AttentionOptions& options);

}  // namespace heed

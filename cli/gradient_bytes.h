// How much memory a backward pass takes beside its results, known before it takes any.
#pragma once

#include "heed/attention.h"

namespace heed::cli {

/// What attention_backward takes for itself, from shapes and types alone, an upper estimate: what
/// each thread works in, the parts of dQ that chunks of keys add up, and sums of dbias in float64
/// where elements of `bias` have several uses. Tensors [B, H, T, D] or of lower rank; of an absent
/// bias there are no gradients.
[[nodiscard]] double gradient_scratch_bytes(const ConstTensorView& q, const ConstTensorView& k,
                                            const ConstTensorView& v, const ConstTensorView& bias,
                                            int threads);

}  // namespace heed::cli

// What a backward pass gives each head, and which rows of it get next to nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "heed/attention.h"
#include "heed/io.h"
#include "inspection.h"

namespace heed::cli {

/// Tensors with four axes, of one type; k and v may have fewer heads.
struct BackwardCall {
  ConstTensorView q, k, v, d_output;
  AttentionOptions options;
};

/// dQ, dK, dV and the norms of the rows of dS, as attention_backward has them.
struct BackwardResults {
  Tensor dq, dk, dv, ds_norms;
};
[[nodiscard]] BackwardResults gradients_of(const BackwardCall& call, const Execution& execution);

/// A head's norms and its vanishing rows. Row i is counted if it sees two keys or more
/// (`visible`, 0 for rows that are left out) and neither dO_i nor what uniform weights would pass
/// on is 0; it vanishes if
///
///     |dS_i| < vanishing * |dO_i| sqrt(sum_j |v_j - mean v|^2 / keys) / sqrt(Dv n_i)
///
/// whose right side is what uniform weights over n_i of the keys would pass on, the root mean
/// square over all directions of dO_i. So neither the length of a row nor the size of a head or of
/// a loss makes rows vanish, only the weights do.
[[nodiscard]] HeadGradients health_of(const BackwardCall& call, const BackwardResults& results,
                                      std::int64_t layer, std::int64_t head,
                                      const std::vector<std::int64_t>& visible, double vanishing);

/// The median |dQ| of heads, of those where it is finite and not 0; 0 if there is none.
[[nodiscard]] double usual_gradient(const std::vector<HeadGradients>& heads);

/// The Frobenius norm of one head of a tensor [B, H, T, X].
[[nodiscard]] double norm_of_head(const ConstTensorView& view, std::int64_t layer,
                                  std::int64_t head);

}  // namespace heed::cli

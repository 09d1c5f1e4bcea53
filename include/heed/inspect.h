// Looking inside attention: what its rows look like, without a matrix of weights.
#pragma once

#include <cmath>
#include <cstdint>

#include "heed/tensor.h"

namespace heed {

/// Statistics of each query row, counted while attention is computed: no more memory than the
/// results. Fill in the views that are wanted; what they cost `heed bench --statistics` tells. They
/// change no bit of `output`.
///
/// s are the final scores of the keys that the row may see, in natural units (after bias and
/// score_mod, before the mask), p = exp(s - lse) their weights. With a sink the weights add up to
/// less than 1. All views are [B, H, Tq] in q's rank and type, the two counts int64.
///
/// A row that sees no key: max_score -inf, max_weight_key -1, everything else 0. A row with a NaN
/// among its scores: visible_keys, max_weight_key -1, everything else NaN. A finite score counts as
/// it is, finfo.min too: mean and variance then overflow to infinity or NaN, the others stay exact.
///
/// `jacobian_norm` comes from a difference: in float32 a norm below 1e-3 is only known to be so.
struct RowStatistics {
  TensorView max_score{};            ///< max s
  TensorView max_weight{};           ///< max p
  TensorView max_weight_key{};       ///< int64: the key that has it, the lowest one on ties
  TensorView entropy{};              ///< -sum p ln p, in nats
  TensorView visible_keys{};         ///< int64: keys that the row may see
  TensorView score_mean{};           ///< of the s that are not -inf
  TensorView score_variance{};       ///< of the same, the population's
  TensorView sum_squared_weights{};  ///< sum p^2: 1 over the number of keys that share the weight
  TensorView sum_cubed_weights{};    ///< sum p^3
  TensorView jacobian_norm{};  ///< |dp/ds| = |diag(p) - p p'|, Frobenius: how much can be learnt
};

/// The entropy as a share of ln(visible_keys), the most there can be: 1 is uniform, 0 is one key.
/// One visible key, or none, counts as 0.
[[nodiscard]] inline double entropy_share(double entropy, std::int64_t visible_keys) noexcept {
  return visible_keys < 2 ? 0.0 : entropy / std::log(static_cast<double>(visible_keys));
}

/// exp(entropy): the number of equal weights that would be as uncertain.
[[nodiscard]] inline double effective_keys(double entropy) noexcept { return std::exp(entropy); }

/// The mean of p (1 - p) over the visible keys: of the diagonal of the softmax's Jacobian. For
/// weights that add up to 1.
[[nodiscard]] inline double mean_diagonal(double sum_squared_weights,
                                          std::int64_t visible_keys) noexcept {
  return visible_keys < 1 ? 0.0 : (1.0 - sum_squared_weights) / static_cast<double>(visible_keys);
}

}  // namespace heed

// Looking inside attention: what its rows look like and where its weights lie, without a matrix of
// them.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "heed/attention.h"
#include "heed/export.h"
#include "heed/tensor.h"

namespace heed {

/// Statistics of each query row, counted while attention is computed: no more memory than the
/// results. Fill in the views that are wanted; what they cost `heed bench --statistics` tells. They
/// change no bit of `output`.
///
/// s are the final scores of the keys that the row may see, in natural units (after bias and
/// score_mod, before the mask), p = exp(s - lse) their weights. With a sink the weights add up to
/// less than 1. All views are [B, H, Tq] in q's rank and of lse's type, the two counts int64.
///
/// A row that sees no key, or only scores of -inf, has max_score -inf, max_weight_key -1 and, but
/// for visible_keys, 0 in everything else, whatever its sink. Another one that a score or sink of
/// NaN or +inf makes NaN has visible_keys, max_weight_key -1 and NaN in everything else. A finite
/// score counts as it is, up to the largest number of lse's type times ln 2, where it stays finite
/// in base 2: mean and variance may overflow, to infinity and not to NaN.
///
/// `jacobian_norm` comes from a difference: in float32 a norm below 1e-3 is only known to be so.
struct RowStatistics {
  TensorView max_score{};            ///< max s
  TensorView max_weight{};           ///< max p
  TensorView max_weight_key{};       ///< int64: the key of max_score, the lowest one on ties
  TensorView entropy{};              ///< -sum p ln p, in nats
  TensorView visible_keys{};         ///< int64: keys that the row may see
  TensorView score_mean{};           ///< of the s that are not -inf
  TensorView score_variance{};       ///< of the same, the population's
  TensorView sum_squared_weights{};  ///< sum p^2: 1 over the number of keys that share the weight
  TensorView sum_cubed_weights{};    ///< sum p^3
  TensorView jacobian_norm{};  ///< |dp/ds| = |diag(p) - p p'|, Frobenius: how much can be learnt
};

/// The entropy as a share of ln(visible_keys), the most there can be: 1 is uniform, 0 is one key.
/// One visible key, or none, counts as 0. For weights that add up to 1: with a sink it may pass 1.
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

/// What a call of attention_forward was given and gave: enough to compute any of its weights again.
struct Attended {
  ConstTensorView q;    ///< [B, H, Tq, D], or [B, Tq, D], [Tq, D]
  ConstTensorView k;    ///< [B, Hk, Tk, D]
  ConstTensorView lse;  ///< [B, H, Tq], of the same options; of attention_decode with its
                        ///< mask.query_start, length - Tq where it was absent
};

/// What is wanted of the weights p = exp(s - lse), each in one pass over q and k that holds no
/// matrix: O(Tq + Tk) memory beside the results. Fill in the views that are wanted; shapes are for
/// inputs of rank 4, others lack the same axes as q. Views of numbers have lse's type; sums are
/// taken in float64, in an order that only the shapes decide: the same for any number of threads.
///
/// A cell (r, c) of a map holds the pairs with floor(i * R / Tq) = r and floor(j * C / Tk) = c, for
/// R <= Tq and C <= Tk.
struct WeightViews {
  ConstTensorView rows{};    ///< [N] int64: query rows, any order, the same for all heads
  TensorView row_weights{};  ///< [B, H, N, Tk]: their weights, 0 where hidden
  TensorView row_scores{};  ///< [B, H, N, Tk]: their final scores, natural units; -inf where hidden

  TensorView top_keys{};     ///< [B, H, Tq, K] int64, K >= 1: the keys with the largest weights,
                             ///< largest first, the lower key on ties; -1 where none is above 0
  TensorView top_weights{};  ///< [B, H, Tq, K]: their weights, 0 where there are no more
  TensorView top_mass{};     ///< [B, H, Tq]: their sum; wants top_keys or top_weights, for K

  TensorView column_sums{};  ///< [B, H, Tk]: sum over rows, how much each key is attended to
  TensorView mean_map{};     ///< [B, H, R, C]: mean over all pairs of a cell, hidden ones as 0
  TensorView lift_map{};  ///< [B, H, R, C]: log2 of the mean over visible pairs of (keys that row
                          ///< i may see) * p: 0 is uniform; NaN where no pair is visible

  /// [B, H, N], N odd: sum of weights over pairs at distance d = j - position of i, where
  /// d = -(N-1)/2 .. (N-1)/2; the outermost two also hold what lies beyond. Positions count from
  /// mask.query_start.
  TensorView distance_mass{};

  /// [B, H, N + 2] int64: how many visible scores (natural units) fall into N bins of equal width
  /// over [score_low, score_high), each with its lower edge; first those below, last those at or
  /// above. Edges have the precision of lse, and a score within its rounding of one may fall on
  /// either side. Rows whose lse is NaN are left out.
  TensorView score_histogram{};
  double score_low = -4.0;
  double score_high = 4.0;
};

/// Computes what `views` asks for. A NaN among a row's scores makes its weights, and what they are
/// summed into, NaN, but for keys whose score is -inf: theirs are 0. None of them is a largest one.
/// Weights are those before dropout.
///
/// Throws heed::Error before anything is written if an argument does not fit.
HEED_API void inspect_weights(const Attended& attended, const WeightViews& views,
                              const AttentionOptions& options = {},
                              const Execution& execution = {});

/// How some numbers lie: of one head's rows, say.
struct Summary {
  std::int64_t count = 0;  ///< numbers that were taken; all below are NaN where it is 0
  double mean = 0;
  std::array<double, 5> quantiles{};  ///< lowest, 25 %, median, 75 %, highest; linear in between
};

/// A summary for each head of a view [B, H, Tq] (or [B, Tq], [Tq]) of numbers, in the order of
/// batch and head. Rows that see no key are left out where `visible_keys` (int64, same shape) is
/// given; a NaN makes its head's numbers NaN.
[[nodiscard]] HEED_API std::vector<Summary> summarize(const ConstTensorView& numbers,
                                                      const ConstTensorView& visible_keys = {});

/// The share of rows whose largest weight is above `threshold` (0 .. 1), for each head; rows are
/// left out as in `summarize`, 0 where none is left. Such rows hardly learn: the softmax's
/// derivative is near 0.
[[nodiscard]] HEED_API std::vector<double> saturation(const ConstTensorView& max_weight,
                                                      const ConstTensorView& visible_keys = {},
                                                      double threshold = 0.99);

}  // namespace heed

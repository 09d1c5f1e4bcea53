// What is known of a head beside its statistics: its scale, equal keys, odd masks.
#include "head_facts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "heed/heed.h"
#include "heed/io.h"

namespace heed::cli {
namespace {

/// A bias at least so low, far from all others of it, is meant as a mask: exp(-1000) is 0.
constexpr double kMaskingBias = -1000;
constexpr std::int64_t kRowsLookedAt = 32;

double scale_of(const Call& one) {
  const AttentionOptions& o = one.options;
  if (o.scale.one) return *o.scale.one;
  if (o.scale.each.present()) {
    return element({o.scale.each.data, o.scale.each.dtype, 4, {1, 1, 1, 1}, {}}, 0, 0, 0, 0);
  }
  return o.normalize_qk ? 1 : 1 / std::sqrt(static_cast<double>(one.head_size()));
}

/// The number of the only head, where there are such numbers.
std::optional<double> number_of_head(const ConstTensorView& numbers) {
  if (!numbers.present()) return {};
  return element({numbers.data, numbers.dtype, 4, {1, 1, 1, 1}, {}}, 0, 0, 0, 0);
}

/// The score of its sink; none where that takes nothing.
std::optional<double> sink_of(const Call& one) {
  const std::optional<double> sink = number_of_head(one.options.sinks);
  return sink == -INFINITY ? std::nullopt : sink;
}

std::int64_t keys_in_use(const Call& one) {
  return number_of(one.options.mask.key_lengths, 0, one.keys());
}

std::int64_t queries_in_use(const Call& one) {
  return number_of(one.options.mask.query_lengths, 0, one.queries());
}

/// Keys that are zeros only, as padding is, but for padding that is told.
std::vector<std::int64_t> zero_keys(const Call& one) {
  std::vector<std::int64_t> zeros;
  const std::int64_t keys = keys_in_use(one);
  for (std::int64_t j = 0; j < keys; ++j) {
    bool zero = true;
    for (std::int64_t x = 0; zero && x < one.head_size(); ++x) {
      zero = element(one.k, 0, 0, j, x) == 0;
    }
    if (zero) zeros.push_back(j);
  }
  return zeros;
}

/// Padding aside.
bool keys_are_equal(const Call& one) {
  const std::int64_t keys = keys_in_use(one);
  for (std::int64_t j = 1; j < keys; ++j) {
    for (std::int64_t x = 0; x < one.head_size(); ++x) {
      if (!(element(one.k, 0, 0, j, x) == element(one.k, 0, 0, 0, x))) return false;
    }
  }
  return keys > 1;
}

/// Padding aside.
bool queries_are_zero(const Call& one) {
  const std::int64_t queries = queries_in_use(one);
  for (std::int64_t i = 0; i < queries; ++i) {
    for (std::int64_t x = 0; x < one.head_size(); ++x) {
      if (!(element(one.q, 0, 0, i, x) == 0)) return false;
    }
  }
  return queries > 0;
}

/// Calls `use(number)` for each element of a view of any floating type, a line at a time.
template <typename Use>
void each_number(const ConstTensorView& view, const Use& use) {
  std::int64_t shape[kMaxRank] = {1, 1, 1, 1};
  std::int64_t stride[kMaxRank] = {};
  for (int axis = 0; axis < view.rank; ++axis) {
    const auto to = static_cast<std::size_t>(kMaxRank - view.rank + axis);
    shape[to] = view.shape[static_cast<std::size_t>(axis)];
    stride[to] = view.stride[static_cast<std::size_t>(axis)];
  }
  const std::size_t size = size_of(view.dtype);
  Tensor line = make_tensor(view.dtype, {shape[3]});
  for (std::int64_t n = 0; n < shape[0] * shape[1] * shape[2]; ++n) {
    const std::int64_t first = n / (shape[1] * shape[2]) * stride[0] +
                               n / shape[2] % shape[1] * stride[1] + n % shape[2] * stride[2];
    for (std::int64_t j = 0; j < shape[3]; ++j) {
      std::memcpy(line.data.data() + static_cast<std::size_t>(j) * size,
                  static_cast<const std::byte*>(view.data) +
                      (first + j * stride[3]) * static_cast<std::int64_t>(size),
                  size);
    }
    const Tensor wide = convert(line, DType::f64);
    for (std::int64_t j = 0; j < shape[3]; ++j) {
      double number = 0;
      std::memcpy(&number, wide.data.data() + static_cast<std::size_t>(j) * sizeof number,
                  sizeof number);
      use(number);
    }
  }
}

/// The largest number of the first rows, which infinity and NaN are beyond.
double largest_of(const ConstTensorView& view, std::int64_t rows) {
  double largest = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t x = 0; x < view.shape[3]; ++x) {
      const double number = std::abs(element(view, 0, 0, i, x));
      largest = number <= largest ? largest : std::isnan(number) ? INFINITY : number;
    }
  }
  return largest;
}

/// In base 2 the type of the scores holds it.
bool is_finite_score(double score, DType dtype) {
  const double most =
      dtype == DType::f64 ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
  return std::abs(score) * std::numbers::log2e <= most;
}

/// Whether no product of a query and a key can be infinite, before it is scaled; padding aside.
bool has_finite_products(const Call& one) {
  const double size = static_cast<double>(one.head_size());
  const double products =
      largest_of(one.q, queries_in_use(one)) * largest_of(one.k, keys_in_use(one)) * size;
  return is_finite_score(products, one.q.dtype);
}

/// Whether a slope makes a score infinite at some distance, or is no number.
bool is_steep(double slope, const Call& one) {
  const double start = std::abs(static_cast<double>(query_start(one, 0)));
  const double reach = start + static_cast<double>(one.queries() + one.keys());
  return !is_finite_score(slope * reach, one.q.dtype);
}

/// A bias of more than zeros and -infinity, which is a mask.
bool moves_scores(const ConstTensorView& bias) {
  if (!bias.present()) return false;
  bool moves = false;
  each_number(bias, [&](double number) { moves = moves || (number != 0 && number != -INFINITY); });
  return moves;
}

/// The finite number that stands for "hidden" in a bias, as finfo.min or -10000 does: far below all
/// the others, of which there is one at least.
std::optional<double> masking_bias(const ConstTensorView& bias) {
  if (!bias.present()) return {};
  double lowest = 0;
  each_number(bias, [&](double number) {
    if (std::isfinite(number)) lowest = std::min(lowest, number);
  });
  if (lowest > kMaskingBias) return {};
  bool others = false;
  bool between = false;
  each_number(bias, [&](double number) {
    others = others || number >= 0.1 * lowest;
    between = between || (number > 0.9 * lowest && number < 0.1 * lowest);
  });
  if (!others || between) return {};
  return lowest;
}

/// Whether some row that is no NaN may see a key of that bias. There is none from 0.9 of it to 0.1.
bool is_seen(const Call& one, double masking_bias, const HeadResults& results, Executor& executor) {
  const Call alone = mask_alone(one);
  std::int64_t counts[3] = {};  // below, within and above
  inspect_weights(
      {.q = alone.q, .k = alone.k, .lse = results.lse},
      {.score_histogram = view(counts, {1, 1, 3}), .score_low = masking_bias / 2, .score_high = 0},
      alone.options, {.executor = &executor});
  return counts[0] > 0;
}

/// Some query's position has a key before it.
bool has_past(const Call& one) {
  const std::int64_t start = query_start(one, 0);
  const std::int64_t queries = queries_in_use(one);
  return queries > 0 && one.keys() > 0 && (start > 0 || start + queries - 1 > 0);
}

/// By something that a user may have given the wrong way round.
bool is_masked(const AttentionOptions& o) {
  return o.mask.keep.present() || o.mask.drop.present() || o.bias.present();
}

/// What hides keys, for suggestions. A bias hides none: its scores are -infinity.
std::string look_at(const Call& one) {
  const auto& mask = one.options.mask;
  if (one.keys() == 0) return "k: it has no keys";
  if (mask.keep.present()) return "the mask: keep is true where a query may look";
  if (mask.drop.present()) return "the mask: drop is true where a query may not look";
  if (mask.window.left != kUnlimited || mask.window.right != kUnlimited) {
    return "--window and --query-start: a query sees the keys around its position";
  }
  return "--query-start, the position of the first query";
}

/// Whether the user's mask hides every key before a query's position, by the scores of some rows.
bool hides_the_past(const Call& one, const HeadResults& results, Executor& executor) {
  const AttentionOptions& o = one.options;
  if (!is_masked(o) || o.mask.window.left == 0) return false;
  const std::int64_t start = query_start(one, 0);
  std::vector<std::int64_t> rows;
  const std::int64_t queries = queries_in_use(one);
  const std::int64_t step = std::max<std::int64_t>(queries / kRowsLookedAt, 1);
  for (std::int64_t i = queries - 1; i >= 0; i -= step) rows.push_back(i);
  const auto count = static_cast<std::int64_t>(rows.size());
  Tensor scores = make_tensor(one.q.dtype, {1, 1, count, one.keys()});
  inspect_weights({.q = one.q, .k = one.k, .lse = results.lse},
                  {.rows = view(rows.data(), {count}), .row_scores = view_of(scores)}, one.options,
                  {.executor = &executor});
  const TensorView seen = view_of(scores);
  for (std::int64_t n = 0; n < count; ++n) {
    const std::int64_t row = rows[static_cast<std::size_t>(n)];
    const std::int64_t before = start > one.keys() - row
                                    ? one.keys()
                                    : std::clamp<std::int64_t>(start + row, 0, one.keys());
    for (std::int64_t j = 0; j < before; ++j) {
      if (element(seen, 0, 0, n, j) != -INFINITY) return false;
    }
  }
  return true;
}

}  // namespace

HeadFacts facts_of(const Call& one, const HeadInspection& head, const HeadResults& results,
                   Executor& executor) {
  HeadFacts facts{.scale = scale_of(one),
                  .normalized = one.options.normalize_qk,
                  .rows = one.queries(),
                  .keys = keys_in_use(one),
                  .head_size = one.head_size(),
                  .lone_rows = std::count(results.visible.begin(), results.visible.end(), 1)};
  double total = 0;
  for (const double mass : results.columns) total += mass;
  for (const std::int64_t key : zero_keys(one)) {
    ++facts.zero_keys;
    if (total > 0) facts.zero_key_share += results.columns[static_cast<std::size_t>(key)] / total;
  }
  facts.has_past = has_past(one);
  facts.equal_keys = keys_are_equal(one);
  facts.zero_queries = queries_are_zero(one);
  const AttentionOptions& o = one.options;
  facts.scale_alone = !o.softcap && !o.alibi.present() && !moves_scores(o.bias);
  facts.has_bias = o.bias.present();
  facts.capped = o.softcap.has_value();
  facts.masked = is_masked(o);
  facts.look_at = look_at(one);
  facts.padded_rows = one.queries() - (one.keys() > 0 && facts.keys == 0 ? 0 : queries_in_use(one));
  facts.sink = sink_of(one);
  facts.slope = number_of_head(o.alibi);
  facts.masking_bias = masking_bias(one.options.bias);
  // Beside a mask that hides the same keys it is not among the scores.
  if (facts.masking_bias && !is_seen(one, *facts.masking_bias, results, executor)) {
    facts.masking_bias.reset();
  }
  for (std::size_t i = 0; i < results.visible.size(); ++i) {
    if (results.visible[i] > 0) facts.even_share += 1 / static_cast<double>(results.visible[i]);
    if (results.visible[i] == 0 || results.max_score[i] != -INFINITY) continue;
    facts.weightless_rows += 1;
    facts.weightless_choices += results.visible[i] > 1 ? 1 : 0;
  }
  facts.even_share /= static_cast<double>(std::max<std::int64_t>(head.max_weight.count, 1));
  const std::int64_t weighed = head.max_weight.count - facts.weightless_rows;
  if (facts.sink && weighed > 0) facts.key_share = total / static_cast<double>(weighed);
  if (head.nan_rows > 0 || facts.weightless_rows > 0) {
    facts.finite_products = has_finite_products(one);
    facts.steep = facts.slope && is_steep(*facts.slope, one);
  }
  facts.sums_known = !std::isnan(total);
  const auto& mass = head.distance_mass;
  const std::size_t middle = mass.size() / 2;
  double all = 0;
  double past = 0;
  for (std::size_t d = 0; d < mass.size(); ++d) {
    all += static_cast<double>(mass[d]);
    if (d > middle) facts.future_share += static_cast<double>(mass[d]);
    if (d < middle) past += static_cast<double>(mass[d]);
  }
  facts.sums_known = facts.sums_known && !std::isnan(all);
  if (all > 0) facts.future_share /= all;
  if (all > 0 && middle > 0) facts.previous_share = static_cast<double>(mass[middle - 1]) / all;
  facts.sees_no_earlier =
      facts.has_past && all > 0 && past == 0 && hides_the_past(one, results, executor);
  return facts;
}

}  // namespace heed::cli

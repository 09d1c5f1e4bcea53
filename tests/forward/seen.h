// All statistics of a call's rows, and the comparison of two calls'.
#pragma once

#include <array>
#include <iterator>
#include <vector>

#include "forward/draws.h"
#include "forward/support.h"
#include "heed/inspect.h"

namespace heed_test {

/// Each statistic, in the order of the struct.
inline constexpr heed::TensorView heed::RowStatistics::*kStatistics[] = {
    &heed::RowStatistics::max_score,         &heed::RowStatistics::max_weight,
    &heed::RowStatistics::max_weight_key,    &heed::RowStatistics::entropy,
    &heed::RowStatistics::visible_keys,      &heed::RowStatistics::score_mean,
    &heed::RowStatistics::score_variance,    &heed::RowStatistics::sum_squared_weights,
    &heed::RowStatistics::sum_cubed_weights, &heed::RowStatistics::jacobian_norm};
static_assert(sizeof kStatistics / sizeof kStatistics[0] * sizeof(heed::TensorView) ==
                  sizeof(heed::RowStatistics),
              "a statistic is not listed");

template <typename T>
struct Seen {
  Tensor<T> max_score, max_weight, entropy, mean, variance, squares, cubes, norm;
  Tensor<std::int64_t> key, visible;
  Tensor<T> o;

  Seen() = default;

  /// Memory for the rows of a call, all of it 0xFF.
  explicit Seen(const Dims& d, Layout layout = Layout::bhtd) {
    const Shape rows{d.batch, d.heads, d.queries, 1};
    for (auto* t : {&max_score, &max_weight, &entropy, &mean, &variance, &squares, &cubes, &norm}) {
      *t = Tensor<T>(rows, layout);
    }
    key = visible = Tensor<std::int64_t>(rows, layout);
  }

  /// What the call in its type tells.
  explicit Seen(const Call<T>& s, const heed::Execution& execution = {.threads = 1},
                Layout layout = Layout::bhtd)
      : Seen(s.dims(), layout) {
    const heed::RowStatistics statistics = out(s.rank);
    o = run(s, {.lse = false, .output = layout, .statistics = &statistics}, execution).o;
  }

  /// The memory, for a call whose q has this rank.
  heed::RowStatistics out(int rank = 4) {
    const auto rows = [rank](auto& tensor) {
      auto view = tensor.out(rank);
      --view.rank;
      return view;
    };
    return {.max_score = rows(max_score),
            .max_weight = rows(max_weight),
            .max_weight_key = rows(key),
            .entropy = rows(entropy),
            .visible_keys = rows(visible),
            .score_mean = rows(mean),
            .score_variance = rows(variance),
            .sum_squared_weights = rows(squares),
            .sum_cubed_weights = rows(cubes),
            .jacobian_norm = rows(norm)};
  }
};

/// Those that are no counts.
template <typename T>
constexpr std::array<Tensor<T> Seen<T>::*, 8> statistic_numbers() {
  return {&Seen<T>::max_score, &Seen<T>::max_weight, &Seen<T>::entropy, &Seen<T>::mean,
          &Seen<T>::variance,  &Seen<T>::squares,    &Seen<T>::cubes,   &Seen<T>::norm};
}

/// The rows of one axis, in a new order.
template <typename T>
Seen<T> gathered(const Seen<T>& from, std::size_t axis, const std::vector<std::int64_t>& which) {
  Seen<T> to;
  for (const auto field : statistic_numbers<T>()) to.*field = gathered(from.*field, axis, which);
  to.key = gathered(from.key, axis, which);
  to.visible = gathered(from.visible, axis, which);
  return to;
}

/// Bit for bit, counts too; outputs are not looked at.
template <typename T>
testing::AssertionResult same_bits(const Seen<T>& a, const Seen<T>& b) {
  for (const auto field : statistic_numbers<T>()) {
    if (const auto same = same_bits(a.*field, b.*field); !same) return same;
  }
  const auto equal = [](const Tensor<std::int64_t>& x, const Tensor<std::int64_t>& y) {
    bool same = x.shape == y.shape;
    x.each(
        [&](auto n, auto h, auto i, auto) { same = same && x.at(n, h, i, 0) == y.at(n, h, i, 0); });
    return same;
  };
  if (!equal(a.key, b.key)) return testing::AssertionFailure() << "keys differ";
  if (!equal(a.visible, b.visible)) return testing::AssertionFailure() << "counts differ";
  return testing::AssertionSuccess();
}

}  // namespace heed_test

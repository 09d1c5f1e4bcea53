// All statistics of a call's rows, and the comparison of two calls'.
#pragma once

#include <array>
#include <vector>

#include "forward/draws.h"
#include "forward/support.h"
#include "heed/inspect.h"

namespace heed_test {

template <typename T>
struct Seen {
  Tensor<T> max_score, max_weight, entropy, mean, variance, squares, cubes, norm;
  Tensor<std::int64_t> key, visible;
  Tensor<T> o;

  Seen() = default;

  explicit Seen(const Call<T>& s, const heed::Execution& execution = {.threads = 1},
                Layout layout = Layout::bhtd) {
    const Dims d = s.dims();
    const Shape rows{d.batch, d.heads, d.queries, 1};
    for (auto* t : {&max_score, &max_weight, &entropy, &mean, &variance, &squares, &cubes, &norm}) {
      *t = Tensor<T>(rows, layout);
    }
    key = visible = Tensor<std::int64_t>(rows, layout);
    o = Tensor<T>({d.batch, d.heads, d.queries, d.value_size}, layout);
    const auto out = [&](auto& tensor) {
      auto view = tensor.out(s.rank);
      --view.rank;
      return view;
    };
    const heed::RowStatistics statistics{.max_score = out(max_score),
                                         .max_weight = out(max_weight),
                                         .max_weight_key = out(key),
                                         .entropy = out(entropy),
                                         .visible_keys = out(visible),
                                         .score_mean = out(mean),
                                         .score_variance = out(variance),
                                         .sum_squared_weights = out(squares),
                                         .sum_cubed_weights = out(cubes),
                                         .jacobian_norm = out(norm)};
    const Told<T> told(s);
    heed::attention_forward(s.q.view(s.rank), s.k.view(s.rank), s.v.view(s.rank),
                            {.output = o.out(s.rank), .statistics = &statistics}, told.options,
                            execution);
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

// Everything that inspect_weights can be asked for, of one call.
#pragma once

#include <array>
#include <type_traits>
#include <vector>

#include "forward/draws.h"
#include "heed/inspect.h"

namespace heed_test {

struct Extent {
  std::int64_t top = 5, rows = 3, columns = 4, distances = 9, bins = 12;
  double low = -3, high = 3;
};

template <typename T>
struct Looked {
  std::vector<std::int64_t> rows;
  Tensor<T> row_weights, row_scores, top_weights, top_mass, column_sums, mean_map, lift_map,
      distance_mass;
  Tensor<std::int64_t> top_keys, histogram;

  Looked(const Call<T>& s, const Tensor<T>& lse, const Extent& extent,
         const heed::Execution& execution = {.threads = 1}, Layout layout = Layout::bhtd) {
    const Dims d = s.dims();
    const auto tensor = [&](std::int64_t n, std::int64_t x) {
      return Tensor<T>({d.batch, d.heads, n, x}, layout);
    };
    rows = {d.queries - 1, 0, d.queries / 2};
    row_weights = row_scores = tensor(3, d.keys);
    top_weights = tensor(d.queries, extent.top);
    top_mass = tensor(d.queries, 1);
    column_sums = tensor(d.keys, 1);
    mean_map = tensor(std::min(extent.rows, d.queries), std::min(extent.columns, d.keys));
    lift_map = mean_map;
    distance_mass = tensor(extent.distances, 1);
    top_keys = Tensor<std::int64_t>({d.batch, d.heads, d.queries, extent.top}, layout);
    histogram = Tensor<std::int64_t>({d.batch, d.heads, extent.bins + 2, 1}, layout);
    const auto dropped = [&](auto view) {
      --view.rank;
      return view;
    };
    const Told<T> told(s);
    const auto look = [&](const auto& q, const auto& k) {
      heed::inspect_weights(
          {.q = q.view(s.rank), .k = k.view(s.rank), .lse = dropped(lse.view(s.rank))},
          {.rows = heed::view(rows.data(), {static_cast<std::int64_t>(rows.size())}),
           .row_weights = row_weights.out(s.rank),
           .row_scores = row_scores.out(s.rank),
           .top_keys = top_keys.out(s.rank),
           .top_weights = top_weights.out(s.rank),
           .top_mass = dropped(top_mass.out(s.rank)),
           .column_sums = dropped(column_sums.out(s.rank)),
           .mean_map = mean_map.out(s.rank),
           .lift_map = lift_map.out(s.rank),
           .distance_mass = dropped(distance_mass.out(s.rank)),
           .score_histogram = dropped(histogram.out(s.rank)),
           .score_low = extent.low,
           .score_high = extent.high},
          told.options, execution);
    };
    if constexpr (std::is_same_v<T, float>) {
      if (s.dtype != heed::DType::f32) {
        look(Halves(s.q, s.dtype), Halves(s.k, s.dtype));
        return;
      }
    }
    look(s.q, s.k);
  }

  /// All views but those of integers.
  static constexpr std::array<Tensor<T> Looked::*, 8> kNumbers{
      &Looked::row_weights, &Looked::row_scores, &Looked::top_weights, &Looked::top_mass,
      &Looked::column_sums, &Looked::mean_map,   &Looked::lift_map,    &Looked::distance_mass};

  /// Some batch entries (axis 0) or heads (axis 1) of all views.
  [[nodiscard]] Looked part(std::size_t axis, const std::vector<std::int64_t>& which) const {
    Looked some = *this;
    for (const auto field : kNumbers) some.*field = gathered(this->*field, axis, which);
    some.top_keys = gathered(top_keys, axis, which);
    some.histogram = gathered(histogram, axis, which);
    return some;
  }

  /// Every number of it, as bits: NaN equals NaN.
  [[nodiscard]] testing::AssertionResult same(const Looked& other) const {
    for (const auto field : kNumbers) {
      if (auto result = same_bits(this->*field, other.*field); !result) return result;
    }
    const auto equal = [](const Tensor<std::int64_t>& a, const Tensor<std::int64_t>& b) {
      bool same = a.shape == b.shape;
      a.each([&](auto i, auto j, auto k, auto l) {
        same = same && a.at(i, j, k, l) == b.at(i, j, k, l);
      });
      return same;
    };
    if (!equal(top_keys, other.top_keys)) return testing::AssertionFailure() << "top_keys";
    if (!equal(histogram, other.histogram)) return testing::AssertionFailure() << "histogram";
    return testing::AssertionSuccess();
  }
};

}  // namespace heed_test

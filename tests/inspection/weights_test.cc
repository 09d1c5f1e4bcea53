// Weights on demand against their definitions on the oracle's full weights.
//
// Bounds: a weight is known to e = T1 + 4 u |t| p, t the base-2 lse: lse is rounded three times on
// its way from (m, l) and back to base 2, the difference s - t once more, and exp2 turns an error x
// into ln2 x p. Sums of weights move by the sum of e; they are taken in float64, so that for
// float32 only the last rounding counts, and for float64 one for each weight.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "inspection/looked.h"

namespace heed_test {
namespace {

/// The oracle's weights, with what is visible.
template <typename T>
struct True {
  const Call<T>& s;
  oracle::Problem<T> problem = problem_of(s);
  oracle::Answer answer = oracle::attention(problem, true);
  Dims d = s.dims();
  double unit = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;

  [[nodiscard]] bool sees(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return visible(s, problem, b, h, i, j);
  }
  [[nodiscard]] std::size_t row(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return static_cast<std::size_t>((b * d.heads + h) * d.queries + i);
  }
  [[nodiscard]] std::size_t index(std::int64_t b, std::int64_t h, std::int64_t i,
                                  std::int64_t j) const {
    return row(b, h, i) * static_cast<std::size_t>(d.keys) + static_cast<std::size_t>(j);
  }
  [[nodiscard]] double weight(std::int64_t b, std::int64_t h, std::int64_t i,
                              std::int64_t j) const {
    return sees(b, h, i, j) ? answer.weights.value[index(b, h, i, j)] : 0;
  }
  [[nodiscard]] double error(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    if (!sees(b, h, i, j)) return 0;
    const double lse = answer.lse.value[row(b, h, i)];
    return answer.weights.bound[index(b, h, i, j)] +
           weight(b, h, i, j) * 4 * unit * (1 + std::fabs(lse) / std::log(2.0));
  }
  /// What rounding a sum of `count` weights may add.
  [[nodiscard]] double rounding(std::int64_t count) const {
    return unit + static_cast<double>(count + 8) * 0x1p-53;
  }
};

template <typename T>
void expect_rows(const True<T>& truth, const Looked<T>& got) {
  got.row_weights.each([&](auto b, auto h, auto n, auto j) {
    const std::int64_t i = got.rows[static_cast<std::size_t>(n)];
    const double weight = got.row_weights.at(b, h, n, j);
    const double score = got.row_scores.at(b, h, n, j);
    if (!truth.sees(b, h, i, j)) {
      ASSERT_EQ(weight, 0.0) << "hidden: row " << i << ", key " << j;
      ASSERT_EQ(score, -INFINITY);
    } else if (truth.weight(b, h, i, j) > 1e-290) {
      const double p = truth.weight(b, h, i, j);
      const double known = 2 * truth.error(b, h, i, j) / p;  // ln(p + e) - ln p
      ASSERT_NEAR(score, std::log(p) + truth.answer.lse.value[truth.row(b, h, i)],
                  known + 2 * truth.unit * std::fabs(score));
    } else {
      ASSERT_GT(score, -INFINITY);
    }
    ASSERT_NEAR(weight, truth.weight(b, h, i, j), truth.error(b, h, i, j));
  });
}

template <typename T>
void expect_columns(const True<T>& truth, const Looked<T>& got) {
  got.column_sums.each([&](auto b, auto h, auto j, auto) {
    double sum = 0, error = 0;
    for (std::int64_t i = 0; i < truth.d.queries; ++i) {
      sum += truth.weight(b, h, i, j);
      error += truth.error(b, h, i, j);
    }
    ASSERT_NEAR(got.column_sums.at(b, h, j, 0), sum, error + sum * truth.rounding(truth.d.queries));
  });
}

template <typename T>
void expect_maps(const True<T>& truth, const Looked<T>& got) {
  const Dims& d = truth.d;
  const std::int64_t rows = got.mean_map.shape[2], columns = got.mean_map.shape[3];
  got.mean_map.each([&](auto b, auto h, auto r, auto c) {
    double sum = 0, error = 0, lift = 0, lift_error = 0, seen = 0, pairs = 0;
    for (std::int64_t i = 0; i < d.queries; ++i) {
      if (i * rows / d.queries != r) continue;
      double of_row = 0;
      for (std::int64_t j = 0; j < d.keys; ++j) of_row += truth.sees(b, h, i, j) ? 1 : 0;
      for (std::int64_t j = 0; j < d.keys; ++j) {
        if (j * columns / d.keys != c) continue;
        pairs += 1;
        seen += truth.sees(b, h, i, j) ? 1 : 0;
        sum += truth.weight(b, h, i, j);
        error += truth.error(b, h, i, j);
        lift += of_row * truth.weight(b, h, i, j);
        lift_error += of_row * truth.error(b, h, i, j);
      }
    }
    const double rounding = truth.rounding(static_cast<std::int64_t>(pairs));
    ASSERT_NEAR(got.mean_map.at(b, h, r, c), sum / pairs, (error + sum * rounding) / pairs);
    const double got_lift = got.lift_map.at(b, h, r, c);
    if (seen == 0) {
      ASSERT_TRUE(std::isnan(got_lift));
    } else if (lift - lift_error <= lift * 0.5) {  // too little is known of it
      ASSERT_LE(got_lift, std::log2((lift + lift_error) / seen) + 1);
    } else {
      const double relative = lift_error / (lift - lift_error) + rounding;
      ASSERT_NEAR(got_lift, std::log2(lift / seen),
                  relative / std::log(2.0) + truth.unit * std::fabs(got_lift));
    }
  });
}

template <typename T>
void expect_distances(const True<T>& truth, const Looked<T>& got) {
  const std::int64_t count = got.distance_mass.shape[2], half = count / 2;
  for (std::int64_t b = 0; b < truth.d.batch; ++b) {
    const auto& starts = truth.s.query_start;
    const std::int64_t start =
        starts.empty() ? 0 : starts[starts.size() == 1 ? 0 : static_cast<std::size_t>(b)];
    for (std::int64_t h = 0; h < truth.d.heads; ++h) {
      std::vector<double> mass(static_cast<std::size_t>(count)), error(mass.size());
      for (std::int64_t i = 0; i < truth.d.queries; ++i) {
        for (std::int64_t j = 0; j < truth.d.keys; ++j) {
          const auto at = static_cast<std::size_t>(std::clamp(j - (start + i), -half, half) + half);
          mass[at] += truth.weight(b, h, i, j);
          error[at] += truth.error(b, h, i, j);
        }
      }
      for (std::size_t n = 0; n < mass.size(); ++n) {
        ASSERT_NEAR(got.distance_mass.at(b, h, static_cast<std::int64_t>(n), 0), mass[n],
                    error[n] + mass[n] * truth.rounding(truth.d.queries * truth.d.keys));
      }
    }
  }
}

template <typename T>
void expect_top(const True<T>& truth, const Looked<T>& got) {
  got.top_mass.each([&](auto b, auto h, auto i, auto) {
    std::vector<double> weights;
    double error = 0;
    for (std::int64_t j = 0; j < truth.d.keys; ++j) {
      weights.push_back(truth.weight(b, h, i, j));
      error = std::max(error, truth.error(b, h, i, j));
    }
    std::sort(weights.rbegin(), weights.rend());
    double mass = 0;
    std::vector<std::int64_t> seen;
    const std::int64_t places = got.top_weights.shape[3];
    for (std::int64_t n = 0; n < places; ++n) {
      const double weight = got.top_weights.at(b, h, i, n);
      const std::int64_t key = got.top_keys.at(b, h, i, n);
      mass += weight;
      if (n > 0) {
        ASSERT_LE(weight, static_cast<double>(got.top_weights.at(b, h, i, n - 1)));
      }
      const auto place = static_cast<std::size_t>(n);
      ASSERT_NEAR(weight, place < weights.size() ? weights[place] : 0.0, error);
      ASSERT_EQ(key == -1, weight == 0);
      if (key == -1) continue;
      ASSERT_NEAR(weight, truth.weight(b, h, i, key), truth.error(b, h, i, key));
      ASSERT_EQ(std::count(seen.begin(), seen.end(), key), 0) << "key " << key << " twice";
      if (n > 0 && weight == static_cast<double>(got.top_weights.at(b, h, i, n - 1))) {
        ASSERT_GT(key, seen.back()) << "ties have the lower key first";
      }
      seen.push_back(key);
    }
    ASSERT_NEAR(got.top_mass.at(b, h, i, 0), mass,
                mass * static_cast<double>(places + 2) * truth.unit);
  });
}

/// A score may be counted in another bin if it lies as near to its edge as it is known.
template <typename T>
void expect_histogram(const True<T>& truth, const Looked<T>& got, const Extent& extent) {
  const double width = (extent.high - extent.low) / static_cast<double>(extent.bins);
  for (std::int64_t b = 0; b < truth.d.batch; ++b)
    for (std::int64_t h = 0; h < truth.d.heads; ++h) {
      std::vector<std::int64_t> sure(static_cast<std::size_t>(extent.bins + 2)), may(sure);
      std::int64_t total = 0, counted = 0;
      const auto bin_of = [&](double score) {
        const double bin = std::floor((score - extent.low) / width);
        return static_cast<std::size_t>(std::clamp(bin, -1.0, static_cast<double>(extent.bins)) +
                                        1);
      };
      for (std::int64_t i = 0; i < truth.d.queries; ++i)
        for (std::int64_t j = 0; j < truth.d.keys; ++j) {
          if (!truth.sees(b, h, i, j)) continue;
          ++total;
          const double p = truth.weight(b, h, i, j);
          const double lse = truth.answer.lse.value[truth.row(b, h, i)];
          // of a weight that is lost in the oracle's range, the score could be anything
          const double known = p > 1e-290 ? 2 * truth.error(b, h, i, j) / p + 1e-12 : INFINITY;
          const double score = p > 1e-290 ? std::log(p) + lse : 0;
          const auto low = bin_of(score - known);
          const auto high = bin_of(score + known);
          for (auto n = low; n <= high; ++n) ++may[n];
          if (low == high) ++sure[low];
        }
      for (std::size_t n = 0; n < sure.size(); ++n) {
        const std::int64_t count = got.histogram.at(b, h, static_cast<std::int64_t>(n), 0);
        ASSERT_GE(count, sure[n]) << "bin " << n;
        ASSERT_LE(count, may[n]) << "bin " << n;
        counted += count;
      }
      ASSERT_EQ(counted, total);
    }
}

template <typename T>
void expect_looked(const Call<T>& s, const Extent& extent = {}) {
  SCOPED_TRACE(describe(s));
  const True<T> truth{s};
  const auto forward = run(s);
  std::optional<Looked<T>> first;
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    const Looked<T> got(s, forward.lse, extent);
    expect_rows(truth, got);
    expect_columns(truth, got);
    expect_maps(truth, got);
    expect_distances(truth, got);
    expect_top(truth, got);
    expect_histogram(truth, got, extent);
    if (testing::Test::HasFatalFailure()) return;
    if (sizeof(T) == 4 && first) {
      EXPECT_TRUE(got.same(*first)) << "instruction sets differ";
    }
    if (!first) first.emplace(got);
  }
}

template <typename T>
class weights_on_demand : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(weights_on_demand, Reals);

TYPED_TEST(weights_on_demand, are_what_the_definitions_say_for_every_masking) {
  for (const Masking masking : every_masking()) {
    Case c{.dims = {2, 4, 2, 70, 130, 12, 5}, .masking = masking, .seed = 5};
    expect_looked(make<TypeParam>(c));
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(weights_on_demand, are_what_the_definitions_say_for_random_calls) {
  Random random(41);
  for (auto drawn = draws(60); drawn; ++drawn) {
    Extent extent{.top = random.between(1, 9),
                  .rows = random.between(1, 12),
                  .columns = random.between(1, 12),
                  .distances = 2 * random.between(0, 70) + 1,
                  .bins = random.between(1, 40)};
    expect_looked(random_call<TypeParam>(random), extent);
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(weights_on_demand, add_up_over_several_slabs_of_rows) {
  auto s = plain_call<TypeParam>({1, 2, 1, 600, 40, 8, 4}, 42);
  s.causal = true;
  s.query_start = {-20};
  expect_looked(s, {.rows = 7, .columns = 40, .distances = 1});
}

TYPED_TEST(weights_on_demand, of_scores_of_any_size) {
  for (const Values values : {Values::very_sharp, Values::q_zero, Values::integers}) {
    Case c{.dims = {1, 2, 2, 9, 40, 8, 4}, .values = values, .seed = 6};
    expect_looked(make<TypeParam>(c));
    if (this->HasFatalFailure()) return;
  }
}

/// Scores so large that lse, rounded, is below the largest of them: 2^x is made for x <= 0 alone.
TYPED_TEST(weights_on_demand, are_from_zero_to_one_however_large_scores_are) {
  using T = TypeParam;
  for (const double large : {1e6, 7.7e7, 7.35e8, 3e9, 1e12, 1e17, 1e20, 1e37}) {
    auto s = plain_call<T>({1, 1, 1, 150, 100, 3, 2}, 43);
    s.scale = {0.7};
    s.causal = true;
    for (T& x : s.q.memory) x *= static_cast<T>(large);
    const auto lse = run(s).lse;
    for (const heed::Isa isa : runnable_isas()) {
      const Forced forced(isa);
      const Looked<T> got(s, lse, {});
      const auto expect_within = [&](const Tensor<T>& t, double most, const char* name) {
        t.each([&](auto b, auto h, auto i, auto x) {
          ASSERT_TRUE(t.at(b, h, i, x) >= 0 && t.at(b, h, i, x) <= most)
              << name << " " << t.at(b, h, i, x) << ", scores of " << large << " on "
              << heed::name_of(isa);
        });
      };
      expect_within(got.row_weights, 1, "weight");
      expect_within(got.top_weights, 1, "largest weight");
      expect_within(got.top_mass, 5, "mass of the largest");
      expect_within(got.column_sums, 150, "column");
      expect_within(got.mean_map, 1, "mean");
      expect_within(got.distance_mass, 150 * 100, "mass at a distance");
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

/// The outermost distances have many keys of a row: 2^-54 four times in row 0, 1 and 2^-24 in row
/// 2, which a tile of both rows meets in an earlier block. Any other order of these loses 2^-52,
/// which decides how float rounds the sum.
TEST(weights_on_demand_float, are_summed_by_distance_in_the_order_of_rows) {
  auto s = plain_call<float>({1, 1, 1, 4, 192, 4, 1}, 44);
  float scale = 0.693147F;
  while (scale * 1.44269504F != 1) scale = std::nextafter(scale, 1.0F);
  s.scale = {scale};  // 1 in base 2: a score is the exponent of its weight
  s.q.each([&](auto b, auto h, auto i, auto x) { s.q.at(b, h, i, x) = i == x ? 1 : 0; });
  s.k.each([&](auto b, auto h, auto j, auto x) {
    const bool first = x == 0 && j >= 100 && j < 104;
    s.k.at(b, h, j, x) = first ? -54 : x == 2 && j < 2 ? -24 * static_cast<float>(j) : -200;
  });
  Tensor<float> lse({1, 1, 4, 1});
  for (float& x : lse.memory) x = 0;
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    const Looked<float> got(s, lse, {.distances = 1});
    EXPECT_EQ(got.distance_mass.at(0, 0, 0, 0), 1 + 0x1p-23F) << heed::name_of(isa);
  }
}

}  // namespace
}  // namespace heed_test

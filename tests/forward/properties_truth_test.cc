// Properties of attention that hold within the oracle's bounds.
// Method: random problems, changed so that the exact result is known from the unchanged one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "forward/draws.h"
#include "forward/judge.h"

namespace heed_test {
namespace {

/// Maskings after which the weights of a row that sees a key sum to 1.
const std::vector<Masking>& whole_rows() {
  static const std::vector<Masking> all{
      Masking::none,       Masking::causal,       Masking::keep_half,
      Masking::drop_half,  Masking::alibi,        Masking::bias_finite,
      Masking::normalized, Masking::bias_masking, Masking::softcap_causal};
  return all;
}

TEST(property, permuted_keys_change_nothing_beyond_rounding) {  // P1
  for_draws(101, usual_draws(), [](Random& random, auto real) {
    const auto s = random_call<decltype(real)>(random, placeless());
    const auto moved = with_keys(s, shuffled(s.k.shape[2], random));
    EXPECT_TRUE(within_bounds(run(moved), truth_of(s, false))) << describe(s);
  });
}

/// The chains of l and O round alike, so that only 1 / l and its product with O do: 2 u. An output
/// in 16 bits is that rounded to the nearest number of its type, of which none but the power of two
/// is so near. Dot products of bfloat16 round the weights in O, but not in l: T1.
template <typename T>
double bound_of_a_power_of_two(const Call<T>& s, T value) {
  if (by_pairs(s)) return std::ranges::max(truth_of(s, false).o.bound);
  if (s.dtype != heed::detail::dtype_of<T>()) return 0;
  return double{std::numeric_limits<T>::epsilon()} * std::fabs(double{value});
}

TEST(property, a_v_of_one_power_of_two_comes_back) {  // P4, P6
  for_draws(104, usual_draws(), [](Random& random, auto real) {
    using T = decltype(real);
    auto s = random_call<T>(random, whole_rows());
    const T value = random.pick({T(1), T(-0.25), T(4096)});
    s.v.each([&](auto b, auto h, auto j, auto x) { s.v.at(b, h, j, x) = value; });
    const double bound = bound_of_a_power_of_two(s, value);
    const auto r = run(s);
    r.o.each([&](auto b, auto h, auto i, auto x) {
      const bool empty = std::isinf(r.lse.at(b, h, i, 0));
      EXPECT_NEAR(r.o.at(b, h, i, x), empty ? T(0) : value, bound) << describe(s);
    });
  });
}

TEST(property, an_output_lies_between_the_values_it_averages) {  // P5
  for_draws(105, usual_draws(), [](Random& random, auto real) {
    using T = decltype(real);
    const auto s = random_call<T>(random, whole_rows());
    const auto problem = problem_of(s);
    const auto answer = truth_of(s, false);
    const Dims d = s.dims();
    const auto r = run(s);
    std::size_t n = 0;
    r.o.each([&](auto b, auto h, auto i, auto x) {
      double low = INFINITY, high = -INFINITY;
      for (std::int64_t j = 0; j < d.keys; ++j) {
        if (!oracle::allowed(problem, b, h, i, j)) continue;
        // A bias that broadcasts along the keys may mask all of them.
        if (problem.bias.data != nullptr && problem.bias.at(b, h, i, j) == -INFINITY) continue;
        const double v = double{s.v.at(b, h / (d.heads / d.kv_heads), j, x)};
        low = std::min(low, v);
        high = std::max(high, v);
      }
      const double o = double{r.o.at(b, h, i, x)}, bound = answer.o.bound[n++];
      if (low > high) low = high = 0;  // no key
      EXPECT_TRUE(o >= low - bound && o <= high + bound) << describe(s);
    });
  });
}

TEST(property, a_shift_of_all_scores_shifts_only_the_lse) {  // P11
  for_draws(111, usual_draws(), [](Random& random, auto real) {
    using T = decltype(real);
    auto s = random_call<T>(random, {Masking::none, Masking::causal, Masking::keep_half,
                                     Masking::normalized, Masking::key_lengths});
    const double shift = random.pick({1.0, -1.0, 1e3, -1e3, 1e4, -1e4});
    auto truth = truth_of(s, false);
    s.bias = Tensor<double>({1, 1, 1, 1});
    s.bias.at(0, 0, 0, 0) = shift;
    const auto shifted = truth_of(s, false);
    truth.o.bound = shifted.o.bound;  // the rounding of larger scores
    truth.lse = shifted.lse;
    EXPECT_TRUE(within_bounds(run(s), truth)) << "by " << shift << ": " << describe(s);
  });
}

TEST(property, attention_is_linear_in_v) {  // P13
  for_draws(113, usual_draws(), [](Random& random, auto real) {
    using T = decltype(real);
    auto a = random_call<T>(random);
    a.v = Tensor<T>(a.v.shape);
    auto b = a, sum = a;
    a.v.each([&](auto bb, auto h, auto j, auto x) {
      const auto left = static_cast<T>(random.between(-99, 99));
      const auto right = static_cast<T>(random.between(-99, 99));
      a.v.at(bb, h, j, x) = left;
      b.v.at(bb, h, j, x) = right;
      sum.v.at(bb, h, j, x) = left + right;
    });
    const auto bound_of = [](const auto& s) { return truth_of(s, false).o.bound; };
    const auto oa = run(a), ob = run(b), os = run(sum);
    const auto ba = bound_of(a), bb = bound_of(b), bs = bound_of(sum);
    std::size_t n = 0;
    os.o.each([&](auto e, auto h, auto i, auto x) {
      const double apart = double{oa.o.at(e, h, i, x)} + double{ob.o.at(e, h, i, x)};
      EXPECT_NEAR(double{os.o.at(e, h, i, x)}, apart, ba[n] + bb[n] + bs[n]) << describe(a);
      ++n;
    });
  });
}

TEST(property, doubled_keys_add_ln_two_to_the_lse) {  // P14
  for_draws(114, usual_draws(), [](Random& random, auto real) {
    using T = decltype(real);
    const auto s = random_call<T>(
        random, {Masking::none, Masking::keep_half, Masking::bias_finite, Masking::normalized});
    std::vector<std::int64_t> twice;
    for (std::int64_t j = 0; j < s.k.shape[2]; ++j) twice.insert(twice.end(), {j, j});
    const auto doubled = with_keys(s, twice);
    auto truth = truth_of(s, false);
    const auto bounds = truth_of(doubled, false);
    truth.o.bound = bounds.o.bound;
    truth.lse.bound = bounds.lse.bound;
    for (std::size_t n = 0; n < truth.lse.value.size(); ++n) {
      const oracle::DoubleDouble more =
          oracle::DoubleDouble(truth.lse.value[n], truth.lse.low[n]) +
          oracle::DoubleDouble(0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56);
      truth.lse.value[n] = more.hi;
      truth.lse.low[n] = more.lo;
    }
    EXPECT_TRUE(within_bounds(run(doubled), truth)) << describe(s);
  });
}

/// o = sum_p e^(lse_p - lse) o_p over the parts; the parts' bounds add up with the same weights,
/// and an error of lse_p moves its weight by at most as much again.
TEST(property, parts_of_the_keys_merge_by_their_lse) {  // P16
  for_draws(116, usual_draws(), [](Random& random, auto real) {
    using T = decltype(real);
    const auto s = random_call<T>(random, {Masking::none, Masking::keep_half, Masking::drop_half,
                                           Masking::bias_finite, Masking::normalized});
    const std::int64_t keys = s.k.shape[2];
    std::vector<Result<T>> parts;
    std::vector<oracle::Answer> bounds;
    for (std::int64_t begin = 0; begin < keys;) {
      const std::int64_t end = random.between(begin + 1, keys);
      const auto part = with_keys(s, range(begin, end));
      parts.push_back(run(part));
      bounds.push_back(truth_of(part, false));
      begin = end;
    }
    const auto whole = run(s);
    const auto truth = truth_of(s, false);
    const std::int64_t columns = s.v.shape[3];
    std::size_t n = 0;
    whole.o.each([&](auto b, auto h, auto i, auto x) {
      const std::size_t row = n / static_cast<std::size_t>(columns);
      double l = 0, o = 0, slack = truth.o.bound[n], worst = 0;
      const double m = double{whole.lse.at(b, h, i, 0)};
      for (std::size_t p = 0; p < parts.size() && std::isfinite(m); ++p) {
        const double w = std::exp(double{parts[p].lse.at(b, h, i, 0)} - m);
        const double v = double{parts[p].o.at(b, h, i, x)};
        l += w;
        o += w * v;
        slack += w * (bounds[p].o.bound[n] + 4 * std::fabs(v) * bounds[p].lse.bound[row]);
        worst = std::max(worst, bounds[p].lse.bound[row]);
      }
      if (l > 0) o /= l;
      slack += std::fabs(o) * (4 * worst + 1e-12);
      EXPECT_NEAR(o, double{whole.o.at(b, h, i, x)}, slack) << describe(s);
      ++n;
    });
  });
}

TEST(property, weights_are_a_distribution_whose_mean_of_v_is_the_output) {  // P26
  for_draws(126, usual_draws(), [](Random& random, auto real) {
    using T = decltype(real);
    const auto s = random_call<T>(random);
    const Dims d = s.dims();
    const auto problem = problem_of(s);
    const auto answer = truth_of(s, true);
    const auto r = run(s, {.lse = true, .weights = true});
    const auto at = [](auto... n) { return static_cast<std::size_t>((n + ...)); };
    for (std::int64_t b = 0; b < d.batch; ++b)
      for (std::int64_t h = 0; h < d.heads; ++h)
        for (std::int64_t i = 0; i < d.queries; ++i) {
          const std::int64_t row = (b * d.heads + h) * d.queries + i;
          // In more digits than float64, in which 800 roundings of the test would be as large as
          // the bound.
          long double sum = 0, expected = 0;
          double slack = 0;
          for (std::int64_t j = 0; j < d.keys; ++j) {
            const double w = double{r.weights.at(b, h, i, j)};
            EXPECT_GE(w, 0);
            if (!oracle::allowed(problem, b, h, i, j)) {
              EXPECT_EQ(w, 0) << describe(s);
            }
            sum += w;
            expected += answer.weights.value[at(row * d.keys, j)];
            slack += answer.weights.bound[at(row * d.keys, j)];
          }
          EXPECT_NEAR(double(sum), double(expected), slack + 1e-15) << describe(s);
          if (s.sinks.empty() && expected > 0) {
            EXPECT_NEAR(double(sum), 1, answer.lse.bound[at(row)] + slack) << describe(s);
          }
          for (std::int64_t x = 0; x < d.value_size; ++x) {
            long double o = 0;
            double error = answer.o.bound[at(row * d.value_size, x)] + 1e-15;
            for (std::int64_t j = 0; j < d.keys; ++j) {
              const double v = double{s.v.at(b, h / (d.heads / d.kv_heads), j, x)};
              o += static_cast<long double>(r.weights.at(b, h, i, j)) * v;
              error += answer.weights.bound[at(row * d.keys, j)] * std::fabs(v);
            }
            EXPECT_NEAR(double(o), double{r.o.at(b, h, i, x)}, error * 1.001) << describe(s);
          }
        }
  });
}

TEST(property, random_problems_are_within_the_oracles_bounds) {
  for_draws(130, usual_draws(), [](Random& random, auto real) {
    const auto s = random_call<decltype(real)>(random);
    expect_truth(s, {.lse = true, .weights = true});
  });
}

}  // namespace
}  // namespace heed_test

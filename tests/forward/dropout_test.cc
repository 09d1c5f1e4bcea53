// Dropout: which weights it takes, how many, and what it leaves alone. Against the oracle it runs
// in the case matrix.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "forward/draws.h"
#include "forward/seen.h"
#include "sanitized.h"

namespace heed_test {
namespace {

template <typename T>
class dropout : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(dropout, Reals);

template <typename T>
Call<T> call_of(Masking masking, double p, std::uint64_t seed = 11) {
  Case c;
  c.dims = {2, 4, 2, 150, 900, 8, 6};
  c.masking = masking;
  c.mask_axes = 3;
  c.seed = 31;
  Call<T> s = make<T>(c);
  s.dropout = {p, seed};
  return s;
}

const std::vector<Masking>& many() {
  static const std::vector<Masking> all{
      Masking::everything, Masking::none,         Masking::causal,
      Masking::keep_half,  Masking::alibi,        Masking::sinks,
      Masking::score_mod,  Masking::bias_masking, Masking::window_narrow};
  return all;
}

TYPED_TEST(dropout, of_nothing_has_the_bits_of_none) {
  for (const Masking masking : many()) {
    auto s = call_of<TypeParam>(masking, 0);
    const Ask ask{.lse = true, .weights = true};
    const auto without = run(s, ask);
    s.dropout = {0x1p-18, 5};  // less than half of 2^-16
    EXPECT_TRUE(same_bits(run(s, ask), without)) << describe(s);
  }
}

TYPED_TEST(dropout, leaves_lse_and_statistics_alone) {
  for (const Masking masking : many()) {
    const auto s = call_of<TypeParam>(masking, 0.3);
    auto whole = s;
    whole.dropout = {};
    EXPECT_TRUE(same_bits(run(s).lse, run(whole).lse)) << describe(s);
    EXPECT_TRUE(same_bits(Seen<TypeParam>(s), Seen<TypeParam>(whole))) << describe(s);
  }
}

TYPED_TEST(dropout, has_one_mask_for_any_threads_and_instruction_set) {
  for (const Masking masking : each_third(many())) {
    const auto s = call_of<TypeParam>(masking, 0.4);
    const Ask ask{.lse = true, .weights = true};
    const auto one = run(s, ask, {.executor = nullptr, .threads = 1});
    for (const int threads : {2, 5, 16})
      EXPECT_TRUE(same_bits(run(s, ask, {.executor = nullptr, .threads = threads}), one))
          << describe(s);
    for (const heed::Isa isa : isas_for_races(runnable_isas())) {
      const Forced forced(isa);
      EXPECT_TRUE(same_bits(run(s, ask), one)) << heed::name_of(isa) << ": " << describe(s);
    }
    EXPECT_TRUE(same_bits(run(s).o, one.o)) << "asking for weights changed the output";
  }
}

/// Weights in which those that are 0 are dropped: scores are near 0.
Tensor<float> weights_of(const Dims& dims, double p, std::uint64_t seed) {
  auto s = plain_call<float>(dims, 3, 0.1);
  s.dropout = {p, seed};
  return run(s, {.weights = true}).weights;
}

/// |observed - expected| within 5 standard deviations of a binomial: 1 of 1.7 million such tests
/// fails by chance, and the seeds are fixed.
void expect_share(double hits, double trials, double share, const std::string& what) {
  EXPECT_NEAR(hits / trials, share, 5 * std::sqrt(share * (1 - share) / trials)) << what;
}

TEST(dropout_statistics, has_the_rate_asked_for) {
  for (const double p : {0.01, 0.1, 0.5, 0.9}) {
    const auto w = weights_of({2, 3, 3, 257, 611, 4, 1}, p, 17);
    double dropped = 0;
    w.each([&](auto b, auto h, auto i, auto j) { dropped += w.at(b, h, i, j) == 0; });
    const double rate = std::round(p * 65536) / 65536;
    expect_share(dropped, static_cast<double>(w.count()), rate, "p = " + std::to_string(p));
    for (std::int64_t h = 0; h < 3; ++h) {
      double of_head = 0;
      w.each(
          [&](auto b, auto hh, auto i, auto j) { of_head += hh == h && w.at(b, hh, i, j) == 0; });
      expect_share(of_head, static_cast<double>(w.count()) / 3, rate, "a head");
    }
  }
}

// Two weights are dropped together p^2 of the time, wherever the second stands: the next key (the
// other half of a word), the next word, the next call of the generator, row, head, batch entry.
TEST(dropout_statistics, drops_weights_independently_of_their_neighbours) {
  constexpr double kP = 0.25;
  const auto w = weights_of({2, 3, 3, 200, 640, 4, 1}, kP, 99);
  const Shape steps[] = {{0, 0, 0, 1}, {0, 0, 0, 2}, {0, 0, 0, 4},  {0, 0, 0, 8}, {0, 0, 1, 0},
                         {0, 0, 8, 1}, {0, 1, 0, 0}, {0, 1, 1, -1}, {1, 0, 0, 0}};
  for (const Shape& step : steps) {
    double both = 0, pairs = 0;
    w.each([&](auto b, auto h, auto i, auto j) {
      const Shape to{b + step[0], h + step[1], i + step[2], j + step[3]};
      for (std::size_t a = 0; a < 4; ++a)
        if (to[a] < 0 || to[a] >= w.shape[a]) return;
      ++pairs;
      both += w.at(b, h, i, j) == 0 && w.at(to[0], to[1], to[2], to[3]) == 0;
    });
    expect_share(both, pairs, kP * kP,
                 "step " + std::to_string(step[0]) + " " + std::to_string(step[1]) + " " +
                     std::to_string(step[2]) + " " + std::to_string(step[3]));
  }
}

TEST(dropout_statistics, has_another_mask_for_each_seed) {
  const Dims dims{1, 2, 2, 200, 640, 4, 1};
  const auto first = weights_of(dims, 0.25, 1);
  for (const std::uint64_t seed : {2ull, 1ull + (1ull << 32), 1ull << 63, ~0ull}) {
    const auto other = weights_of(dims, 0.25, seed);
    double both = 0;
    first.each([&](auto b, auto h, auto i, auto j) {
      both += first.at(b, h, i, j) == 0 && other.at(b, h, i, j) == 0;
    });
    expect_share(both, static_cast<double>(first.count()), 0.25 * 0.25,
                 "seed " + std::to_string(seed));
  }
}

// E[o] = o: kept weights are divided by 1 - p. The mean of n outputs has the variance
// p / (1 - p) sum_j P_j^2 v_j^2 / n.
TEST(dropout_statistics, leaves_the_mean_output_where_it_was) {
  constexpr int kRuns = 600;
  constexpr double kP = 0.2;
  auto s = plain_call<double>({1, 1, 1, 6, 40, 8, 5}, 41);
  const auto whole = run(s, {.weights = true});
  Tensor<double> sum(whole.o.shape);
  std::fill(sum.memory.begin(), sum.memory.end(), 0.0);
  for (int n = 0; n < kRuns; ++n) {
    s.dropout = {kP, static_cast<std::uint64_t>(n)};
    const auto o = run(s).o;
    o.each([&](auto b, auto h, auto i, auto x) { sum.at(b, h, i, x) += o.at(b, h, i, x); });
  }
  sum.each([&](auto b, auto h, auto i, auto x) {
    double variance = 0;
    for (std::int64_t j = 0; j < 40; ++j) {
      variance += std::pow(whole.weights.at(b, h, i, j) * s.v.at(b, h, j, x), 2);
    }
    variance *= kP / (1 - kP) / kRuns;
    EXPECT_NEAR(sum.at(b, h, i, x) / kRuns, whole.o.at(b, h, i, x), 5 * std::sqrt(variance));
  });
}

// A place keeps its draw when the problem around it grows.
TEST(dropout_statistics, is_addressed_by_place_alone) {
  const auto small = weights_of({1, 2, 2, 30, 100, 4, 1}, 0.5, 7);
  const auto large = weights_of({1, 2, 2, 70, 1000, 4, 1}, 0.5, 7);
  small.each([&](auto b, auto h, auto i, auto j) {
    ASSERT_EQ(small.at(b, h, i, j) == 0, large.at(b, h, i, j) == 0) << h << " " << i << " " << j;
  });
}

/// Some rows, heads and keys of two batch entries, as a call that says where it stands.
TYPED_TEST(dropout, of_a_part_that_says_its_place_is_that_of_the_whole) {
  auto s = plain_call<TypeParam>({3, 6, 3, 150, 900, 8, 6}, 12, 0.1);
  s.dropout = {.p = 0.4, .seed = 77, .first_query = (std::int64_t{1} << 32) - 60, .first_key = 3};
  auto part = with_queries(with_batch(s, {1, 2}), range(37, 90), true);
  part.query_start = {};
  part.q = gathered(part.q, 1, {2, 3});
  part.k = gathered(part.k, 1, {1});
  part.v = gathered(part.v, 1, {1});
  part.dropout.first_batch = 1, part.dropout.first_head = 2, part.dropout.heads = 6;
  const auto whole = run(s, {.lse = true, .weights = true});
  const auto of_part = [&](const Result<TypeParam>& r) {
    return gathered(gathered(gathered(r, 0, {1, 2}), 1, {2, 3}), 2, range(37, 90));
  };
  EXPECT_TRUE(same_bits(run(part, {.lse = true, .weights = true}), of_part(whole)));

  auto keys = with_keys(part, range(131, 531));  // other keys, other weights: the same are 0
  keys.dropout.first_key += 131;
  const auto w = run(keys, {.weights = true}).weights;
  const auto wanted = gathered(of_part(whole).weights, 3, range(131, 531));
  double dropped = 0;
  w.each([&](auto b, auto h, auto i, auto j) {
    dropped += w.at(b, h, i, j) == 0;
    ASSERT_EQ(w.at(b, h, i, j) == 0, wanted.at(b, h, i, j) == 0) << h << " " << i << " " << j;
  });
  EXPECT_GT(dropped, 0.35 * static_cast<double>(w.count()));
}

// Found by fuzz_attention: the oracle's sums of places overflowed.
TYPED_TEST(dropout, counts_on_at_the_end_of_int64) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  auto s = plain_call<TypeParam>({2, 3, 1, 5, 100, 4, 3}, 14, 0.1);
  s.dropout = {.p = 0.5,
               .seed = 7,
               .first_query = kMost,
               .first_key = kMost,
               .first_batch = kMost,
               .first_head = kMost - 3,
               .heads = kMost};
  expect_truth(s, {.weights = true});
}

// Found by fuzz_attention: the oracle let a weight of scores that float32 does not know be wrong by
// 1 at most.
TEST(dropout_ranges, a_weight_of_unknown_scores_is_at_most_what_dropout_makes_of_1) {
  auto s = plain_call<float>({1, 1, 1, 8, 16, 1, 1}, 15);
  s.q.each([&](auto b, auto h, auto i, auto x) { s.q.at(b, h, i, x) = 1; });
  s.k.each(
      [&](auto b, auto h, auto j, auto x) { s.k.at(b, h, j, x) = static_cast<float>(20 * j); });
  s.scale = {1};
  s.alibi = {0x1p-16};  // -2^47 for all, beside which 20 j is nothing to float32
  s.query_start = {std::numeric_limits<std::int64_t>::max()};
  s.dropout = {.p = 0.5, .seed = 7};
  expect_truth(s, {.weights = true});
  // Equal scores, whereas the truth has all weight on the last key: 2 where it is kept.
  double largest = 0;
  const auto w = run(s, {.weights = true}).weights;
  w.each([&](auto b, auto h, auto i, auto j) {
    largest = std::max(largest, double{w.at(b, h, i, j)});
  });
  EXPECT_EQ(largest, 0.125);
}

TEST(dropout_statistics, does_not_hide_what_is_not_a_number) {
  auto s = plain_call<float>({1, 1, 1, 9, 50, 8, 3}, 8);
  s.dropout = {0.9, 4};
  s.v.at(0, 0, 20, 1) = std::numeric_limits<float>::quiet_NaN();
  const auto r = run(s);
  for (std::int64_t i = 0; i < 9; ++i) EXPECT_TRUE(std::isnan(r.o.at(0, 0, i, 1))) << i;
}

}  // namespace
}  // namespace heed_test

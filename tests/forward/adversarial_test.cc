// Inputs that break attention elsewhere (A1 to A28 of the plan).
// Method: the oracle's bounds on every instruction set where the truth is a number, bits where the
// promise is about bits.
#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <limits>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "forward/adversarial.h"
#include "forward/draws.h"

namespace heed_test {
namespace {

template <typename T>
constexpr T kInf = std::numeric_limits<T>::infinity();
template <typename T>
constexpr T kQuiet = std::numeric_limits<T>::quiet_NaN();

template <typename T>
class adversarial : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(adversarial, Reals);

TYPED_TEST(adversarial, masked_rows_and_blocks_anywhere) {  // A1, A2
  for (const std::int64_t keys : {95, 97, 193, 767, 769})
    for (const auto& [begin, end] :
         {std::pair{0, 95}, std::pair{0, 96}, std::pair{0, 97}, std::pair{96, 192},
          std::pair{95, 191}, std::pair{700, 800}, std::pair{0, 767}, std::pair{0, 768},
          std::pair{0, 769}, std::pair{96, 1000}, std::pair{767, 1000}}) {
      auto s = plain_call<TypeParam>({1, 2, 1, 9, keys, 5, 6}, 42);
      s.drop = Tensor<std::uint8_t>({1, 1, 9, keys});
      s.drop.each([&, b0 = begin, e0 = end](auto b, auto h, auto i, auto j) {
        const bool row = i == 0 || i == 8 || i % 4 == 2;  // first, last, alternate
        s.drop.at(b, h, i, j) = row || (i % 2 == 1 && j >= b0 && j < e0);
      });
      expect_truth(s, {.lse = true, .weights = true});
    }
}

/// Whatever lies behind a mask, and in the slack around the tensors (NaN in every layout).
TYPED_TEST(adversarial, poison_behind_a_mask_is_not_seen) {  // A3 to A6
  using T = TypeParam;
  for (const T poison : {kQuiet<T>, kInf<T>, -kInf<T>, std::numeric_limits<T>::signaling_NaN(),
                         std::numeric_limits<T>::max()})
    for (const Masking masking : {Masking::causal, Masking::key_lengths, Masking::keep_half,
                                  Masking::window_narrow, Masking::bias_masking})
      for (const int which : {1, 2, 3}) {
        Case c;
        c.dims = {1, 2, 1, 33, 100, 7, 9};
        c.masking = masking;
        c.mask_axes = 1;  // keys only, for keep and bias
        c.seed = 43;
        auto s = make<T>(c);
        const auto clean = oracle::attention(problem_of(s), false);
        const auto problem = problem_of(s);
        for (std::int64_t j = 0; j < 100; ++j) {
          bool seen = false;
          for (std::int64_t h = 0; h < 2; ++h)
            for (std::int64_t i = 0; i < 33; ++i)
              seen |= oracle::allowed(problem, 0, h, i, j) &&
                      !(s.bias.present() && std::isinf(problem.bias.at(0, h, i, j)));
          if (seen) continue;
          for (std::int64_t x = 0; x < 7 && (which & 1); ++x) s.k.at(0, 0, j, x) = poison;
          for (std::int64_t x = 0; x < 9 && (which & 2); ++x) s.v.at(0, 0, j, x) = poison;
        }
        for (const heed::Isa isa : runnable_isas()) {
          const Forced forced(isa);
          EXPECT_TRUE(within_bounds(run(s), clean)) << describe(s);
        }
      }
}

/// Rows that may see a poisoned key beside rows that may not, in one tile.
TYPED_TEST(adversarial, poison_reaches_exactly_the_rows_that_see_it) {  // A3, A5, A8, A9, A10
  using T = TypeParam;
  for (const T poison : {kQuiet<T>, kInf<T>, -kInf<T>})
    for (const std::int64_t at : {0, 5, 63, 95, 96, 99})
      for (const int which : {1, 2}) {
        auto s = plain_call<T>({1, 2, 1, 100, 100, 6, 5}, 44);
        s.causal = true;
        if (which == 1) s.k.at(0, 0, at, 3) = poison;
        if (which == 2) s.v.at(0, 0, at, 3) = poison;
        expect_truth(s, {.lse = true, .weights = true});
      }
}

TYPED_TEST(adversarial, every_nan_payload_survives_in_q_k_v_and_bias) {  // A7 to A9
  using T = TypeParam;
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  const int up = sizeof(T) == 4 ? 0 : 32;
  for (const Bits bits : {Bits{0x7FC00001}, Bits{0xFFFFFFFF}, Bits{0x7FF80001}, Bits{0xFFC00000}}) {
    Bits pattern = bits << up;
    if (sizeof(T) == 8 && bits == 0xFFFFFFFF) pattern = ~Bits{0};
    if (sizeof(T) == 8 && bits != 0xFFFFFFFF) pattern |= Bits{0xFFF8} << 48;
    T nan;
    std::memcpy(&nan, &pattern, sizeof nan);
    ASSERT_TRUE(std::isnan(nan));
    for (int which = 0; which < 4; ++which) {
      auto s = plain_call<T>({1, 1, 1, 20, 110, 5, 4}, 45);
      if (which == 0) s.q.at(0, 0, 7, 2) = nan;
      if (which == 1) s.k.at(0, 0, 100, 2) = nan;
      if (which == 2) s.v.at(0, 0, 3, 2) = nan;
      if (which == 3) {
        s.bias = Tensor<double>({1, 1, 20, 110});
        fill(s.bias, [](auto i, auto j) { return double(i - j) / 64; });
        s.bias.at(0, 0, 9, 50) = std::nan("");
      }
      expect_truth(s, {.lse = true, .weights = true, .output = Layout::bhtd, .ones = true});
    }
  }
}

TYPED_TEST(adversarial, nan_survives_softcap_normalization_score_mod_and_sinks) {
  for (const Masking masking : {Masking::softcap_causal, Masking::normalized, Masking::score_mod,
                                Masking::sinks, Masking::alibi}) {
    Case c;
    c.dims = {1, 2, 2, 30, 100, 8, 8};
    c.masking = masking;
    c.values = Values::not_a_number;
    for (c.seed = 46; c.seed < 52; ++c.seed) expect_truth(make<TypeParam>(c));
  }
  auto s = plain_call<TypeParam>({1, 2, 1, 5, 9, 4, 4}, 47);
  s.sinks = {std::nan(""), 1};
  expect_truth(s);
}

TYPED_TEST(adversarial, infinities_in_q_and_k_follow_the_rules_of_the_score) {  // A10
  using T = TypeParam;
  auto s =
      with_scores<T>(3, 100, [](auto j) { return j == 40 ? -kInf<double> : 0.01 * double(j); });
  expect_truth(s, {.lse = true, .weights = true});  // weight 0
  s.v.at(0, 0, 40, 1) = kQuiet<T>;                  // but its v counts as attended
  expect_truth(s);
  s.k.at(0, 0, 40, 0) = kInf<T>;
  expect_truth(s);
  s = with_scores<T>(3, 100, [](auto) { return -kInf<double>; });
  expect_truth(s, {.lse = true, .weights = true});  // an empty row
  s.v.at(0, 0, 3, 0) = kInf<T>;
  expect_truth(s);
  // A whole first block at -inf, and NaN in its v.
  s = with_scores<T>(3, 300, [](auto j) { return j < 96 ? -kInf<double> : 0.5; });
  expect_truth(s);
  s.v.at(0, 0, 17, 1) = kQuiet<T>;
  expect_truth(s);
  s.softcap = 20;  // tanh(-inf) is a number again
  expect_truth(s);
}

/// The largest scores are equal, so each of their keys has one part of the weight, whatever they
/// are: the bound of such a call, which grows with a score, would let any mean of v pass.
template <typename T>
void expect_equal_parts(const Call<T>& s, const Call<T>& of_zeros) {
  const auto truth = oracle::attention(problem_of(of_zeros), true);
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    EXPECT_TRUE(within_bounds(run(s, {.lse = false, .weights = true}), truth)) << describe(s);
  }
}

TYPED_TEST(adversarial, scores_are_finite_up_to_the_largest) {  // A11, A12
  for (const double large : {256.0, 65504.0, 1e12, 1e4, 88.7, 103.97, 127 * std::log(2.0)}) {
    auto s = with_scores<TypeParam>(4, 130, [&](auto j) {
      return j % 3 == 0 ? large : j % 3 == 1 ? -large : 0.0;
    });
    expect_truth(s, {.lse = true, .weights = true});
    s.causal = true;  // -large first, then 0
    expect_truth(s);
    if (large < 1e4) continue;  // the others have weights
    auto zeros = s;
    zeros.k = with_scores<TypeParam>(4, 130, [](auto j) { return j % 3 == 0 ? 0 : -1e4; }).k;
    expect_equal_parts(s, zeros);
  }
  auto s = plain_call<TypeParam>({1, 1, 1, 8, 130, 64, 8}, 48);
  fill(s.q, [](auto, auto) { return 256; });
  fill(s.k, [](auto, auto) { return 256; });
  expect_truth(s, {.lse = true, .weights = true});
  auto zeros = s;
  fill(zeros.k, [](auto, auto) { return 0; });
  expect_equal_parts(s, zeros);
  // One product at the edge of the type, one key.
  const double edge = double{std::numeric_limits<TypeParam>::max()} / 4;
  s = with_scores<TypeParam>(2, 1, [&](auto) { return edge; });
  const auto r = run(s);
  EXPECT_TRUE(std::isfinite(r.lse.at(0, 0, 0, 0)));
  EXPECT_EQ(r.o.at(0, 0, 0, 0), s.v.at(0, 0, 0, 0));
}

TYPED_TEST(adversarial, subnormals_are_numbers) {  // A13
  using T = TypeParam;
  const T tiny = std::numeric_limits<T>::denorm_min();
  auto s = plain_call<T>({1, 1, 1, 6, 4, 5, 6}, 49);
  fill(s.v, [&](auto j, auto x) { return double{tiny} * double(4 * (j + x) + 4); });
  fill(s.k, [](auto, auto) { return 0; });  // equal weights of 1/4: the mean is exact
  auto r = run(s);
  for (std::int64_t x = 0; x < 6; ++x) EXPECT_EQ(r.o.at(0, 0, 0, x), tiny * T(4 * x + 10));
  expect_truth(s);
  fill(s.q, [&](auto i, auto) { return double{tiny} * double(i + 1); });
  fill(s.k, [](auto j, auto) { return 1e30 * double(j); });
  s.scale = {1e10};
  expect_truth(s);
}

// Found by fuzz_attention: each product below the normal numbers may lose half the smallest one,
// and no sum of weights makes up for it where a key of value 0 has nearly all of them.
TEST(adversarial_float, products_below_the_normal_numbers_are_lost_one_by_one) {
  for (const double rate : {0.0, 0.75}) {
    auto s = with_scores<float>(4, 150, [](auto j) { return j == 0 ? 0 : std::log(0x1p-30); });
    fill(s.v, [](auto j, auto) { return j == 0 ? 0 : 0x1.8p-121; });
    s.dropout = {.p = rate, .seed = 5};
    expect_truth(s);
    // 3/8 of the smallest number for each key.
    EXPECT_EQ(run(s).o.at(0, 0, 0, 0), 0.0F) << rate;
    EXPECT_GT(oracle::attention(problem_of(s), false).o.value[0], 0x1p-144) << rate;
  }
}

// T1 is no bound of the worst case (docs/numerics.md): here all roundings go one way.
TEST(adversarial_float, a_sum_of_weights_that_loses_every_key_but_one_is_beyond_t1) {
  const auto s = with_scores<float>(1, 96, [](auto j) { return j == 0 ? 0 : std::log(4.5e-8); });
  const oracle::Truth truth = oracle::attention(problem_of(s), false).lse;
  EXPECT_NEAR(truth.value[0], 95 * 4.5e-8, 1e-10);
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    EXPECT_EQ(run(s, {.lse = true}).lse.at(0, 0, 0, 0), 0.0F) << heed::name_of(isa);
  }
  EXPECT_NEAR(truth.value[0] / truth.bound[0], 1.79, 0.01);
  EXPECT_TRUE(oracle::roundings_go_one_way(problem_of(s)));
}

/// On every instruction set the output's first number is off by so many of its bounds, and the
/// oracle knows that it may be.
void expect_beyond_t1(const Call<float>& s, double bounds) {
  const oracle::Truth truth = oracle::attention(problem_of(s), false).o;
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    const double error = double{run(s).o.at(0, 0, 0, 0)} - truth.value[0];
    EXPECT_NEAR(std::fabs(error) / truth.bound[0], bounds, 0.01) << heed::name_of(isa);
  }
  EXPECT_TRUE(oracle::roundings_go_one_way(problem_of(s)));
}

TEST(adversarial_float, an_output_that_loses_every_value_but_one_is_beyond_t1) {
  auto s = with_scores<float>(1, 96, [](auto) { return 0; });
  fill(s.v, [](auto j, auto) { return j == 0 ? 0x1p30 : 60; });  // rounded to 0x1p30 each time
  expect_beyond_t1(s, 2.39);
  // The same behind a block of keys without weight.
  auto late = with_scores<float>(1, 192, [](auto j) { return j < 96 ? -kInf<double> : 0; });
  fill(late.v, [](auto j, auto) { return j == 96 ? 0x1p30 : 60; });
  EXPECT_TRUE(oracle::roundings_go_one_way(problem_of(late)));
}

TEST(adversarial_float, products_of_one_sign_and_size_round_alike_and_are_beyond_t1) {
  auto s = plain_call<float>({1, 1, 1, 1, 2, 256, 1}, 54);  // two chains
  fill(s.q, [](auto, auto) { return 1; });
  fill(s.k, [](auto j, auto) { return j == 0 ? 0 : -0.217; });
  fill(s.v, [](auto j, auto) { return j == 0 ? 0 : 1; });
  s.scale = {1};
  expect_beyond_t1(s, 2.18);
}

/// Where the key of the largest score has no value, as where dropout takes it, an output is off by
/// the error of one score, whose chain has partial sums of d / 2 products on average.
TYPED_TEST(adversarial, a_score_whose_products_have_one_sign_is_within_its_bound) {
  auto s = plain_call<TypeParam>({2'000, 1, 1, 1, 2, 128, 1}, 59);
  Random random(60);
  fill(s.q, [](auto, auto) { return 1; });
  fill(s.k, [&](auto j, auto) { return j == 0 ? 0 : -0.5 + 0.01 * random.normal(); });
  fill(s.v, [](auto j, auto) { return j == 0 ? 0 : 1; });
  s.scale = {1};
  expect_truth(s);
  EXPECT_FALSE(oracle::roundings_go_one_way(problem_of(s)));
}

#if defined(__x86_64__)
TYPED_TEST(adversarial, the_callers_float_environment_changes_no_bit_and_survives) {  // A26
  auto s = plain_call<TypeParam>({2, 3, 1, 40, 300, 16, 12}, 50);
  fill(s.v, [](auto j, auto x) {
    return double{std::numeric_limits<TypeParam>::min()} * (double(j % 7) + double(x)) / 16;
  });
  const auto usual = run(s);
  const unsigned before = _mm_getcsr();
  for (const unsigned state :
       {0x8040U /* FTZ, DAZ */, 0x4000U /* up */, 0x2000U /* down */, 0x6000U /* to zero */}) {
    for (const int threads : {1, 4}) {
      _mm_setcsr(before | state);
      const auto r = run(s, {}, {.executor = nullptr, .threads = threads});
      const unsigned after = _mm_getcsr();
      _mm_setcsr(before);
      EXPECT_EQ(after & 0xFFC0U, (before | state) & 0xFFC0U) << "state not restored";
      EXPECT_TRUE(same_bits(r, usual)) << "MXCSR " << std::hex << state;
    }
  }
}
#endif

TYPED_TEST(adversarial, zeros_come_out_positive_and_ties_are_even) {  // A14, A18
  auto s = plain_call<TypeParam>({1, 2, 2, 20, 97, 6, 6}, 51);
  fill(s.v, [](auto, auto) { return -0.0; });
  expect_truth(s);
  fill(s.q, [](auto, auto) { return -0.0; });
  fill(s.v, [](auto j, auto) { return double(j); });
  expect_truth(s, {.lse = true, .weights = true});
  s.scale = {0};
  expect_truth(s);
  s.scale = {-1};
  expect_truth(s);
}

TYPED_TEST(adversarial, the_maximum_may_be_anywhere) {  // A15 to A17
  for (const std::int64_t keys : {17, 96, 97, 191, 769})
    for (const std::int64_t at : {std::int64_t{0}, keys / 2, keys - 1}) {
      expect_truth(with_scores<TypeParam>(3, keys, [&](auto j) { return j == at ? 60.0 : 0.0; }));
      expect_truth(with_scores<TypeParam>(3, keys, [](auto j) { return double(j); }));
      expect_truth(with_scores<TypeParam>(3, keys, [](auto j) { return -double(j); }));
      expect_truth(with_scores<TypeParam>(3, keys, [](auto j) { return double(j % 13) * 9; }));
    }
}

TYPED_TEST(adversarial, cancelling_values_stay_within_bounds) {  // A19
  auto s = plain_call<TypeParam>({1, 1, 1, 20, 1000, 16, 4}, 52);
  fill(s.v, [](auto j, auto) { return j % 2 == 0 ? 1e6 : -1e6; });
  expect_truth(s);
}

TYPED_TEST(adversarial, a_million_keys_and_a_million_queries) {  // A21
  Call<TypeParam> keys = plain_call<TypeParam>({1, 1, 1, 1, 1 << 20, 1, 1}, 53);
  fill(keys.v, [](auto j, auto) { return 0.5 + double(j % 17) / 32; });
  expect_truth(keys);
  // 4099 rows again and again: each has the bits of the first of its kind, which the oracle has
  // seen.
  constexpr std::int64_t kRows = 4099;
  const auto some = plain_call<TypeParam>({1, 1, 1, kRows, 3, 1, 1}, 54);
  expect_truth(some);
  auto queries = some;
  queries.q = Tensor<TypeParam>({1, 1, 1 << 20, 1});
  fill(queries.q, [&](auto i, auto) { return some.q.at(0, 0, i % kRows, 0); });
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    const auto first = run(some), all = run(queries);
    Result<TypeParam> expected = all;
    fill(expected.o, [&](auto i, auto) { return first.o.at(0, 0, i % kRows, 0); });
    fill(expected.lse, [&](auto i, auto) { return first.lse.at(0, 0, i % kRows, 0); });
    EXPECT_TRUE(same_bits(all, expected)) << heed::name_of(isa);
  }
}

TYPED_TEST(adversarial, offsets_equal_rows_and_constant_values) {  // A22, A23
  Random random(55);
  for (const std::int64_t keys : {3, 4095, 65537}) {
    auto s = plain_call<TypeParam>({1, 1, 1, 2, keys, 3, 2}, 56);
    fill(s.k, [](auto, auto) { return 0.25; });
    fill(s.v, [](auto, auto) { return 0.1; });
    expect_truth(s);
    fill(s.v, [&](auto, auto) { return random.uniform(); });
    expect_truth(s);
  }
  auto s = plain_call<TypeParam>({1, 1, 1, 16, 200, 16, 16}, 57);
  for (const double offset : {100.0, 1e4}) {  // of the larger one float32 keeps no digit of e^s
    fill(s.q, [&](auto, auto) { return offset + random.normal(); });
    fill(s.k, [&](auto, auto) { return offset + random.normal(); });
    expect_truth(s);
  }
}

TYPED_TEST(adversarial, a_finite_mask_over_a_whole_row_gives_the_mean_of_v) {  // A24
  using T = TypeParam;
  for (const double low : {-1e9, -double{std::numeric_limits<T>::max()}}) {
    auto s = plain_call<T>({1, 1, 1, 4, 200, 3, 3}, 58);
    if (low == -1e9 && sizeof(T) == 8) s.scale = {0};  // doubles still tell the scores apart
    s.bias = Tensor<double>({1, 1, 4, 200});
    fill(s.bias, [&](auto i, auto j) { return i < 2 || j % 2 == 0 ? low : 0; });
    for (const heed::Isa isa : runnable_isas()) {
      const Forced forced(isa);
      const auto r = run(s);
      for (std::int64_t x = 0; x < 3; ++x) {
        double mean = 0;
        for (std::int64_t j = 0; j < 200; ++j) mean += double{s.v.at(0, 0, j, x)} / 200;
        // 1e9 absorbs scores below 32 in float32: the weights are equal.
        for (std::int64_t i = 0; i < 2; ++i) EXPECT_NEAR(r.o.at(0, 0, i, x), mean, 1e-5) << low;
        EXPECT_TRUE(std::isfinite(r.lse.at(0, 0, 0, 0)));
      }
      // The other rows see odd keys only.
      auto odd = s;
      odd.bias = {};
      odd.keep = Tensor<std::uint8_t>({1, 1, 1, 200});
      fill(odd.keep, [](auto, auto j) { return j % 2; });
      EXPECT_TRUE(same_bits(gathered(run(odd), 2, {2, 3}), gathered(r, 2, {2, 3}))) << low;
    }
  }
}

TYPED_TEST(adversarial, slopes_of_any_size_and_sign) {  // A25
  for (const double slope : {0.0, 1e4, -1e4, 1e-30, -3.0})
    for (const std::int64_t start : {std::int64_t{0}, std::int64_t{-5}, std::int64_t{1} << 40}) {
      auto s = plain_call<TypeParam>({1, 2, 1, 9, 130, 5, 5}, 59);
      s.alibi = {slope, 0.5};
      s.query_start = {start};
      expect_truth(s);
    }
}

TYPED_TEST(adversarial, a_score_mod_that_throws_is_rethrown_and_leaves_heed_usable) {
  const auto s = plain_call<TypeParam>({2, 2, 2, 100, 300, 8, 8}, 60);
  const auto before = run(s);
  heed::AttentionOptions options;
  options.score_mod.f32 = [](const heed::ScoreTile&, const void*) { throw std::string("mine"); };
  options.score_mod.f64 = [](const heed::ScoreTile64&, const void*) { throw std::string("mine"); };
  auto o = before.o;
  for (const int threads : {1, 4}) {
    EXPECT_THROW(heed::attention_forward(s.q.view(), s.k.view(), s.v.view(), {.output = o.out()},
                                         options, {.executor = nullptr, .threads = threads}),
                 std::string);
    EXPECT_TRUE(same_bits(run(s), before));
  }
}

TYPED_TEST(adversarial, eight_callers_at_once_get_the_same_bits) {
  const auto s = plain_call<TypeParam>({2, 4, 2, 60, 400, 16, 16}, 61);
  const auto alone = run(s);
  std::vector<std::thread> threads;
  std::vector<Result<TypeParam>> results(8);
  for (auto& result : results)  // who finds the pool taken computes alone
    threads.emplace_back([&] { result = run(s, {}, {.executor = nullptr, .threads = 4}); });
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_TRUE(same_bits(result, alone));
}

}  // namespace
}  // namespace heed_test

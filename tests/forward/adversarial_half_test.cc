// Inputs that break attention elsewhere, at the edges of float16 and bfloat16 (A7 to A13 and A24 of
// the plan).
// Method: the oracle's bounds on every instruction set, dot products of bfloat16 among them; bits
// where the result is known.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "forward/adversarial.h"
#include "forward/draws.h"
#include "forward/half.h"

namespace heed_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kQuiet = std::numeric_limits<float>::quiet_NaN();

class adversarial_half : public testing::TestWithParam<heed::DType> {
 protected:
  static bool f16() { return GetParam() == heed::DType::f16; }
  static double largest() { return f16() ? 65504 : 0x1.FEp127; }  // 3.39e38
  static double least() { return f16() ? 0x1p-24 : 0x1p-133; }
};

/// Each is another NaN in the types, signalling ones among them, where it is no number cut off.
TEST_P(adversarial_half, every_nan_payload_survives_in_q_k_and_v) {  // A7 to A9
  for (const std::uint32_t bits :
       {0x7F802000U, 0x7F810000U, 0xFFBFE000U, 0x7FC00001U, 0xFFC10000U, 0x7FFFFFFFU, 0xFFFFFFFFU})
    for (int which = 0; which < 3; ++which) {
      auto s = narrowed(plain_call<float>({1, 1, 1, 20, 110, 5, 4}, 45), GetParam());
      const auto nan = std::bit_cast<float>(bits);
      if (which == 0) s.q.at(0, 0, 7, 2) = nan;
      if (which == 1) s.k.at(0, 0, 100, 2) = nan;
      if (which == 2) s.v.at(0, 0, 3, 2) = nan;
      expect_truth(s, {.lse = true, .weights = true, .output = Layout::bhtd, .ones = true});
    }
}

TEST_P(adversarial_half, poison_reaches_exactly_the_rows_that_see_it) {  // A8 to A10
  for (const float poison : {kQuiet, kInf, -kInf})
    for (const std::int64_t at : {0, 5, 63, 95, 96, 99, 191, 192})
      for (const int which : {1, 2}) {
        auto s = narrowed(plain_call<float>({1, 2, 1, 100, 200, 6, 5}, 44), GetParam());
        s.causal = true;
        s.query_start = {100};
        if (which == 1) s.k.at(0, 0, at, 3) = poison;
        if (which == 2) s.v.at(0, 0, at, 3) = poison;
        expect_truth(s, {.lse = true, .weights = true});
      }
}

TEST_P(adversarial_half, infinities_follow_the_rules_of_the_score) {  // A10
  const auto ask = Ask{.lse = true, .weights = true};
  auto s = narrowed(with_scores<float>(3, 100, [](auto j) { return double(j) / 64; }), GetParam());
  s.k.at(0, 0, 40, 0) = -kInf;
  expect_truth(s, ask);          // weight 0
  s.v.at(0, 0, 40, 1) = kQuiet;  // but its v counts as attended
  expect_truth(s, ask);
  s.k.at(0, 0, 40, 0) = kInf;
  expect_truth(s, ask);
  s = narrowed(with_scores<float>(3, 300, [](auto j) { return j < 192 ? -kInf : 0.5F; }),
               GetParam());
  expect_truth(s, ask);  // whole blocks at -inf
  s.v.at(0, 0, 17, 1) = kQuiet;
  expect_truth(s, ask);
  s = narrowed(with_scores<float>(3, 100, [](auto) { return -kInf; }), GetParam());
  expect_truth(s, ask);        // an empty row
  s.q.at(0, 0, 1, 0) = -kInf;  // and one of NaN
  expect_truth(s, ask);
}

TEST_P(adversarial_half, scores_are_finite_up_to_the_largest) {  // A11, A12
  const Ask ask{.lse = true, .weights = true};
  for (const double large :
       {256.0, 65504.0, 1e4, 1e12, 88.7, 103.97, 127 * std::log(2.0), largest()}) {
    if (large > largest()) continue;
    auto s = narrowed(with_scores<float>(4, 200,
                                         [&](auto j) {
                                           return j % 3 == 0 ? large : j % 3 == 1 ? -large : 0.0;
                                         }),
                      GetParam());
    if (large == largest()) s.scale = {0.5};  // times log2 e it is still a number
    expect_truth(s, ask);
    s.causal = true;  // -large first, then 0
    expect_truth(s, ask);
  }
  // 80 products of 256 make 5.2e6, of 65504 3.4e11: beyond float16, and no matter.
  for (const double each : {256.0, 65504.0}) {
    auto s = plain_call<float>({1, 1, 1, 8, 200, 80, 8}, 48);
    fill(s.q, [&](auto i, auto) { return i % 2 == 0 ? each : -each; });
    fill(s.k, [&](auto j, auto) { return j % 5 == 0 ? -each : each; });
    s = narrowed(std::move(s), GetParam());
    s.scale = {1};
    expect_truth(s, ask);
    const auto r = run(s);
    const double score = 80 * double{s.q.at(0, 0, 0, 0)} * double{s.q.at(0, 0, 0, 0)};
    // 160 keys have it. 4 u: c, c times the chain, which is exact, ln 2 and its product.
    EXPECT_NEAR(r.lse.at(0, 0, 0, 0), score + std::log(160.0), score * 0x1p-22);
  }
}

/// Added up in float32, they leave float16's range; their mean does not.
TEST_P(adversarial_half, the_largest_values_come_back) {  // A11
  for (const float value : {float(largest()), float(-largest())}) {
    auto s = plain_call<float>({1, 1, 1, 5, 130, 16, 8}, 49);
    fill(s.v, [&](auto, auto) { return value; });
    s = narrowed(std::move(s), GetParam());
    if (!f16()) s.left = s.right = 0;  // two of bfloat16's are beyond float32, too
    for (const heed::Isa isa : isas_of(GetParam())) {
      const Forced forced(isa);
      const auto r = run(s);
      r.o.each([&](auto b, auto h, auto i, auto x) {
        ASSERT_EQ(r.o.at(b, h, i, x), value) << heed::name_of(isa) << ", " << i << ", " << x;
      });
    }
  }
}

/// Dot products of bfloat16 read them as 0, as docs/numerics.md says.
TEST_P(adversarial_half, subnormals_are_numbers) {  // A13
  auto s = plain_call<float>({1, 1, 1, 6, 4, 5, 6}, 49);
  fill(s.v, [&](auto j, auto x) { return least() * double(4 * (j + x) + 4); });
  fill(s.k, [](auto, auto) { return 0; });  // equal weights of 1/4: the mean is exact
  s = narrowed(std::move(s), GetParam());
  for (const heed::Isa isa : isas_of(GetParam())) {
    const Forced forced(isa);
    const auto r = run(s);
    for (std::int64_t x = 0; x < 6; ++x) {
      const double mean = by_pairs(s) ? 0 : least() * double(4 * x + 10);
      EXPECT_EQ(r.o.at(0, 0, 0, x), mean) << heed::name_of(isa);
    }
  }
  expect_truth(s);
  auto scores = plain_call<float>({1, 1, 1, 6, 4, 5, 6}, 50);
  fill(scores.q, [&](auto i, auto) { return least() * double(i + 1); });
  fill(scores.k, [&](auto j, auto) { return (f16() ? 2e4 : 1e30) * double(j); });
  scores = narrowed(std::move(scores), GetParam());
  scores.scale = {f16() ? 1e3 : 1e10};
  expect_truth(scores, {.lse = true, .weights = true});
}

/// Added in float32, -1e9 and finfo.min of float32 and bfloat16 leave nothing of a score: the
/// weights are equal. float16's leaves a part, so that there all scores are 0.
TEST_P(adversarial_half, a_finite_mask_over_a_whole_row_gives_the_mean_of_v) {  // A24
  struct Mask {
    double low;
    heed::DType dtype;
  };
  constexpr double kLowest = std::numeric_limits<float>::lowest();
  for (const Mask& mask : {Mask{-1e9, heed::DType::f32}, Mask{kLowest, heed::DType::f32},
                           Mask{-largest(), GetParam()}}) {
    auto s = narrowed(plain_call<float>({1, 1, 1, 4, 200, 16, 3}, 58), GetParam());
    if (mask.low == -65504) s.scale = {0};
    s.bias = Tensor<double>({1, 1, 4, 200});
    s.bias_dtype = mask.dtype;
    fill(s.bias, [&](auto i, auto j) { return i < 2 || j % 2 == 0 ? mask.low : 0; });
    // The other rows see odd keys only.
    auto odd = s;
    odd.bias = {};
    odd.keep = Tensor<std::uint8_t>({1, 1, 1, 200});
    fill(odd.keep, [](auto, auto j) { return j % 2; });
    for (const heed::Isa isa : isas_of(GetParam())) {
      const Forced forced(isa);
      SCOPED_TRACE(testing::Message() << heed::name_of(isa) << ", " << mask.low);
      const auto r = run(s);
      for (std::int64_t x = 0; x < 3; ++x) {
        double mean = 0;
        for (std::int64_t j = 0; j < 200; ++j) mean += double{s.v.at(0, 0, j, x)} / 200;
        const double rounded = (f16() ? 0x1p-11 : 0x1p-8) * std::fabs(mean);
        for (std::int64_t i = 0; i < 2; ++i)
          EXPECT_NEAR(r.o.at(0, 0, i, x), mean, rounded + 1e-5) << i << ", " << x;
      }
      for (std::int64_t i = 0; i < 4; ++i) EXPECT_TRUE(std::isfinite(r.lse.at(0, 0, i, 0))) << i;
      EXPECT_TRUE(same_bits(gathered(run(odd), 2, {2, 3}), gathered(r, 2, {2, 3})));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(types, adversarial_half,
                         testing::Values(heed::DType::bf16, heed::DType::f16),
                         [](const auto& one) { return std::string(heed::name_of(one.param)); });

}  // namespace
}  // namespace heed_test

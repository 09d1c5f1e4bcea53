// float16 and bfloat16, widened: the bits of the float32 kernels on the same numbers, each element
// of the output rounded once; and the bounds T1, T3 and T4 of numerics.
// Method: the case matrix, run in both types, and what it gives held to the oracle's bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "forward/draws.h"
#include "forward/executors.h"
#include "forward/guarded.h"
#include "forward/judge.h"
#include "forward/shrink.h"
#include "sanitized.h"

namespace heed_test {
namespace {

class half : public testing::TestWithParam<heed::DType> {};

/// One case in `every`.
Tally judge_all(const std::vector<Case>& cases, std::size_t every, heed::DType dtype) {
  Tally tally;
  for (std::size_t n = 0; n < cases.size() && !testing::Test::HasFailure(); n += every) {
    const std::vector<heed::Isa> isas = runnable_isas();
    const std::span all(isas);
    Tally one;
    judge_and_shrink(cases[n], [&](const Case& c) {
      one = judge_half(c, tally.cases, dtype, tally.cases % 8 == 3 ? all : all.last(1));
    });
    tally += one;
  }
  EXPECT_LE(100 * tally.mistrusted, tally.cases) << "mistrusted cases";
  return tally;
}

TEST_P(half, sizes_lengths_and_masks_have_the_bits_of_float32_rounded_once) {
  const Tally tally = judge_all(core_cases(), 6, GetParam());
  EXPECT_EQ(tally.cases, 369U);
  EXPECT_GE(tally.held_to_t3, 20U);
}
TEST_P(half, layouts_have_the_bits_of_float32_rounded_once) {
  EXPECT_EQ(judge_all(layout_cases(), 1, GetParam()).cases, 121U);
}
TEST_P(half, masks_in_all_types_have_the_bits_of_float32_rounded_once) {
  EXPECT_EQ(judge_all(broadcast_cases(), 1, GetParam()).cases, 160U);
}
TEST_P(half, heads_and_batch_have_the_bits_of_float32_rounded_once) {
  EXPECT_EQ(judge_all(head_cases(), 1, GetParam()).cases, 108U);
}
TEST_P(half, value_classes_have_the_bits_of_float32_rounded_once) {
  EXPECT_EQ(judge_all(value_cases(), 5, GetParam()).cases, 108U);
}
TEST_P(half, scales_have_the_bits_of_float32_rounded_once) {
  EXPECT_EQ(judge_all(scale_cases(), 1, GetParam()).cases, 140U);
}
TEST_P(half, dropout_has_the_bits_of_float32_rounded_once) {
  EXPECT_EQ(judge_all(dropout_cases(), 2, GetParam()).cases, 56U);
}
TEST_P(half, few_rows_have_the_bits_of_float32_rounded_once) {
  const std::size_t every = std::max<std::size_t>(one_in(few_cases().size()), 2);
  EXPECT_EQ(judge_all(few_cases(), every, GetParam()).cases, (few_cases().size() - 1) / every + 1);
}
TEST_P(half, blocks_and_splits_have_the_bits_of_float32_rounded_once) {
  EXPECT_EQ(judge_all(large_cases(10, 20), 1, GetParam()).cases, 20U);
}

/// o = (3 + x - 3 - x) / l, x = e^-1, is what rounding has left, of a sign that follows v's: far
/// below what float16 holds, and a number like others in bfloat16. A 0 that nothing has rounded is
/// +0.
TEST_P(half, what_rounding_left_keeps_its_sign_and_an_exact_zero_is_positive) {
  Call<float> s = plain_call<float>({1, 1, 1, 1, 4, 1, 4}, 64);
  s.scale = {1};
  s.q.at(0, 0, 0, 0) = 1;
  const float v[] = {3, 1, -3, -1};
  for (std::int64_t j = 0; j < 4; ++j) {
    s.k.at(0, 0, j, 0) = j % 2 == 0 ? 0.0F : -1.0F;
    s.v.at(0, 0, j, 0) = v[j];
    s.v.at(0, 0, j, 1) = -v[j];
    s.v.at(0, 0, j, 2) = j % 2 == 0 ? v[j] : -0.0F;
    s.v.at(0, 0, j, 3) = -0.0F;
  }
  const Result<float> wide = run(s);
  ASSERT_NE(wide.o.at(0, 0, 0, 0), 0.0F) << "rounding has left nothing: not what this is about";
  ASSERT_EQ(wide.o.at(0, 0, 0, 0), -wide.o.at(0, 0, 0, 1));
  const Call<float> narrow = narrowed(s, GetParam());
  const Result<float> r = run(narrow, {}, {.reproducible = true});
  for (const std::int64_t x : {0, 1}) {
    EXPECT_EQ(std::signbit(r.o.at(0, 0, 0, x)), std::signbit(wide.o.at(0, 0, 0, x))) << x;
    EXPECT_EQ(r.o.at(0, 0, 0, x) == 0, GetParam() == heed::DType::f16) << x;
  }
  for (const std::int64_t x : {2, 3})
    EXPECT_TRUE(r.o.at(0, 0, 0, x) == 0 && !std::signbit(r.o.at(0, 0, 0, x))) << x;
  EXPECT_GT(expect_truth(narrow), 0);
  Result<float> negative = r;
  negative.o.at(0, 0, 0, 3) = -0.0F;
  EXPECT_FALSE(within_bounds(negative, truth_of(narrow, false))) << "an exact 0 may be -0";
}

/// Half a unit above the largest number of float16, which rounds to infinity, o* may be either; no
/// other number will do, nor infinity for the largest number itself.
TEST(half_judge, an_output_at_the_end_of_float16_may_be_infinite) {
  constexpr float kLargest = 65504;
  Call<float> s = plain_call<float>({1, 1, 1, 1, 1, 1, 1}, 64);
  s.v.at(0, 0, 0, 0) = kLargest;
  const auto will_do = [&s](float output) {
    Result<float> r = run(narrowed(s, heed::DType::f16), {}, {.reproducible = true});
    r.o.at(0, 0, 0, 0) = output;
    return static_cast<bool>(within_bounds(r, truth_of(narrowed(s, heed::DType::f16), false)));
  };
  EXPECT_TRUE(will_do(kLargest) && !will_do(INFINITY));
  s.dropout = {.p = 1 - kLargest / 65520.0,
               .seed = 1};  // the one key is kept, and divided by 1 - p
  EXPECT_TRUE(will_do(kLargest) && will_do(INFINITY));
  EXPECT_FALSE(will_do(-INFINITY) || will_do(65472) || will_do(NAN));
}

TEST_P(half, outputs_that_are_all_too_low_cut_off_or_too_long_are_told) {
  const heed::DType dtype = GetParam();
  const Forced widened(runnable_isas().back());
  const Case c{.dims = {1, 2, 1, 65, 96, 64, 64}, .masking = Masking::causal_at_end};
  const Call<float> call = narrowed(make<float>(c, dtype), dtype);
  const oracle::Answer answer = truth_of(call, false);
  const Result<float> result = run(call);
  EXPECT_TRUE(keeps_t3(c, result, answer, dtype));
  const auto next = [&](double x, bool up) {
    const std::uint16_t bits = encoded(x, dtype);
    return decoded(static_cast<std::uint16_t>(up == (x > 0) ? bits + 1 : bits - 1), dtype);
  };
  Result<float> low = result, cut_off = result, too_long = result;
  std::size_t n = 0;
  result.o.each([&](auto b, auto h, auto i, auto x) {
    const double value = answer.o.value[n++], rounded = nearest(value, dtype);
    ASSERT_NE(rounded, 0);
    const bool away = std::fabs(rounded) > std::fabs(value);
    cut_off.o.at(b, h, i, x) = static_cast<float>(away ? next(rounded, value < 0) : rounded);
    low.o.at(b, h, i, x) = static_cast<float>(next(rounded, false));
    too_long.o.at(b, h, i, x) *= dtype == heed::DType::f16 ? 1 + 64 * 0x1p-11F : 1 + 64 * 0x1p-8F;
  });
  for (const Result<float>* wrong : {&low, &cut_off, &too_long})
    EXPECT_FALSE(keeps_t3(c, *wrong, answer, dtype));
}

// The weights of a call in 16 bits are float32.
TEST_P(half, weights_have_the_same_bits_where_64_threads_share) {
  const Ask ask{.weights = true};
  for (const Masking masking : {Masking::none, Masking::everything}) {
    const auto s = narrowed(for_many_threads<float>(masking, 520, 200), GetParam());
    SCOPED_TRACE(describe(s));
    expect_same_where_64_threads_share(
        [&](const auto& execution) { return run(s, ask, execution); });
  }
}

/// Rows of 16 bits are read some at a time: where one ends a page that cannot be read begins.
TEST_P(half, nothing_beyond_a_tensor_is_touched) {
  for (const heed::Isa isa : isas_of(GetParam())) {
    const Forced forced(isa);
    for (const bool at_end : {false, true})
      for (const std::int64_t size : {1, 3, 5, 8, 17, 32, 33})
        for (const auto& [queries, keys] :
             {std::pair{1, 1}, std::pair{3, 5}, std::pair{17, 97}, std::pair{2, 770}}) {
          const auto s =
              nearest(plain_call<float>({2, 2, 1, queries, keys, size, size == 8 ? 7 : size}, 75),
                      GetParam());
          const Halves q(s.q, GetParam()), k(s.k, GetParam()), v(s.v, GetParam());
          Halves expected({2, 2, queries, s.v.shape[3]}, Layout::bhtd, GetParam());
          heed::attention_forward(q.view(4), k.view(4), v.view(4), {.output = expected.out(4)});
          GuardedCopies copies(at_end);
          const heed::TensorView o =
              copies.of(Halves({2, 2, queries, s.v.shape[3]}, Layout::bhtd, GetParam()).out(4));
          heed::attention_forward(copies.of(q.view(4)), copies.of(k.view(4)), copies.of(v.view(4)),
                                  {.output = o});
          const auto bytes = static_cast<std::size_t>(expected.written("output").count()) * 2;
          EXPECT_EQ(std::memcmp(o.data, expected.out(4).data, bytes), 0)
              << heed::name_of(isa) << ": " << describe(s);
        }
  }
}

INSTANTIATE_TEST_SUITE_P(types, half, testing::Values(heed::DType::bf16, heed::DType::f16),
                         [](const auto& one) { return std::string(heed::name_of(one.param)); });

}  // namespace
}  // namespace heed_test

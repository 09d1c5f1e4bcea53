// The case matrix: every case on every instruction set against the oracle's bounds (T1, T4; of
// normal numbers also T3), all instruction sets against each other bit by bit (D6), and the number
// of cases against a manifest.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>

#include "forward/judge.h"
#include "forward/shrink.h"
#include "sanitized.h"

namespace heed_test {
namespace {

constexpr std::size_t kMostReports = 20;

/// All cases of a block; after many failures it stops, since the rest says nothing new.
template <typename T>
Tally judge_all(const std::vector<Case>& cases, std::size_t manifest) {
  const std::size_t every = one_in(manifest);
  EXPECT_EQ(cases.size(), manifest);
  Tally tally;
  for (std::size_t n = 0; n < cases.size() && tally.failed < kMostReports; n += every) {
    Tally one;
    judge_and_shrink(cases[n], [&](const Case& some) { one = judge<T>(some, n); });
    tally += one;
  }
  EXPECT_EQ(tally.cases, (manifest + every - 1) / every);
  if (every == 1) {  // T5 is of whole parts
    EXPECT_LE(100 * tally.mistrusted, tally.cases) << "mistrusted cases";
  }
  std::cout << tally.cases << " cases, " << tally.mistrusted << " mistrusted\n";
  return tally;
}

template <typename T>
class matrix : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(matrix, Reals);

TYPED_TEST(matrix, sizes_lengths_and_masks_in_pairs) {
  const Tally tally = judge_all<TypeParam>(core_cases(), 2212);
  const bool whole = tally.cases == 2212;  // under sanitizers a part is judged
  EXPECT_GE(tally.held_to_t3, whole ? 150U : 1U);
}
TYPED_TEST(matrix, layouts_in_pairs) { judge_all<TypeParam>(layout_cases(), 121); }
TYPED_TEST(matrix, masks_broadcast) { judge_all<TypeParam>(broadcast_cases(), 160); }
TYPED_TEST(matrix, heads_and_batch) { judge_all<TypeParam>(head_cases(), 108); }
TYPED_TEST(matrix, value_classes) { judge_all<TypeParam>(value_cases(), 540); }
TYPED_TEST(matrix, scales) { judge_all<TypeParam>(scale_cases(), 140); }
TYPED_TEST(matrix, dropout) { judge_all<TypeParam>(dropout_cases(), 111); }
TYPED_TEST(matrix, few_rows_of_whole_vectors) {
  const auto all = few_cases();
  if (sizeof(TypeParam) == 4) {
    judge_all<TypeParam>(all, 988);
    return;
  }
  std::vector<Case> some;  // float64 has no products of its own for them
  for (std::size_t n = 0; n < all.size(); n += 2) some.push_back(all[n]);
  judge_all<TypeParam>(some, 494);
}

/// What T1 cannot see: it allows each output many roundings, in either direction.
TYPED_TEST(matrix, outputs_that_are_all_too_low_or_all_too_long_are_told) {
  using T = TypeParam;
  constexpr heed::DType kType = heed::detail::dtype_of<T>();
  const Case c{.dims = {1, 2, 1, 65, 96, 64, 64}, .masking = Masking::causal_at_end};
  const Call<T> call = make<T>(c);
  const oracle::Answer answer = oracle::attention(problem_of(call), false);
  const Result<T> result = run(call, {}, {});
  EXPECT_TRUE(keeps_t3(c, result, answer, kType));
  Result<T> low = result, long_ones = result;
  low.o.each([&](auto b, auto h, auto i, auto x) {
    T& o = low.o.at(b, h, i, x);
    o = std::nextafter(o, -std::numeric_limits<T>::infinity());
    long_ones.o.at(b, h, i, x) *= 1 + 32 * std::numeric_limits<T>::epsilon();
  });
  EXPECT_TRUE(within_bounds(low, answer));
  EXPECT_TRUE(within_bounds(long_ones, answer));
  EXPECT_FALSE(keeps_t3(c, low, answer, kType));
  EXPECT_FALSE(keeps_t3(c, long_ones, answer, kType));
}

TEST(matrix_large, blocks_and_splits_float32) { judge_all<float>(large_cases(40, 160), 160); }
TEST(matrix_large, blocks_and_splits_float64) { judge_all<double>(large_cases(4, 40), 40); }

}  // namespace
}  // namespace heed_test

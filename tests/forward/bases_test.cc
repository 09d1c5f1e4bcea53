// Some of the bitwise bases, of which tests/full has all: no number of threads, no place in a
// batch, no company of rows and no padding changes a bit, in any type; instruction sets by turns.
#include "forward/bases.h"

#include <gtest/gtest.h>

namespace heed_test {
namespace {

class bases : public testing::TestWithParam<heed::DType> {};

TEST_P(bases, of_a_slice_keep_their_bits) {
  constexpr std::size_t kEvery = 107;  // has no divisor in common with lengths, maskings and sizes
  std::size_t next = static_cast<std::size_t>(GetParam()), count = 0, compared = 0, busy = 0;
  for (std::size_t size = 0; size < kBaseSizes; ++size) {
    const std::vector<Case> all = bases_of_size(size);
    for (; next < all.size() && !HasFailure(); next += kEvery, ++count) {
      const Compared now = compare_base(all[next], GetParam(), next);
      compared += now.all;
      busy += now.busy;
    }
    next -= std::min(next, all.size());
  }
  EXPECT_GE(count, 10U);
  EXPECT_EQ(compared, count * kComparisons);
  EXPECT_GE(busy, count * kBaseThreads * 9 / 10);
}

INSTANTIATE_TEST_SUITE_P(types, bases,
                         testing::Values(heed::DType::f32, heed::DType::f64, heed::DType::f16,
                                         heed::DType::bf16),
                         [](const auto& one) { return std::string(heed::name_of(one.param)); });

}  // namespace
}  // namespace heed_test

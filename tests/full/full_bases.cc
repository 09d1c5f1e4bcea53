// All bitwise bases, one test for each type and size of heads: minutes.
// ./dev test --full runs them one by one and keeps what each found.
#include <gtest/gtest.h>

#include "forward/bases.h"

namespace heed_test {
namespace {

class full_bases : public testing::TestWithParam<std::tuple<std::size_t, std::size_t>> {};

constexpr heed::DType kTypes[] = {heed::DType::f32, heed::DType::f64, heed::DType::f16,
                                  heed::DType::bf16};
constexpr const char* kNames[] = {"f32", "f64", "f16", "bf16"};
constexpr int kMostReports = 20;

TEST_P(full_bases, keep_their_bits) {
  const auto& [type, size] = GetParam();
  const std::vector<Case> bases = bases_of_size(size);
  std::size_t count = 0, busy = 0;
  for (std::size_t n = 0; n < bases.size(); ++n) {
    const Compared now = compare_base(bases[n], kTypes[type], n);
    count += now.all;
    busy += now.busy;
    const auto* const result = testing::UnitTest::GetInstance()->current_test_info()->result();
    if (result->total_part_count() >= kMostReports) break;  // the rest would say nothing new
  }
  RecordProperty("cases", static_cast<int>(count));
  EXPECT_EQ(count, kBasesOfSize * kComparisons);
  EXPECT_GE(busy, kBasesOfSize * kBaseThreads * 9 / 10);
}

INSTANTIATE_TEST_SUITE_P(bases, full_bases,
                         testing::Combine(testing::Range(std::size_t{0}, std::size(kTypes)),
                                          testing::Range(std::size_t{0}, kBaseSizes)),
                         [](const auto& one) {
                           const Dims d = bases_of_size(std::get<1>(one.param))[0].dims;
                           return std::string(kNames[std::get<0>(one.param)]) + "_d" +
                                  std::to_string(d.size) + "x" + std::to_string(d.value_size);
                         });

}  // namespace
}  // namespace heed_test

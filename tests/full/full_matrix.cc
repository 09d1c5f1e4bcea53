// The whole core block of the case matrix, one test for each type and size of heads: hours.
// ./dev test --full runs them one by one and keeps what each found.
#include <gtest/gtest.h>

#include "forward/judge.h"

namespace heed_test {
namespace {

enum class Type { f32, f64, f16, bf16, bf16_dots };
constexpr const char* kNames[] = {"f32", "f64", "f16", "bf16", "bf16_dots"};

class full_matrix : public testing::TestWithParam<std::tuple<int, std::size_t>> {};

constexpr int kMostReports = 20;

TEST_P(full_matrix, holds) {
  const auto type = static_cast<Type>(std::get<0>(GetParam()));
  const std::vector<Case> cases = all_core_cases(std::get<1>(GetParam()));
  const std::vector<heed::Isa> isas = runnable_isas();
  if (type == Type::bf16_dots) {
    heed::cap_instruction_set(kPaired);
    if (heed::instruction_set() != kPaired) {
      GTEST_SKIP() << "this CPU has no dot products of bfloat16 (" << heed::name_of(kPaired) << ")";
    }
  }
  Tally tally;
  for (std::size_t n = 0; n < cases.size(); ++n) {
    const Case& c = cases[n];
    Tally one{1, 0, 0};
    if (type == Type::f32) one = judge<float>(c, n);
    if (type == Type::f64) one = judge<double>(c, n);
    if (type == Type::f16) judge_half(c, n, heed::DType::f16, isas);
    if (type == Type::bf16) judge_half(c, n, heed::DType::bf16, isas);
    if (type == Type::bf16_dots) judge_paired(c, n);
    tally += one;
    const auto* const result = testing::UnitTest::GetInstance()->current_test_info()->result();
    if (result->total_part_count() >= kMostReports) break;  // the rest would say nothing new
  }
  RecordProperty("cases", static_cast<int>(tally.cases));
  RecordProperty("mistrusted", static_cast<int>(tally.mistrusted));
  EXPECT_EQ(tally.cases, cases.size());
}

INSTANTIATE_TEST_SUITE_P(core, full_matrix,
                         testing::Combine(testing::Range(0, 5),
                                          testing::Range(std::size_t{0}, kCoreSizes)),
                         [](const auto& one) {
                           const Dims d = all_core_cases(std::get<1>(one.param))[0].dims;
                           return std::string(kNames[std::get<0>(one.param)]) + "_d" +
                                  std::to_string(d.size) + "x" + std::to_string(d.value_size);
                         });

}  // namespace
}  // namespace heed_test

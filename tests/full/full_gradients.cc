// The block of gradients, one test for each type and size of heads: minutes.
// ./dev test --full runs them one by one and keeps what each found.
#include <gtest/gtest.h>

#include "backward/judge.h"

namespace heed_test {
namespace {

constexpr int kMostReports = 20;

/// judge(case, n) of all of them, as many as the manifest says.
template <typename Judge>
void judge_all(const std::vector<Case>& cases, const Judge& judge) {
  std::size_t count = 0;
  for (; count < cases.size(); ++count) {
    judge(cases[count], count);
    const auto* const result = testing::UnitTest::GetInstance()->current_test_info()->result();
    if (result->total_part_count() >= kMostReports) break;  // the rest would say nothing new
  }
  testing::Test::RecordProperty("cases", static_cast<int>(count));
  EXPECT_EQ(count, kGradientsOfSize);
}

std::string name_of_size(const std::string& type, const std::vector<Case>& cases) {
  const Dims& d = cases[0].dims;
  return type + "_d" + std::to_string(d.size) + "x" + std::to_string(d.value_size);
}

class full_steps : public testing::TestWithParam<std::size_t> {};

TEST_P(full_steps, hold) {
  judge_all(step_cases(GetParam()), [](const Case& c, std::size_t n) { judge_steps(c, n); });
}

INSTANTIATE_TEST_SUITE_P(gradients, full_steps, testing::Range(std::size_t{0}, kStepSizes),
                         [](const auto& one) {
                           return name_of_size("f64", step_cases(one.param));
                         });

enum class Type { f32, f16, bf16 };
constexpr const char* kNames[] = {"f32", "f16", "bf16"};

class full_gradients : public testing::TestWithParam<std::tuple<int, std::size_t>> {};

TEST_P(full_gradients, hold) {
  const auto type = static_cast<Type>(std::get<0>(GetParam()));
  judge_all(gradient_cases(std::get<1>(GetParam())), [&](const Case& c, std::size_t n) {
    if (type == Type::f32) judge_gradients<float>(c, n);
    if (type == Type::f16) judge_half_gradients(c, heed::DType::f16);
    if (type == Type::bf16) judge_half_gradients(c, heed::DType::bf16);
  });
}

INSTANTIATE_TEST_SUITE_P(gradients, full_gradients,
                         testing::Combine(testing::Range(0, 3),
                                          testing::Range(std::size_t{0}, kGradientSizes)),
                         [](const auto& one) {
                           return name_of_size(kNames[std::get<0>(one.param)],
                                               gradient_cases(std::get<1>(one.param)));
                         });

}  // namespace
}  // namespace heed_test

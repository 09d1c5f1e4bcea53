// The whole core block of the case matrix, one test for each type and size of heads: hours.
// ./dev test --full runs them one by one and keeps what each found.
#include "judge_as.h"

namespace heed_test {
namespace {

class full_matrix : public testing::TestWithParam<std::tuple<int, std::size_t>> {};

TEST_P(full_matrix, holds) {
  judge_all_as(static_cast<Type>(std::get<0>(GetParam())), all_core_cases(std::get<1>(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(core, full_matrix,
                         testing::Combine(testing::Range(0, 5),
                                          testing::Range(std::size_t{0}, kCoreSizes)),
                         [](const auto& one) {
                           const Dims d = all_core_cases(std::get<1>(one.param))[0].dims;
                           return std::string(kTypes[std::get<0>(one.param)]) + "_d" +
                                  std::to_string(d.size) + "x" + std::to_string(d.value_size);
                         });

}  // namespace
}  // namespace heed_test

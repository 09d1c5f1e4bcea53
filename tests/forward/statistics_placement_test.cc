// Where statistics of rows lie: against unreadable pages, ahead and behind, all ten together and
// each alone.
// Method: the same bytes as in ordinary memory, in every type; anything read or written outside
// faults.
#include <gtest/gtest.h>

#include "forward/between_guards.h"

namespace heed_test {
namespace {

/// Statistic n, or all of them, beside output and lse.
template <typename T>
void expect_nothing_beyond(const Call<T>& s, heed::DType dtype, std::size_t n) {
  const Dims d = s.dims();
  const Told<T> told(s);
  EXPECT_TRUE(same_elsewhere([&](Memory& at) {
    const heed::RowStatistics statistics = some_statistics(at, dtype, d, n);
    const heed::ForwardOutputs outputs{
        .output = at.result(dtype, {d.batch, d.heads, d.queries, d.value_size}),
        .lse = at.result(wide(dtype), {d.batch, d.heads, d.queries}),
        .statistics = &statistics};
    heed::attention_forward(at.input(s.q, dtype), at.input(s.k, dtype), at.input(s.v, dtype),
                            outputs, at.options(told.options));
  })) << "statistic "
      << n;
}

class statistics_placement : public testing::TestWithParam<heed::DType> {};

TEST_P(statistics_placement, nothing_beyond_a_tensor_is_touched) {
  std::size_t count = 0;
  const auto expect = [&](const auto& s) {
    expect_nothing_beyond(s, GetParam(), std::size(kStatistics));
    expect_nothing_beyond(s, GetParam(), count++ % std::size(kStatistics));
  };
  each_odd_call(GetParam(), expect);
  EXPECT_GE(count, 5 * std::size(kStatistics));  // of one instruction set alone
}

INSTANTIATE_TEST_SUITE_P(types, statistics_placement, testing::ValuesIn(kFloating),
                         [](const auto& one) { return std::string(heed::name_of(one.param)); });

}  // namespace
}  // namespace heed_test

// Where statistics of rows lie: against unreadable pages, ahead and behind, and with heads far
// apart, all ten together and each alone.
// Method: the same bytes as in ordinary memory, in every type; anything read or written outside
// faults.
#include <gtest/gtest.h>

#include "forward/between_guards.h"

namespace heed_test {
namespace {

/// Statistic n, or all of them, beside output and lse.
template <typename T>
void expect_same(Elsewhere where, const Call<T>& s, heed::DType dtype, std::size_t n) {
  const Dims d = s.dims();
  const Told<T> told(s);
  EXPECT_TRUE(same_elsewhere(
      where,
      [&](Memory& at) {
        const heed::RowStatistics statistics = some_statistics(at, dtype, d, n);
        const heed::ForwardOutputs outputs{
            .output = at.result(dtype, {d.batch, d.heads, d.queries, d.value_size}),
            .lse = at.result(wide(dtype), {d.batch, d.heads, d.queries}),
            .statistics = &statistics};
        heed::attention_forward(at.input(s.q, dtype), at.input(s.k, dtype), at.input(s.v, dtype),
                                outputs, at.options(told.options));
      }))
      << "statistic " << n;
}

void expect_same_of_odd_calls(Elsewhere where, heed::DType dtype) {
  std::size_t count = 0;
  each_odd_call(dtype, [&](const auto& s) {
    expect_same(where, s, dtype, std::size(kStatistics));
    expect_same(where, s, dtype, count++ % std::size(kStatistics));
  });
  // So often each statistic is asked for alone, of one instruction set alone.
  EXPECT_GE(count, (sanitized() ? 1 : 5) * std::size(kStatistics));
}

class statistics_placement : public testing::TestWithParam<heed::DType> {};

TEST_P(statistics_placement, nothing_beyond_a_tensor_is_touched) {
  expect_same_of_odd_calls(Elsewhere::between_guards, GetParam());
}

TEST_P(statistics_placement, heads_may_lie_further_apart_than_32_bits) {  // A20
  expect_same_of_odd_calls(Elsewhere::heads_far_apart, GetParam());
}

INSTANTIATE_TEST_SUITE_P(types, statistics_placement, testing::ValuesIn(kFloating),
                         [](const auto& one) { return std::string(heed::name_of(one.param)); });

}  // namespace
}  // namespace heed_test

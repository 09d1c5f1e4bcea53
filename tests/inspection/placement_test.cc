// Where tensors of inspect_weights lie: against unreadable pages, ahead and behind, inputs where
// nothing can be written, and with heads far apart.
// Method: the same bytes as from ordinary memory, in every type; anything else faults.
#include <gtest/gtest.h>

#include "forward/between_guards.h"

namespace heed_test {
namespace {

/// All views at once.
template <typename T>
void expect_same(Elsewhere where, const Call<T>& s, heed::DType dtype) {
  const Dims d = s.dims();
  const std::int64_t rows[] = {d.queries - 1, 0, d.queries / 2};
  const Tensor<T> lse = run(s).lse;
  const Told<T> told(s);
  const std::int64_t cells = std::min<std::int64_t>(d.queries, 3),
                     columns = std::min<std::int64_t>(d.keys, 4);
  EXPECT_TRUE(same_elsewhere(where, [&](Memory& at) {
    const auto numbers = [&](auto... shape) {
      return at.result(wide(dtype), {d.batch, d.heads, shape...});
    };
    const auto counts = [&](auto... shape) {
      return at.result(heed::DType::i64, {d.batch, d.heads, shape...});
    };
    const heed::WeightViews views{.rows = at.input(heed::view(&rows[0], {3})),
                                  .row_weights = numbers(3, d.keys),
                                  .row_scores = numbers(3, d.keys),
                                  .top_keys = counts(d.queries, 5),
                                  .top_weights = numbers(d.queries, 5),
                                  .top_mass = numbers(d.queries),
                                  .column_sums = numbers(d.keys),
                                  .mean_map = numbers(cells, columns),
                                  .lift_map = numbers(cells, columns),
                                  .distance_mass = numbers(9),
                                  .score_histogram = counts(7),
                                  .score_low = -3,
                                  .score_high = 3};
    heed::inspect_weights({.q = at.input(s.q, dtype),
                           .k = at.input(s.k, dtype),
                           .lse = at.input(without_last_axis(lse.view()))},
                          views, at.options(told.options));
  }));
}

class inspect_placement : public testing::TestWithParam<heed::DType> {};

TEST_P(inspect_placement, nothing_beyond_a_tensor_is_touched_and_no_input_written) {
  each_odd_call(GetParam(),
                [](const auto& s) { expect_same(Elsewhere::between_guards, s, GetParam()); });
}

TEST_P(inspect_placement, heads_may_lie_further_apart_than_32_bits) {  // A20
  each_odd_call(GetParam(),
                [](const auto& s) { expect_same(Elsewhere::heads_far_apart, s, GetParam()); });
}

INSTANTIATE_TEST_SUITE_P(types, inspect_placement, testing::ValuesIn(kFloating),
                         [](const auto& one) { return std::string(heed::name_of(one.param)); });

}  // namespace
}  // namespace heed_test

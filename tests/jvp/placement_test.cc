// Where tensors of the forward-mode derivative lie: against unreadable pages, ahead and behind, and
// with heads far apart.
// Method: the same bytes as from ordinary memory, in every type; anything read or written outside
// faults.
#include <gtest/gtest.h>

#include "forward/between_guards.h"
#include "jvp/support.h"

namespace heed_test {
namespace {

template <typename T>
void expect_same(Elsewhere where, const Call<T>& s, heed::DType dtype) {
  const Dims d = s.dims();
  const Result<T> forward = run(s);
  const Motion<T> m = draw_motion(s, 99);
  const Told<T> told(s);
  EXPECT_TRUE(same_elsewhere(where, [&](Memory& at) {
    const heed::TensorView o = at.result(dtype, {d.batch, d.heads, d.queries, d.value_size});
    const heed::TensorView lse = at.result(wide(dtype), {d.batch, d.heads, d.queries});
    heed::attention_jvp({.q = at.input(s.q, dtype),
                         .k = at.input(s.k, dtype),
                         .v = at.input(s.v, dtype),
                         .output = at.input(forward.o, dtype),
                         .lse = at.input(without_last_axis(forward.lse.view()))},
                        {.q = at.input(m.q, dtype),
                         .k = at.input(m.k, dtype),
                         .v = at.input(m.v, dtype),
                         .bias = at.input(m.bias.view())},
                        {.output = o, .lse = lse}, at.options(told.options));
  }));
}

class jvp_placement : public testing::TestWithParam<heed::DType> {};

TEST_P(jvp_placement, nothing_beyond_a_tensor_is_touched) {
  each_odd_call(GetParam(),
                [](const auto& s) { expect_same(Elsewhere::between_guards, s, GetParam()); });
}

TEST_P(jvp_placement, heads_may_lie_further_apart_than_32_bits) {  // A20
  each_odd_call(GetParam(),
                [](const auto& s) { expect_same(Elsewhere::heads_far_apart, s, GetParam()); });
}

INSTANTIATE_TEST_SUITE_P(types, jvp_placement, testing::ValuesIn(kFloating),
                         [](const auto& one) { return std::string(heed::name_of(one.param)); });

}  // namespace
}  // namespace heed_test

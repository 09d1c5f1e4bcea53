// Derivatives in float16 and bfloat16: the bits of the float32 kernels on the same numbers, dq, dk, dv and
// the moved output rounded once, all other results in float32. Method: cases of the matrix in both types.
#include "forward/half.h"

#include <gtest/gtest.h>

#include "backward/support.h"
#include "jvp/support.h"

namespace heed_test {
namespace {

class half_gradients : public testing::TestWithParam<heed::DType> {
 protected:
  /// One case in `every` of those whose numbers the types hold.
  template <typename Judge>
  void judge_all(const std::vector<Case>& cases, std::size_t every, const Judge& judge) {
    int count = 0;
    for (std::size_t n = 0; n < cases.size() && !HasFailure(); n += every, ++count) {
      Call<float> call = make<float>(cases[n]);
      call.fewer_axes = false;
      judge(nearest(std::move(call), GetParam()), cases[n], n);
    }
    EXPECT_GT(count, 0);
  }
};

/// A view without its last axis, of length 1.
template <typename View>
View rows_of(View view) {
  --view.rank;
  return view;
}

Gradients<float> run_half_backward(const Call<float>& s, const Result<float>& forward,
                                   const Tensor<float>& d_output, Layout layout,
                                   heed::DType dtype) {
  const Halves q(s.q, dtype), k(s.k, dtype), v(s.v, dtype), o(forward.o, dtype), g(d_output, dtype);
  Halves dq(s.q.shape, layout, dtype), dk(s.k.shape, layout, dtype), dv(s.v.shape, layout, dtype);
  const Dims d = s.dims();
  Gradients<float> r;
  r.ds_norms = Tensor<float>({d.batch, d.heads, d.queries, 1});
  heed::Gradients to{.dq = dq.out(s.rank),
                     .dk = dk.out(s.rank),
                     .dv = dv.out(s.rank),
                     .ds_norms = rows_of(r.ds_norms.out(s.rank))};
  const auto numbers = [&](Tensor<float>& t) {
    t = Tensor<float>({1, 1, 1, d.heads});
    return heed::view(t.memory.data(), {d.heads});
  };
  to.dscale = numbers(r.dscale);
  if (!s.alibi.empty()) to.dalibi = numbers(r.dalibi);
  if (!s.sinks.empty()) to.dsinks = numbers(r.dsinks);
  if (s.bias.present()) r.dbias = Tensor<float>(s.bias.shape), to.dbias = r.dbias.out(s.rank);
  const Told<float> told(s);
  heed::attention_backward({.q = q.view(s.rank),
                            .k = k.view(s.rank),
                            .v = v.view(s.rank),
                            .output = o.view(s.rank),
                            .lse = rows_of(forward.lse.view(s.rank)),
                            .d_output = g.view(s.rank)},
                           to, told.options);
  r.dq = dq.written("dq");
  r.dk = dk.written("dk");
  r.dv = dv.written("dv");
  return r;
}

TEST_P(half_gradients, have_the_bits_of_float32_rounded_once) {
  const heed::DType dtype = GetParam();
  const auto judge = [&](const Call<float>& s, const Case& c, std::size_t) {
    Result<float> forward = run(s);
    forward.o = nearest(std::move(forward.o), dtype);
    const auto g = nearest(draw_d_output(s, c.seed ^ 77, c.output), dtype);
    Gradients<float> wide = run_backward(s, forward, g);
    for (Tensor<float>* t : {&wide.dq, &wide.dk, &wide.dv}) *t = nearest(std::move(*t), dtype);
    const auto got = run_half_backward(s, forward, g, c.output, dtype);
    EXPECT_TRUE(same_bits(got, wide)) << describe(s);
  };
  judge_all(core_cases(), 13, judge);
  judge_all(layout_cases(), 2, judge);
  judge_all(head_cases(), 3, judge);
  judge_all(broadcast_cases(), 5, judge);
  judge_all(value_cases(), 7, judge);
}

TEST_P(half_gradients, of_forward_mode_have_the_bits_of_float32_rounded_once) {
  const heed::DType dtype = GetParam();
  const auto judge = [&](const Call<float>& s, const Case& c, std::size_t n) {
    Result<float> forward = run(s);
    forward.o = nearest(std::move(forward.o), dtype);
    Motion<float> m = draw_motion(s, c.seed ^ 55, c.q);
    if (n % 3 != 0) m.bias = {};
    for (Tensor<float>* t : {&m.q, &m.k, &m.v}) *t = nearest(std::move(*t), dtype);
    MovedResult<float> wide = run_jvp(s, forward, m);
    wide.o = nearest(std::move(wide.o), dtype);
    const Halves q(s.q, dtype), k(s.k, dtype), v(s.v, dtype), o(forward.o, dtype);
    const Halves mq(m.q, dtype), mk(m.k, dtype), mv(m.v, dtype);
    Halves moved(forward.o.shape, c.output, dtype);
    MovedResult<float> got{{}, Tensor<float>(forward.lse.shape)};
    const Told<float> told(s);
    heed::attention_jvp({.q = q.view(s.rank),
                         .k = k.view(s.rank),
                         .v = v.view(s.rank),
                         .output = o.view(s.rank),
                         .lse = rows_of(forward.lse.view(s.rank))},
                        {.q = mq.view(s.rank),
                         .k = mk.view(s.rank),
                         .v = mv.view(s.rank),
                         .bias = m.bias.present() ? m.bias.view(s.rank) : heed::ConstTensorView{}},
                        {.output = moved.out(s.rank), .lse = rows_of(got.lse.out(s.rank))},
                        told.options);
    got.o = moved.written("output");
    EXPECT_TRUE(same_bits(got, wide)) << describe(s);
  };
  judge_all(core_cases(), 13, judge);
  judge_all(layout_cases(), 2, judge);
  judge_all(head_cases(), 3, judge);
}

INSTANTIATE_TEST_SUITE_P(types, half_gradients,
                         testing::Values(heed::DType::bf16, heed::DType::f16),
                         [](const auto& one) { return std::string(heed::name_of(one.param)); });

}  // namespace
}  // namespace heed_test

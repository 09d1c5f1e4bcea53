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

/// The oracle's gradients, and what an output in the type may cost, since it enters D: its own rounding,
/// and that of P where it comes from dot products of bfloat16.
oracle::Gradients truth_of(const Call<float>& s, const Tensor<float>& g, heed::DType dtype) {
  const double unit = dtype == heed::DType::f16 ? 0x1p-11 : 0x1p-8;
  const double least = dtype == heed::DType::f16 ? 0x1p-24 : 0x1p-133;
  oracle::Gradients truth = true_gradients(s, g);
  const oracle::Answer answer = oracle::attention(problem_of(s), true);
  Call<float> sizes = s;
  for (float& x : sizes.v.memory) x = std::fabs(x);
  const oracle::Answer m = oracle::attention(problem_of(sizes), false);
  const Dims d = s.dims();
  const double scale =
      std::fabs(s.scale.empty() ? 1 / std::sqrt(static_cast<double>(d.size)) : s.scale[0]);
  std::vector<double> more_q(truth.dq.value.size()), more_k(truth.dk.value.size());
  g.each([&](auto b, auto h, auto i, auto x) {
    if (x != 0) return;
    const auto row = static_cast<std::size_t>((b * d.heads + h) * d.queries + i);
    const auto kv = h / (d.heads / d.kv_heads);
    double sum = 0;  // of |dO| (|o| + m) in the row
    for (std::int64_t y = 0; y < d.value_size; ++y) {
      const auto at = row * static_cast<std::size_t>(d.value_size) + static_cast<std::size_t>(y);
      const double error =
          std::fabs(answer.o.value[at]) + (dtype == heed::DType::bf16 ? m.o.value[at] : 0.0);
      sum += std::fabs(double{g.at(b, h, i, y)}) * error;
    }
    for (std::int64_t j = 0; j < d.keys; ++j) {
      const auto place = row * static_cast<std::size_t>(d.keys) + static_cast<std::size_t>(j);
      const double p = unit * scale * sum * answer.weights.value[place];
      for (std::int64_t y = 0; y < d.size; ++y) {
        const auto c = static_cast<std::size_t>(y);
        const auto of_q = row * static_cast<std::size_t>(d.size) + c;
        const auto of_k = static_cast<std::size_t>((b * d.kv_heads + kv) * d.keys + j) *
                              static_cast<std::size_t>(d.size) +
                          c;
        more_q[of_q] += p * std::fabs(double{s.k.at(b, kv, j, y)});
        more_k[of_k] += p * std::fabs(double{s.q.at(b, h, i, y)});
      }
    }
  });
  for (std::size_t n = 0; n < more_q.size(); ++n) truth.dq.bound[n] += more_q[n];
  for (std::size_t n = 0; n < more_k.size(); ++n) truth.dk.bound[n] += more_k[n];
  for (oracle::Truth* t : {&truth.dq, &truth.dk, &truth.dv}) {
    for (std::size_t n = 0; n < t->value.size(); ++n) {
      t->bound[n] += unit * (std::fabs(t->value[n]) + t->bound[n]) + least;
    }
  }
  return truth;
}

// Forward in the type, by dot products of bfloat16 where the CPU has them, then backward on its results.
TEST_P(half_gradients, of_a_forward_pass_in_the_type_are_within_bounds) {
  const heed::DType dtype = GetParam();
  heed::cap_instruction_set(kPaired);
  const auto judge = [&](const Call<float>& s, const Case& c, std::size_t) {
    if (c.masking == Masking::normalized || c.masking == Masking::everything) return;
    const auto g = nearest(draw_d_output(s, c.seed ^ 77), dtype);
    const Result<float> forward = run_half(s, dtype);
    Gradients<float> got = run_half_backward(s, forward, g, Layout::bhtd, dtype);
    for (Tensor<float>* t : {&got.dq, &got.dk, &got.dv}) {
      for (float& x : t->memory) x += 0.0f;  // -0 is what a tiny number may be rounded to
    }
    got.dbias = got.dscale = got.dalibi = got.dsinks = got.ds_norms = {};
    EXPECT_TRUE(within_bounds(s, got, truth_of(s, g, dtype))) << describe(s);
  };
  judge_all(core_cases(), 13, judge);
  judge_all(head_cases(), 2, judge);
}

INSTANTIATE_TEST_SUITE_P(types, half_gradients,
                         testing::Values(heed::DType::bf16, heed::DType::f16),
                         [](const auto& one) { return std::string(heed::name_of(one.param)); });

}  // namespace
}  // namespace heed_test

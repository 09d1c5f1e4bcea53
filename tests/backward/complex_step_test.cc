// float64 gradients against derivatives that know no formula.
// Method: complex steps of the oracle, 1e-13 of the largest element; on large shapes central
// differences of heed's own forward pass along random directions; and gradients of a sum of output
// gradients, which are the sum of theirs. That the backward pass is the adjoint of the derivative
// along a direction, tests/jvp shows.
#include <gtest/gtest.h>

#include <cmath>

#include "backward/judge.h"
#include "forward/draws.h"
#include "sanitized.h"

namespace heed_test {
namespace {

TEST(backward_float64, equals_complex_steps_for_every_masking) {
  for (int masking = 0; masking < kMaskings; ++masking) {
    Case c;
    c.dims = {2, 4, 2, 6, 9, 5, 4};
    c.masking = static_cast<Masking>(masking);
    c.seed = 300 + static_cast<std::uint64_t>(masking);
    c.mask_axes = masking % 2 == 0 ? 15 : 7;
    judge_steps(make<double>(c), c.seed);
  }
}

TEST(backward_float64, equals_complex_steps_for_every_scaling) {
  for (int scaling = 0; scaling < kScalings; ++scaling)
    for (const Masking masking : {Masking::none, Masking::normalized, Masking::everything}) {
      Case c;
      c.dims = {1, 4, 2, 5, 7, 3, 3};
      c.masking = masking;
      c.scaling = static_cast<Scaling>(scaling);
      c.seed = 400 + static_cast<std::uint64_t>(scaling);
      // Of huge ones a score's own rounding, u |s|, is more than 1e-13 of its weight, in steps too.
      if (c.scaling != Scaling::huge) judge_steps(make<double>(c), c.seed);
    }
}

TEST(backward_float64, equals_complex_steps_for_every_broadcast_of_bias) {
  for (int axes = 0; axes < 16; ++axes) {
    Case c;
    c.dims = {2, 4, 2, 4, 6, 3, 2};
    c.masking = Masking::bias_masking;
    c.mask_axes = axes;
    c.seed = 500 + static_cast<std::uint64_t>(axes);
    judge_steps(make<double>(c), c.seed);
  }
}

TEST(backward_float64, equals_complex_steps_through_a_bent_score_mod) {
  auto s = plain_call<double>({1, 2, 1, 6, 8, 4, 3}, 51);
  s.mod = Mod::bend;
  judge_steps(s, 1);
  s.softcap = 1.5;
  s.normalize_qk = true;
  s.scale = {4};
  s.alibi = {0.25, 0.5};
  judge_steps(s, 2);
}

TEST(backward_float64, equals_complex_steps_under_dropout) {
  for (const Masking masking : {Masking::none, Masking::causal, Masking::everything}) {
    Case c;
    c.dims = {2, 4, 2, 5, 19, 4, 3};
    c.masking = masking;
    c.dropout = 0.3;
    c.seed = 53;
    judge_steps(make<double>(c), c.seed);
  }
}

TEST(backward_float64, equals_complex_steps_on_random_problems) {
  Random random(61);
  for (auto drawn = draws(40); drawn; ++drawn) {
    Case c;
    c.dims.batch = random.between(1, 2);
    c.dims.kv_heads = random.between(1, 2);
    c.dims.heads = c.dims.kv_heads * random.between(1, 2);
    c.dims.queries = random.between(1, 9);
    c.dims.keys = random.between(1, 12);
    c.dims.size = random.between(1, 7);
    c.dims.value_size = random.between(1, 7);
    c.masking = static_cast<Masking>(random.below(kMaskings));
    c.seed = random.bits() >> 1;
    judge_steps(make<double>(c), c.seed);
  }
}

TEST(backward_float64, equals_complex_steps_at_33) {
  auto s = plain_call<double>({1, 1, 1, 33, 33, 17, 33}, 52);
  s.causal = true;
  judge_steps(s, 3);
}

double dot(const Tensor<double>& a, const Tensor<double>& b) {
  double sum = 0;
  a.each([&](auto n, auto h, auto i, auto x) { sum += a.at(n, h, i, x) * b.at(n, h, i, x); });
  return sum;
}

Tensor<double> moved(const Tensor<double>& a, const Tensor<double>& by, double step) {
  Tensor<double> to = a;
  to.each([&](auto n, auto h, auto i, auto x) { to.at(n, h, i, x) += step * by.at(n, h, i, x); });
  return to;
}

Call<double> large_call(Masking masking, std::uint64_t seed) {
  Case c;
  c.dims = {1, 4, 2, 90, 800, 24, 20};  // more than a chunk of keys and a chain of rows
  c.masking = masking;
  c.seed = seed;
  c.mask_axes = 3;
  return make<double>(c);
}

constexpr Tensor<double> Call<double>::*kTensors[] = {&Call<double>::q, &Call<double>::k,
                                                      &Call<double>::v};
constexpr Tensor<double> Gradients<double>::*kGradients[] = {
    &Gradients<double>::dq, &Gradients<double>::dk, &Gradients<double>::dv};

/// <dO, O'(x) u> by central differences against <dx, u>. Of two steps, so that the error of h^2
/// falls out: what is left is 2e-10 at the most, where one step leaves 3e-9 at best.
TEST(backward_float64, equals_central_differences_on_large_shapes) {
  Random random(62);
  for (const Masking masking : {Masking::none, Masking::causal_at_end, Masking::window_causal,
                                Masking::softcap_causal, Masking::everything}) {
    const auto s = large_call(masking, 63);
    const auto g = draw_d_output(s, 64);
    const auto got = run_backward(s, g);
    for (int n = 0; n < (sanitized() ? 2 : 10); ++n) {
      Tensor<double> u[3];
      double slope = 0;
      for (int t = 0; t < 3; ++t) {
        u[t] = Tensor<double>((s.*kTensors[t]).shape);
        fill_normal(u[t], random);
        slope += dot(got.*kGradients[t], u[t]);
      }
      const auto at = [&](double step) {
        Call<double> there = s;
        for (int t = 0; t < 3; ++t) there.*kTensors[t] = moved(s.*kTensors[t], u[t], step);
        return dot(g, run(there).o);
      };
      const double h = 3e-4;
      const double near = (at(h) - at(-h)) / (2 * h), far = (at(2 * h) - at(-2 * h)) / (4 * h);
      EXPECT_NEAR(slope, (4 * near - far) / 3, 1e-8 * (1 + std::fabs(slope))) << describe(s);
    }
  }
}

/// The gradient is linear in dO: <J'g1, u> + <J'g2, u> = <J'(g1 + g2), u>.
TEST(backward_float64, is_linear_in_d_output) {
  const auto s = large_call(Masking::everything, 65);
  const auto g1 = draw_d_output(s, 66), g2 = draw_d_output(s, 67);
  const auto a = run_backward(s, g1), b = run_backward(s, g2),
             sum = run_backward(s, moved(g1, g2, 1));
  const auto expect_sum = [](const Tensor<double>& x, const Tensor<double>& y,
                             const Tensor<double>& z) {
    x.each([&](auto n, auto h, auto i, auto c) {
      ASSERT_NEAR(x.at(n, h, i, c) + y.at(n, h, i, c), z.at(n, h, i, c), 1e-12);
    });
  };
  expect_sum(a.dq, b.dq, sum.dq);
  expect_sum(a.dk, b.dk, sum.dk);
  expect_sum(a.dv, b.dv, sum.dv);
}

}  // namespace
}  // namespace heed_test

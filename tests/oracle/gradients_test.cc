// The two oracles of gradients against each other: complex steps, which know no derivative, and the
// formula in double-double.
// Method: every option alone and all of them, 1e-13 of the largest element.
#include "oracle/gradients.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace oracle {
namespace {

struct Sample {
  Problem<double> p{
      .batch = 2, .heads = 4, .kv_heads = 2, .queries = 5, .keys = 7, .size = 4, .value_size = 3};
  std::vector<double> q, k, v, g, bias;
  std::vector<std::uint8_t> keep;
  View<double> d_output;

  explicit Sample(unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    const auto draw = [&](std::size_t n) {
      std::vector<double> numbers(n);
      for (double& x : numbers) x = normal(random);
      return numbers;
    };
    q = draw(160), k = draw(112), v = draw(84), g = draw(120), bias = draw(280);
    for (int n = 0; n < 280; ++n) keep.push_back(random() % 3 != 0);
    p.q = {q.data(), {80, 20, 4, 1}};
    p.k = {k.data(), {56, 28, 4, 1}};
    p.v = {v.data(), {42, 21, 3, 1}};
    d_output = {g.data(), {60, 15, 3, 1}};
  }
};

double sine_slope(double t) { return 0.5 + std::cos(t); }

const std::pair<const char*, void (*)(Sample&)> kOptions[] = {
    {"nothing", [](Sample&) {}},
    {"scale", [](Sample& s) { s.p.scale = {0.7}; }},
    {"scale per head",
     [](Sample& s) {
       s.p.scale = {0.7, -0.3, 0, 1.5};
     }},
    {"normalize_qk",
     [](Sample& s) {
       s.p.normalize_qk = true;
       s.p.scale = {3};
     }},
    {"softcap", [](Sample& s) { s.p.softcap = 1.5; }},
    {"alibi",
     [](Sample& s) {
       s.p.alibi = {0.5, 0.25, -0.125, 0};
     }},
    {"bias",
     [](Sample& s) {
       s.p.bias = {s.bias.data(), {140, 35, 7, 1}};
     }},
    {"score_mod",
     [](Sample& s) {
       s.p.score_mod = [](DoubleDouble t, auto...) {
         return DoubleDouble(0.5) * t + DoubleDouble(std::sin(high(t)));
       };
       s.p.score_mod_derivative = [](DoubleDouble t, auto...) {
         return DoubleDouble(sine_slope(high(t)));
       };
       s.p.complex_score_mod = [](std::complex<double> t, auto...) {
         return 0.5 * t + std::sin(t);
       };
     }},
    {"causal", [](Sample& s) { s.p.causal = true; }},
    {"keep",
     [](Sample& s) {
       s.p.keep = {s.keep.data(), {140, 35, 7, 1}};
     }},
    {"sinks",
     [](Sample& s) {
       s.p.sinks = {0.5, -1, 2, 0};
     }},
};

void expect_close(const Truth& formula, const Truth& steps, const char* name) {
  ASSERT_EQ(formula.value.size(), steps.value.size()) << name;
  double largest = 0;
  for (const double x : steps.value) largest = std::max(largest, std::fabs(x));
  for (std::size_t n = 0; n < steps.value.size(); ++n)
    ASSERT_NEAR(formula.value[n], steps.value[n], 1e-13 * largest) << name << "[" << n << "]";
}

void expect_agreement(const Sample& s) {
  const Gradients formula = gradients(s.p, s.d_output, {.dbias = true});
  const Gradients steps = gradients_by_complex_steps(s.p, s.d_output, {.dbias = true});
  expect_close(formula.dq, steps.dq, "dq");
  expect_close(formula.dk, steps.dk, "dk");
  expect_close(formula.dv, steps.dv, "dv");
  expect_close(formula.dscale, steps.dscale, "dscale");
  if (!s.p.alibi.empty()) expect_close(formula.dalibi, steps.dalibi, "dalibi");
  expect_close(formula.dbias, steps.dbias, "dbias");
  if (!s.p.sinks.empty()) expect_close(formula.dsinks, steps.dsinks, "dsinks");
}

TEST(gradients, formula_and_complex_steps_agree_for_each_option) {
  unsigned seed = 1;
  for (const auto& [name, set] : kOptions) {
    SCOPED_TRACE(name);
    Sample s(seed++);
    set(s);
    expect_agreement(s);
  }
}

TEST(gradients, formula_and_complex_steps_agree_for_all_options_together) {
  for (unsigned seed = 20; seed < 24; ++seed) {
    Sample s(seed);
    for (const auto& [name, set] : kOptions) set(s);
    expect_agreement(s);
  }
}

TEST(gradients, a_bound_that_is_not_known_leaves_nothing_times_zero) {
  // Scores too large for a bound; the row's own key has distance 0, the other one length 0. Found
  // by fuzz_attention.
  const float q = 1e4F, k[] = {1e3F, 0}, v[] = {2, -1}, g = 1;
  const Problem<float> p{.queries = 1,
                         .keys = 2,
                         .size = 1,
                         .value_size = 1,
                         .q = {&q, {1, 1, 1, 1}},
                         .k = {k, {2, 2, 1, 1}},
                         .v = {v, {2, 2, 1, 1}},
                         .scale = {1},
                         .alibi = {0.5}};
  const Gradients all = gradients(p, {&g, {1, 1, 1, 1}}, {});
  for (const Truth* t : {&all.dq, &all.dk, &all.dv, &all.dscale, &all.dalibi})
    for (const double bound : t->bound) EXPECT_FALSE(std::isnan(bound));
  EXPECT_TRUE(std::isinf(all.dk.bound[0]));
}

TEST(gradients, complex_steps_know_a_closed_form) {
  // One query, two keys, d = 1: o = sigmoid(q (k1 - k2)) (v1 - v2) + v2.
  const double q = 0.75, k[] = {0.5, -0.25}, v[] = {2, -1}, g = 1;
  const Problem<double> p{.queries = 1,
                          .keys = 2,
                          .size = 1,
                          .value_size = 1,
                          .q = {&q, {1, 1, 1, 1}},
                          .k = {k, {2, 2, 1, 1}},
                          .v = {v, {2, 2, 1, 1}}};
  const Gradients steps = gradients_by_complex_steps(p, {&g, {1, 1, 1, 1}}, {});
  const double s = 1 / (1 + std::exp(-q * 0.75));
  EXPECT_NEAR(steps.dq.value[0], s * (1 - s) * 0.75 * 3, 1e-15);
  EXPECT_NEAR(steps.dk.value[0], s * (1 - s) * q * 3, 1e-15);
  EXPECT_NEAR(steps.dk.value[1], -s * (1 - s) * q * 3, 1e-15);
  EXPECT_NEAR(steps.dv.value[0], s, 1e-15);
  EXPECT_NEAR(steps.dv.value[1], 1 - s, 1e-15);
}

}  // namespace
}  // namespace oracle

// Each option changes the gradients, each gradient is right where only that option is set, and
// closed forms.
// Method: the oracle's bounds on every instruction set, and at least one element far apart.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "backward/support.h"
#include "forward/draws.h"

namespace heed_test {
namespace {

template <typename T>
double farthest(const Tensor<T>& a, const Tensor<T>& b) {
  double largest = 0;
  a.each([&](auto n, auto h, auto i, auto x) {
    largest = std::max(largest, std::fabs(double{a.at(n, h, i, x)} - double{b.at(n, h, i, x)}));
  });
  return largest;
}

template <typename T>
class backward_option : public testing::Test {
 protected:
  Call<T> base = plain_call<T>({2, 4, 2, 11, 130, 12, 9}, 31);
  Tensor<T> upstream = draw_d_output(base, 32);

  void expect_effect(const Call<T>& changed) {
    const auto before = run_backward(base, upstream), after = run_backward(changed, upstream);
    const auto truth = true_gradients(changed, upstream);
    for (const heed::Isa isa : runnable_isas()) {
      const Forced forced(isa);
      EXPECT_TRUE(within_bounds(changed, run_backward(changed, upstream), truth))
          << heed::name_of(isa) << ": " << describe(changed);
    }
    EXPECT_GT(farthest(before.dq, after.dq), 1e-3) << "no effect on dq: " << describe(changed);
    EXPECT_GT(farthest(before.dk, after.dk), 1e-3) << "no effect on dk: " << describe(changed);
    EXPECT_GT(farthest(before.dv, after.dv), 1e-3) << "no effect on dv: " << describe(changed);
  }

  Tensor<std::uint8_t> mask() {
    Random random(33);
    Tensor<std::uint8_t> m({2, 4, 11, 130});
    m.each([&](auto b, auto h, auto i, auto j) { m.at(b, h, i, j) = random.chance(0.5); });
    return m;
  }
};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(backward_option, Reals);

TYPED_TEST(backward_option, every_one_has_an_effect) {
  using Change = std::function<void(Call<TypeParam>&)>;
  const std::pair<const char*, Change> changes[] = {
      {"scale", [](auto& c) { c.scale = {0.9}; }},
      {"scale per head",
       [](auto& c) {
         c.scale = {0.125, -0.25, 0.375, 1.5};
       }},
      {"normalize_qk", [](auto& c) { c.normalize_qk = true, c.scale = {6}; }},
      {"softcap", [](auto& c) { c.softcap = 0.5; }},
      {"alibi",
       [](auto& c) {
         c.alibi = {0.5, 0.25, -0.125, 0};
       }},
      {"bias",
       [](auto& c) {
         c.bias = Tensor<double>({1, 4, 11, 130});
         c.bias.each([&](auto b, auto h, auto i, auto j) {
           c.bias.at(b, h, i, j) = static_cast<double>((3 * h + i * 7 + j * 5) % 16) / 8;
         });
       }},
      {"score_mod", [](auto& c) { c.mod = Mod::bend; }},
      {"score_mod that masks", [](auto& c) { c.mod = Mod::holes; }},
      {"causal", [](auto& c) { c.causal = true; }},
      {"query_start",
       [](auto& c) {
         c.causal = true, c.query_start = {50, 60};
       }},
      {"window", [](auto& c) { c.left = 3, c.right = 5; }},
      {"key_lengths",
       [](auto& c) {
         c.key_lengths = {20, 100};
       }},
      {"query_lengths",
       [](auto& c) {
         c.query_lengths = {5, 11};
       }},
      {"keep", [this](auto& c) { c.keep = this->mask(); }},
      {"drop", [this](auto& c) { c.drop = this->mask(); }},
      {"sinks",
       [](auto& c) {
         c.sinks = {5, 6, 4, 7};
       }},
  };
  for (const auto& [name, change] : changes) {
    SCOPED_TRACE(name);
    auto changed = this->base;
    change(changed);
    this->expect_effect(changed);
  }
}

TYPED_TEST(backward_option, normalize_qk_gives_nothing_along_a_row_and_zero_to_rows_of_zeros) {
  auto s = this->base;
  s.normalize_qk = true;
  s.scale = {6};
  for (std::int64_t x = 0; x < 12; ++x) s.q.at(0, 0, 0, x) = s.k.at(0, 0, 1, x) = TypeParam(0);
  const auto got = run_backward(s, this->upstream);
  for (std::int64_t x = 0; x < 12; ++x) {
    EXPECT_EQ(got.dq.at(0, 0, 0, x), TypeParam(0));
    EXPECT_EQ(got.dk.at(0, 0, 1, x), TypeParam(0));
  }
  double along = 0;
  for (std::int64_t x = 0; x < 12; ++x)
    along += double{got.dq.at(1, 2, 3, x)} * double{s.q.at(1, 2, 3, x)};
  EXPECT_NEAR(along, 0, 1e-5);
}

/// Their squares are infinite, and they count as rows of zeros: forwards, and backwards.
TYPED_TEST(backward_option, normalize_qk_gives_zero_to_rows_too_long_to_be_squared) {
  auto s = this->base;
  s.normalize_qk = true;
  const auto large = std::numeric_limits<TypeParam>::max() / 3;
  for (std::int64_t x = 0; x < 12; ++x) {
    s.q.at(0, 0, 0, x) = s.k.at(0, 0, 1, x) = x % 2 == 0 ? large : large / 2;
  }
  auto large_upstream = this->upstream;
  for (TypeParam& x : large_upstream.memory)
    x *= TypeParam(1e6);  // so large that their products overflow, too
  const auto got = run_backward(s, large_upstream);
  for (std::int64_t x = 0; x < 12; ++x) {
    EXPECT_EQ(got.dq.at(0, 0, 0, x), TypeParam(0));
    EXPECT_EQ(got.dk.at(0, 0, 1, x), TypeParam(0));
  }
}

TYPED_TEST(backward_option, dscale_is_what_a_step_of_the_scale_does) {
  for (const bool normalize : {false, true}) {
    auto s = this->base;
    s.normalize_qk = normalize;
    s.scale = {0.5};
    const auto got = run_backward(s, this->upstream, {.one_scale = true});
    const auto loss = [&](double scale) {
      Call<double> wide = plain_call<double>(s.dims(), 31);
      for (const auto& [to, from] :
           {std::pair{&wide.q, &s.q}, std::pair{&wide.k, &s.k}, std::pair{&wide.v, &s.v}})
        from->each([&, t = to, f = from](auto b, auto h, auto i, auto x) {
          t->at(b, h, i, x) = double{f->at(b, h, i, x)};
        });
      wide.normalize_qk = normalize;
      wide.scale = {scale};
      const auto o = run(wide).o;
      double sum = 0;
      o.each([&](auto b, auto h, auto i, auto x) {
        sum += o.at(b, h, i, x) * double{this->upstream.at(b, h, i, x)};
      });
      return sum;
    };
    const double slope = (loss(0.5 + 1e-5) - loss(0.5 - 1e-5)) / 2e-5;
    EXPECT_NEAR(got.dscale.at(0, 0, 0, 0), slope, 1e-4 * (1 + std::fabs(slope)));
  }
}

TYPED_TEST(backward_option, a_scale_of_zero_still_has_a_gradient) {
  auto s = this->base;
  s.scale = {0};
  const auto got = run_backward(s, this->upstream);
  const auto truth = true_gradients(s, this->upstream);
  EXPECT_TRUE(within_bounds(s, got, truth));
  EXPECT_NE(got.dscale.at(0, 0, 0, 0), TypeParam(0));
  got.dq.each(
      [&](auto b, auto h, auto i, auto x) { EXPECT_EQ(got.dq.at(b, h, i, x), TypeParam(0)); });
}

TYPED_TEST(backward_option, one_key_gives_no_gradient_to_scores) {
  auto s = plain_call<TypeParam>({1, 2, 1, 5, 1, 6, 4}, 34);
  const auto g = draw_d_output(s, 35);
  const auto got = run_backward(s, g);
  // P = 1 whatever the score: dP - D is the rounding of two chains, and dV the sum of dO.
  got.dq.each([&](auto b, auto h, auto i, auto x) { EXPECT_NEAR(got.dq.at(b, h, i, x), 0, 1e-5); });
  for (std::int64_t x = 0; x < 4; ++x) {
    double sum = 0;
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t i = 0; i < 5; ++i) sum += double{g.at(0, h, i, x)};
    EXPECT_NEAR(got.dv.at(0, 0, 0, x), sum, 1e-5);
  }
}

/// Beyond 2^24 the rounding of lse passes the exponential's domain: weights stay within 0 and 1.
TYPED_TEST(backward_option, huge_scores_give_weights_of_at_most_one) {
  auto s = plain_call<TypeParam>({1, 1, 1, 20, 7, 1, 2}, 36, 1e6);
  s.k.each([&](auto b, auto h, auto j, auto x) { s.k.at(b, h, j, x) *= TypeParam(1e6); });
  auto g = draw_d_output(s, 37);
  g.each([&](auto b, auto h, auto i, auto x) { g.at(b, h, i, x) = 1; });
  const auto got = run_backward(s, g);
  got.dv.each([&](auto b, auto h, auto j, auto x) {
    EXPECT_GE(got.dv.at(b, h, j, x), TypeParam(0));
    EXPECT_LE(got.dv.at(b, h, j, x), TypeParam(20));
  });
}

TYPED_TEST(backward_option, a_bent_score_mod_and_softcap_together_are_right) {
  auto s = this->base;
  s.softcap = 1.5;
  s.mod = Mod::bend;
  s.alibi = {0.5, 0.25, -0.125, 0};
  this->expect_effect(s);
}

/// Two equal weights: dS = +-(dP_1 - dP_2) / 4. Where squares of it leave float32, so does the
/// norm, alone.
TEST(backward_norms, have_a_closed_form_and_the_range_that_is_told) {
  Call<float> s = plain_call<float>({1, 1, 1, 1, 2, 4, 1}, 38);
  s.q.each([&](auto b, auto h, auto i, auto x) { s.q.at(b, h, i, x) = 0; });
  s.v.at(0, 0, 0, 0) = 3;
  s.v.at(0, 0, 1, 0) = -1;
  Tensor<float> g({1, 1, 1, 1});
  const auto norm = [&](float gradient) {
    g.at(0, 0, 0, 0) = gradient;
    const auto got = run_backward(s, g);
    EXPECT_EQ(got.dk.at(0, 0, 0, 0), 0.0F);
    EXPECT_TRUE(std::isfinite(got.dq.at(0, 0, 0, 0)) && got.dq.at(0, 0, 0, 0) != 0);
    return got.ds_norms.at(0, 0, 0, 0);
  };
  EXPECT_EQ(norm(1), std::sqrt(2.0F));
  EXPECT_FLOAT_EQ(norm(1e18F), 1e18F * std::sqrt(2.0F));
  EXPECT_FLOAT_EQ(norm(-1e-18F), 1e-18F * std::sqrt(2.0F));
  EXPECT_EQ(norm(1e-24F), 0.0F);
  EXPECT_EQ(norm(3e19F), std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace heed_test

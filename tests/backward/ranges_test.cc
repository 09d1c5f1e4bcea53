// Gradients at the edges of float32's range: what is lost there is in the oracle's bounds. Each was
// found by fuzz_attention and is the smallest call that shows it; a bound or the comparison was
// wrong, not heed.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "backward/support.h"

namespace heed_test {
namespace {

/// One query and keys of one number each.
Call<float> one_query(float q, const std::vector<float>& k, const std::vector<float>& v) {
  const auto keys = static_cast<std::int64_t>(k.size());
  Call<float> s = plain_call<float>({1, 1, 1, 1, keys, 1, 1}, 1);
  s.q.at(0, 0, 0, 0) = q;
  for (std::int64_t j = 0; j < keys; ++j) {
    s.k.at(0, 0, j, 0) = k[static_cast<std::size_t>(j)];
    s.v.at(0, 0, j, 0) = v[static_cast<std::size_t>(j)];
  }
  return s;
}

/// The gradients for dO, within their bounds on every instruction set.
Gradients<float> judged(const Call<float>& s, float d_output) {
  Tensor<float> g({1, 1, 1, 1});
  g.at(0, 0, 0, 0) = d_output;
  const auto truth = true_gradients(s, g);
  Gradients<float> got;
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    got = run_backward(s, g);
    EXPECT_TRUE(within_bounds(s, got, truth)) << heed::name_of(isa) << ": " << describe(s);
  }
  return got;
}

TEST(backward_ranges, a_sink_whose_weight_is_below_the_normal_numbers_has_no_gradient) {
  auto s = one_query(0, {0}, {1});
  s.sinks = {-90};  // dsinks = -exp(-90) = -8.2e-40
  EXPECT_EQ(judged(s, 1).dsinks.at(0, 0, 0, 0), 0.0F);
}

TEST(backward_ranges, zero_may_be_minus_zero_where_all_numbers_are_below_the_normal_ones) {
  auto s = one_query(0, {0x1p-127F}, {5.142857F});
  s.scale = {0.0625};
  // dP and D are rounded in another order: dS = -9.5e-7, G = -5.6e-45, dQ = fma(scale, G, +0) = -0.
  s.dropout = {.p = 0.25, .seed = 3};
  const auto got = judged(s, 1.7F);
  EXPECT_GT(got.ds_norms.at(0, 0, 0, 0), 0.0F);
  EXPECT_EQ(got.dq.at(0, 0, 0, 0), 0.0F);
  EXPECT_TRUE(std::signbit(got.dq.at(0, 0, 0, 0)));
}

TEST(backward_ranges, zero_may_be_minus_zero_where_it_is_not_known_to_be_zero) {
  // The first key has all the weight and dS = 0, known to a few 1e-16; the second one's dS is
  // -1e-304 * 1.1e-16, and dQ = fma(2^-10, -4.4e-322, +0) is below the smallest number.
  Call<double> s = plain_call<double>({1, 1, 1, 1, 2, 1, 1}, 1);
  s.scale = {0x1p-10};
  s.q.at(0, 0, 0, 0) = -700 / 0x1p-10 / 0.03;
  s.k.at(0, 0, 0, 0) = 0.01, s.k.at(0, 0, 1, 0) = 0.04;
  s.v.at(0, 0, 0, 0) = 1, s.v.at(0, 0, 1, 0) = 1 - 0x1p-53;
  Tensor<double> g({1, 1, 1, 1});
  g.at(0, 0, 0, 0) = 1;
  const auto got = run_backward(s, g);
  EXPECT_TRUE(std::signbit(got.dq.at(0, 0, 0, 0)));
  EXPECT_TRUE(within_bounds(s, got, true_gradients(s, g), Unbounded::is_finite));
}

TEST(backward_ranges, a_large_scale_multiplies_what_products_below_the_normal_numbers_have_lost) {
  auto s = one_query(1e-20F, {3e-21F, -1e-21F}, {5e-21F, 1e-21F});
  s.scale = {1e4};  // dQ = 1e4 * 1e-21 * (3e-21 + 1e-21), of products known to 1.4e-45 / 2 each
  EXPECT_NEAR(judged(s, 1).dq.at(0, 0, 0, 0), 4e-38, 1.4e-41);
}

TEST(backward_ranges, a_large_scale_multiplies_products_below_the_normal_numbers) {
  // dK = 5000 * 1e-310, and u of it is a number that there is; u * 1e-310 is none, so the oracle's
  // bound takes the scale first.
  Call<double> s = plain_call<double>({1, 1, 1, 1, 2, 1, 1}, 1);
  s.scale = {5000};
  s.q.at(0, 0, 0, 0) = 1e-155;
  s.k.at(0, 0, 0, 0) = 1, s.k.at(0, 0, 1, 0) = 1;
  s.v.at(0, 0, 0, 0) = 1, s.v.at(0, 0, 1, 0) = 1e-3;
  Tensor<double> g({1, 1, 1, 1});
  g.at(0, 0, 0, 0) = 4e-155;
  const auto truth = true_gradients(s, g);
  EXPECT_GT(truth.dk.bound[0], 30 * 0x1p-53 * std::fabs(truth.dk.value[0]));
  EXPECT_TRUE(within_bounds(s, run_backward(s, g), truth));
}

TEST(backward_ranges, a_large_scale_multiplies_what_a_derivative_below_the_normal_numbers_lost) {
  auto s = one_query(1, {4.15e-4F, 4e-4F}, {1, -1});
  s.scale = {1e4};
  // dS = 2.05e-41 of the capped score, times 1 - tanh(4.15)^2 = 9.94e-4: 14.5 times the smallest
  // number, of which half a one is lost.
  s.softcap = 1;
  EXPECT_NEAR(judged(s, 4.1e-41F).dk.at(0, 0, 0, 0), 2.04e-40, 1.1e-41);
}

TEST(backward_ranges, a_norm_is_infinite_where_only_its_bound_passes_the_range_of_its_squares) {
  // Equal values: dP_j - D = 0, but for the rounding of 1e30.
  const auto s = one_query(1, {0.3F, -0.7F, 1.1F}, {1e30F, 1e30F, 1e30F});
  EXPECT_TRUE(std::isinf(judged(s, 1).ds_norms.at(0, 0, 0, 0)));
}

TEST(backward_ranges,
     what_an_output_lost_below_the_normal_numbers_is_multiplied_with_its_gradient) {
  // O = 100 keys of 3/8 of the smallest number each, which the forward pass loses: D = dO O and
  // dS_0 = -P_0 D are 0.
  std::vector<float> k(101, std::log(0x1p-30F)), v(101, 0x1.8p-121F);
  k[0] = 0, v[0] = 0;
  auto s = one_query(1, k, v);
  s.scale = {1};
  judged(s, 1e25F);
}

TEST(backward_ranges, a_scale_beyond_the_root_of_the_range_makes_what_is_not_known_infinite) {
  // All weight is the first key's, and dS = dP - D is 0, but for a rounding error of 1e4: times
  // 1e300 and k. The second one's weight is 0, its error times 1e305 |dP - D| is none.
  Call<double> s = plain_call<double>({1, 1, 1, 1, 2, 1, 1}, 1);
  s.scale = {1e300};
  s.dropout = {.p = 0.3, .seed = 3};
  s.q.at(0, 0, 0, 0) = 1;
  s.k.at(0, 0, 0, 0) = 1e5, s.k.at(0, 0, 1, 0) = 9e4;
  s.v.at(0, 0, 0, 0) = 1.3e20, s.v.at(0, 0, 1, 0) = -1.1e20;
  Tensor<double> g({1, 1, 1, 1});
  g.at(0, 0, 0, 0) = 0.7;
  const auto truth = true_gradients(s, g);
  EXPECT_TRUE(std::isinf(truth.dq.bound[0]));
  const auto got = run_backward(s, g);
  EXPECT_TRUE(std::isinf(got.dq.at(0, 0, 0, 0))) << got.dq.at(0, 0, 0, 0);
  EXPECT_TRUE(within_bounds(s, got, truth, Unbounded::is_finite));
  EXPECT_FALSE(within_bounds(s, got, truth));
}

TEST(backward_ranges, a_scale_of_zero_makes_gradients_zero_whatever_is_known_of_the_scores) {
  auto s = one_query(1, {1, 2}, {1, 2});
  s.scale = {0};
  s.bias = Tensor<double>({1, 1, 1, 2});  // float32 knows nothing of weights of such scores
  s.bias.at(0, 0, 0, 0) = s.bias.at(0, 0, 0, 1) = 1e9;
  Tensor<float> g({1, 1, 1, 1});
  g.at(0, 0, 0, 0) = 1;
  const auto truth = true_gradients(s, g);
  auto got = run_backward(s, g);
  EXPECT_TRUE(within_bounds(s, got, truth, Unbounded::is_finite));
  for (Tensor<float>* gradient : {&got.dq, &got.dk}) {
    const float right = std::exchange(gradient->at(0, 0, 0, 0), 123.0F);
    EXPECT_FALSE(within_bounds(s, got, truth, Unbounded::is_finite));
    gradient->at(0, 0, 0, 0) = right;
  }
}

TEST(backward_ranges, what_an_output_of_equal_products_has_lost_is_in_its_product_with_dO) {
  // 96 products of 0.1 and one weight, which all round alike: O is 17 u O too small, D = dO O, too,
  // and so dS = P (dP - D), of which 0 is exact, is 17 u P O.
  Call<double> s = plain_call<double>({1, 1, 1, 1, 96, 1, 1}, 1);
  s.scale = {0};
  for (std::int64_t j = 0; j < 96; ++j) s.v.at(0, 0, j, 0) = 0.1;
  Tensor<double> g({1, 1, 1, 1});
  g.at(0, 0, 0, 0) = 1;
  const auto truth = true_gradients(s, g);
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    const auto got = run_backward(s, g);
    EXPECT_GT(got.ds_norms.at(0, 0, 0, 0), 0x1p-53 * 16.1 * 0.1 / std::sqrt(96))
        << "of a smaller one this says nothing; " << heed::name_of(isa);
    EXPECT_TRUE(within_bounds(s, got, truth)) << heed::name_of(isa);
  }
}

}  // namespace
}  // namespace heed_test

// What weights begin with: bounds, moments, and the same numbers everywhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "heed/heed.h"

namespace heed_test {
namespace {

constexpr std::int64_t kOutputs = 400, kInputs = 500;

std::vector<float> drawn(const heed::Initialisation& initialisation) {
  std::vector<float> weight(kOutputs * kInputs);
  heed::initialise(weight, kOutputs, kInputs, initialisation);
  return weight;
}

struct Moments {
  double mean = 0, deviation = 0, highest = 0;
};
Moments moments(const std::vector<float>& numbers) {
  Moments m;
  const auto count = static_cast<double>(numbers.size());
  for (const float x : numbers) m.mean += static_cast<double>(x) / count;
  for (const float x : numbers) {
    const double apart = static_cast<double>(x) - m.mean;
    m.deviation += apart * apart / count;
    m.highest = std::max(m.highest, std::fabs(static_cast<double>(x)));
  }
  m.deviation = std::sqrt(m.deviation);
  return m;
}

/// 200,000 draws: the mean is off by 1/447 of the deviation, the deviation by 1/632 of itself at
/// one standard error; five of them are allowed.
void expect_spread(const std::vector<float>& numbers, double deviation) {
  const Moments m = moments(numbers);
  EXPECT_NEAR(m.mean, 0, 5 * deviation / 447);
  EXPECT_NEAR(m.deviation, deviation, 5 * deviation / 632);
}

TEST(initialise, xavier_uniform_fills_its_bounds_evenly) {
  const double bound = std::sqrt(6.0 / (kOutputs + kInputs));
  const auto numbers = drawn({});
  expect_spread(numbers, bound / std::sqrt(3.0));
  EXPECT_LE(moments(numbers).highest, bound);
  EXPECT_GT(moments(numbers).highest, 0.999 * bound);
  std::vector<double> tenths(10);
  for (const float x : numbers) {
    const double place = (static_cast<double>(x) / bound + 1) * 5;
    tenths[static_cast<std::size_t>(std::clamp(place, 0.0, 9.0))] += 1;
  }
  for (const double count : tenths) EXPECT_NEAR(count, 20000, 5 * std::sqrt(20000 * 0.9));
}

TEST(initialise, normal_draws_have_their_deviations) {
  expect_spread(drawn({.draw = heed::Draw::xavier_normal}), std::sqrt(2.0 / (kOutputs + kInputs)));
  expect_spread(drawn({.draw = heed::Draw::inverse_sqrt_inputs}), 1 / std::sqrt(500.0));
  const auto numbers = drawn({.draw = heed::Draw::constant_deviation, .deviation = 0.3});
  expect_spread(numbers, 0.3);
  const auto beyond = [&](double sigmas) {
    return std::count_if(numbers.begin(), numbers.end(),
                         [&](float x) { return std::fabs(static_cast<double>(x)) > sigmas * 0.3; });
  };
  EXPECT_NEAR(static_cast<double>(beyond(1)) / 200000, 0.3173, 0.006);
  EXPECT_NEAR(static_cast<double>(beyond(2)) / 200000, 0.0455, 0.003);
}

TEST(initialise, follows_from_the_seed_alone) {
  EXPECT_EQ(drawn({.seed = 5}), drawn({.seed = 5}));
  EXPECT_NE(drawn({.seed = 5}), drawn({.seed = 6}));
  // SplitMix64 of seed 0 begins with 0xe220a8397b1dcdaf: the first number is known on every
  // machine.
  const double u = (static_cast<double>(0xe220a8397b1dcdafU >> 40U) + 0.5) * 0x1p-24;
  const double bound = std::sqrt(6.0 / (kOutputs + kInputs));
  EXPECT_EQ(drawn({})[0], static_cast<float>(bound * (2 * u - 1)));
}

TEST(initialise, gives_every_weight_of_a_module_numbers_of_its_own) {
  heed::MultiHeadAttention a({.d_model = 16, .heads = 2, .bias = true});
  heed::MultiHeadAttention b({.d_model = 16, .heads = 2, .initialisation = {.seed = 1}});
  std::set<float> firsts;
  for (const auto& parameters : {a.parameters(), b.parameters()}) {
    for (const heed::Parameter& p : parameters) {
      if (p.shape.size() == 2) firsts.insert(p.values[0]);
      if (p.shape.size() == 1) {
        for (const float x : p.values) EXPECT_EQ(x, 0);
      }
      for (const float g : p.gradient) EXPECT_EQ(g, 0);
    }
  }
  EXPECT_EQ(firsts.size(), 8u);
}

TEST(initialise, refuses_what_does_not_fit) {
  std::vector<float> weight(6);
  const auto message = [&](std::int64_t outputs, std::int64_t inputs,
                           const heed::Initialisation& initialisation) -> std::string {
    try {
      heed::initialise(weight, outputs, inputs, initialisation);
      return "";
    } catch (const heed::Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(message(2, 3, {}), "");
  EXPECT_EQ(message(2, 4, {}), "initialise: weight has 6 elements; expected 2 x 4, both 1 or more");
  EXPECT_EQ(message(-2, -3, {}),
            "initialise: weight has 6 elements; expected -2 x -3, both 1 or more");
  EXPECT_EQ(message(2, 3, {.draw = heed::Draw::constant_deviation, .deviation = -1}),
            "initialise: deviation is -1; expected 0 .. 5.67e+37");
}

}  // namespace
}  // namespace heed_test

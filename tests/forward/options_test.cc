// Each option changes the output, and changes it as the formula says.
// Method: the same tensors with and without the option; both within the oracle's bounds, at least
// one element apart by far more.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "forward/draws.h"

namespace heed_test {
namespace {

template <typename T>
class option : public testing::Test {
 protected:
  Call<T> s = plain_call<T>({2, 4, 2, 11, 130, 12, 9}, 31);

  /// `changed` is right, and is not what it was.
  void expect_effect(const Call<T>& changed) {
    const auto before = run(s), after = run(changed);
    EXPECT_GE(expect_truth(changed, {.lse = true, .weights = true}), 2) << "instruction sets";
    double largest = 0;
    after.o.each([&](auto b, auto h, auto i, auto x) {
      const double difference = double{after.o.at(b, h, i, x)} - double{before.o.at(b, h, i, x)};
      largest = std::max(largest, std::fabs(difference));
    });
    EXPECT_GT(largest, 1e-3) << "no effect: " << describe(changed);
  }

  Tensor<std::uint8_t> mask(const Shape& shape) {
    Random random(32);
    Tensor<std::uint8_t> m(shape);
    m.each([&](auto b, auto h, auto i, auto j) { m.at(b, h, i, j) = random.chance(0.5); });
    return m;
  }
};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(option, Reals);

TYPED_TEST(option, scale_has_an_effect) {
  auto changed = this->s;
  changed.scale = {0.9};
  this->expect_effect(changed);
}
TYPED_TEST(option, scale_per_head_has_an_effect_and_is_per_head) {
  auto changed = this->s;
  changed.scale = {0.125, -0.25, 0.375, 1.5};
  this->expect_effect(changed);
  changed.narrow = true;
  this->expect_effect(with_batch(changed, {0, 1}));
}
TYPED_TEST(option, normalize_qk_has_an_effect_and_a_default_scale_of_one) {
  auto changed = this->s;
  changed.normalize_qk = true;
  this->expect_effect(changed);
  const auto usual = run(changed);
  changed.scale = {1};
  EXPECT_TRUE(same_bits(run(changed), usual));
}
TYPED_TEST(option, normalize_qk_leaves_rows_of_zeros_zero) {
  auto changed = this->s;
  changed.normalize_qk = true;
  for (std::int64_t x = 0; x < 12; ++x)
    changed.q.at(0, 0, 0, x) = changed.k.at(0, 0, 1, x) = TypeParam(0);
  this->expect_effect(changed);
}
TYPED_TEST(option, default_scale_is_one_over_the_root_of_d) {
  auto changed = this->s;
  changed.scale = {1 / std::sqrt(12.0)};
  EXPECT_TRUE(same_bits(run(changed), run(this->s)));
}
TYPED_TEST(option, softcap_has_an_effect) {
  auto changed = this->s;
  for (const double cap : {0.5, 3.0}) {
    changed.softcap = cap;
    this->expect_effect(changed);
  }
}
TYPED_TEST(option, softcap_holds_over_its_whole_range) {
  for (const double cap : {0x1p-100, 1e-3, 0.3, 30.0, 50.0, 1000.0, 1e6, 0x1p100})
    for (const double sharpness : {1e-3, 1.0, 30.0, 3000.0}) {
      auto changed = plain_call<TypeParam>({1, 2, 1, 5, 130, 12, 9}, 33, sharpness);
      changed.softcap = cap;
      expect_truth(changed);
    }
}
TYPED_TEST(option, alibi_has_an_effect_and_goes_by_position) {
  auto changed = this->s;
  changed.alibi = {0.5, 0.25, -0.125, 0};
  this->expect_effect(changed);
  const auto at_zero = run(changed);
  changed.query_start = {100};
  this->expect_effect(changed);
  EXPECT_FALSE(same_bits(run(changed), at_zero));
}
TYPED_TEST(option, bias_has_an_effect) {
  auto changed = this->s;
  changed.bias = Tensor<double>({1, 4, 11, 130});
  Random random(34);
  fill_normal(changed.bias, random);
  changed.bias.each([&](auto b, auto h, auto i, auto j) {
    auto& x = changed.bias.at(b, h, i, j);
    x = double{static_cast<float>(x)};
  });
  this->expect_effect(changed);
}
TYPED_TEST(option, score_mod_has_an_effect_and_its_minus_infinity_masks) {
  auto changed = this->s;
  changed.mod = Mod::tilt;
  this->expect_effect(changed);
  changed.mod = Mod::holes;
  this->expect_effect(changed);
}
TYPED_TEST(option, causal_has_an_effect) {
  auto changed = this->s;
  changed.causal = true;
  this->expect_effect(changed);
}
TYPED_TEST(option, query_start_has_an_effect_of_any_sign_and_per_batch_entry) {
  auto changed = this->s;
  changed.causal = true;
  for (const auto& start :
       std::vector<std::vector<std::int64_t>>{{-3},
                                              {119},
                                              {1000},
                                              {5, 90},
                                              {std::numeric_limits<std::int64_t>::max()},
                                              {std::numeric_limits<std::int64_t>::min()}}) {
    changed.query_start = start;
    const bool all = start[0] >= 1000;  // beyond the last key
    if (all) {
      EXPECT_TRUE(same_bits(run(changed), run(this->s)));
    } else {
      this->expect_effect(changed);
    }
  }
}
TYPED_TEST(option, either_side_of_a_window_has_an_effect) {
  auto changed = this->s;
  changed.left = 2;
  changed.query_start = {50};
  this->expect_effect(changed);
  changed.left = {};
  changed.right = 3;
  this->expect_effect(changed);
  changed.left = 0;
  changed.right = std::numeric_limits<std::int64_t>::max() - 1;  // saturates
  this->expect_effect(changed);
  changed.right = 0;
  this->expect_effect(changed);
}
TYPED_TEST(option, lengths_have_an_effect) {
  auto changed = this->s;
  changed.key_lengths = {40};
  this->expect_effect(changed);
  changed.key_lengths = {0, 97};
  this->expect_effect(changed);
  changed.narrow = true;
  this->expect_effect(changed);
  changed.key_lengths = {};
  changed.query_lengths = {4};
  this->expect_effect(changed);
  changed.query_lengths = {11, 0};
  this->expect_effect(changed);
}
TYPED_TEST(option, keep_and_drop_have_opposite_effects) {
  auto keep = this->s, drop = this->s, both = this->s;
  keep.keep = this->mask({2, 1, 11, 130});
  drop.drop = this->mask({2, 1, 11, 130});
  both.keep = keep.keep;
  both.drop = drop.drop;
  this->expect_effect(keep);
  this->expect_effect(drop);
  const auto nothing = run(both);
  nothing.o.each([&](auto b, auto h, auto i, auto x) { EXPECT_EQ(nothing.o.at(b, h, i, x), 0); });
}
TYPED_TEST(option, sinks_have_an_effect) {
  auto changed = this->s;
  changed.sinks = {3, -1, 0, 8};
  this->expect_effect(changed);
  changed.narrow = true;
  this->expect_effect(changed);
}
TYPED_TEST(option, a_sink_alone_keeps_empty_rows_at_its_lse) {
  auto changed = this->s;
  changed.sinks = {3, -1, 0, 8};
  changed.key_lengths = {0};
  this->expect_effect(changed);
}

}  // namespace
}  // namespace heed_test

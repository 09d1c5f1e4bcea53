// The bits of weights on demand never depend on what else is in a call or how tensors lie: D2 to
// D4, as far as the views themselves do not (sums go over all rows, cells of maps count all keys).
// Threads: views_test; instruction sets: weights_test.
// Method: the same problem twice, every bit compared.
#include <gtest/gtest.h>

#include <limits>

#include "forward/bases.h"
#include "inspection/looked.h"

namespace heed_test {
namespace {

template <typename T>
std::vector<Call<T>> bases() {
  auto all = crossed<T>(
      {{2, 4, 2, 300, 150, 9, 5}, {2, 2, 1, 2, 900, 64, 64}, {2, 2, 2, 1, 200, 192, 128}},
      {Masking::none, Masking::causal_at_end, Masking::normalized, Masking::everything}, 80);
  for (auto& s : all) s.mod = Mod::none;  // it sees the places of entry and row
  return all;
}

template <typename T>
Looked<T> looked(const Call<T>& s) {
  return Looked<T>(s, run(s).lse, {});
}

template <typename T>
class inspect_bits : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(inspect_bits, Reals);

TYPED_TEST(inspect_bits, no_place_in_a_batch_changes_one) {
  for (const auto& s : bases<TypeParam>()) {
    const auto alone = looked(with_batch(s, {1}));
    for (const std::size_t size : {2U, 5U})
      for (const std::size_t place : {std::size_t{0}, size - 1}) {
        std::vector<std::int64_t> entries(size, 0);
        entries[place] = 1;
        const auto together = looked(with_batch(s, entries));
        EXPECT_TRUE(together.part(0, {static_cast<std::int64_t>(place)}).same(alone))
            << "place " << place << " of " << size << ": " << describe(s);
      }
  }
}

/// The last KV head and the heads that share it, alone: not with options that have a number to each
/// head.
TYPED_TEST(inspect_bits, no_place_among_heads_changes_one) {
  auto s = plain_call<TypeParam>({2, 6, 3, 300, 150, 9, 5}, 91);
  s.causal = true;
  const auto all = looked(s);
  s.q = gathered(s.q, 1, {4, 5});
  for (auto* t : {&s.k, &s.v}) *t = gathered(*t, 1, {2});
  EXPECT_TRUE(all.part(1, {4, 5}).same(looked(s)));
}

/// Of what a row has for itself: its weights, scores and largest weights.
TYPED_TEST(inspect_bits, no_company_of_rows_changes_one_of_a_row) {
  for (const auto& s : bases<TypeParam>()) {
    const auto all = looked(s);
    for (std::int64_t n = 0; n < 3; ++n) {
      const std::int64_t i = all.rows[static_cast<std::size_t>(n)];
      const auto alone = looked(with_queries(s, {i}, true));
      SCOPED_TRACE(testing::Message() << "row " << i << ": " << describe(s));
      EXPECT_TRUE(
          same_bits(gathered(alone.row_weights, 2, {0}), gathered(all.row_weights, 2, {n})));
      EXPECT_TRUE(same_bits(gathered(alone.row_scores, 2, {0}), gathered(all.row_scores, 2, {n})));
      EXPECT_TRUE(same_bits(alone.top_weights, gathered(all.top_weights, 2, {i})));
      EXPECT_TRUE(same_bits(alone.top_mass, gathered(all.top_mass, 2, {i})));
      EXPECT_EQ(alone.top_keys.memory, gathered(all.top_keys, 2, {i}).memory);
    }
  }
}

TYPED_TEST(inspect_bits, no_layout_changes_one) {
  for (const auto& base : bases<TypeParam>()) {
    const auto contiguous = looked(base);
    for (int n = 0; n < kLayouts; ++n) {
      const auto layout = static_cast<Layout>(n);
      if (!writable(layout)) continue;  // these hold other numbers
      Call<TypeParam> s = base;
      for (auto* t : {&s.q, &s.k, &s.v}) *t = laid_out(*t, layout);
      const auto lse = run(s, {.lse = true, .output = layout}).lse;
      EXPECT_TRUE(contiguous.same(Looked<TypeParam>(s, lse, {}, {.threads = 1}, layout)))
          << name_of(layout) << ": " << describe(s);
    }
  }
}

/// Keys that nobody may see, appended in each of the ways of masking them: all numbers but those of
/// maps, whose cells share out all keys, stay.
TYPED_TEST(inspect_bits, no_masked_keys_at_the_end_change_one) {
  using T = TypeParam;
  for (const auto& [queries, size] : {std::pair{9, 6}, std::pair{1, 64}})
    for (const auto& [keys, more] :
         {std::pair{1, 1}, std::pair{95, 97}, std::pair{700, 96}, std::pair{768, 1025}}) {
      auto s = plain_call<T>({1, 2, 1, queries, keys, size, 4}, 92);
      s.query_start = {keys - queries};
      const auto alone = looked(s);
      const auto longer = [&, own = std::int64_t{keys}, added = std::int64_t{more}](
                              const Tensor<T>& t, std::size_t axis, T rest) {
        Shape shape = t.shape;
        shape[axis] += added;
        Tensor<T> to(shape);
        to.each([&](auto b, auto h, auto i, auto x) {
          to.at(b, h, i, x) = (axis == 2 ? i : x) < own ? t.at(b, h, i, x) : rest;
        });
        return to;
      };
      auto expected = alone;
      expected.row_weights = longer(alone.row_weights, 3, 0);
      expected.row_scores = longer(alone.row_scores, 3, -std::numeric_limits<T>::infinity());
      expected.column_sums = longer(alone.column_sums, 2, 0);
      for (const Hiding how : {Hiding::length, Hiding::keep, Hiding::drop, Hiding::bias}) {
        const auto hidden = looked(with_hidden_keys(s, more, how, T(1e30)));
        expected.mean_map = hidden.mean_map;
        expected.lift_map = hidden.lift_map;
        EXPECT_TRUE(expected.same(hidden)) << more << " keys after, hidden in way "
                                           << static_cast<int>(how) << ": " << describe(s);
      }
    }
}

}  // namespace
}  // namespace heed_test

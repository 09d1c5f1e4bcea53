// The bits of the forward-mode derivative never depend on what else is in a call or how tensors
// lie: D2 to D4. Threads and executors: jvp_test.
// Method: the same problem twice, every bit compared; NaN equals NaN, +0 is not -0.
#include <limits>

#include "forward/bases.h"
#include "forward/draws.h"
#include "sanitized.h"
#include "support.h"

namespace heed_test {
namespace {

/// Rows that fill no vector, and sizes that models have; ten blocks of keys. All inputs move.
template <typename T>
std::vector<Call<T>> bases() {
  auto all = crossed<T>({{2, 4, 2, 37, 900, 9, 5}},
                        {Masking::none, Masking::causal_at_end, Masking::window_causal,
                         Masking::keep_half, Masking::normalized, Masking::everything},
                        720);
  all.push_back(crossed<T>({{2, 2, 1, 2, 900, 64, 64}}, {Masking::everything}, 726)[0]);
  all.push_back(crossed<T>({{2, 2, 2, 1, 200, 192, 128}}, {Masking::bias_masking}, 727)[0]);
  for (auto& s : all) s.mod = Mod::none;  // it sees the places of entry and row
  return all;
}

template <typename T>
Motion<T> gathered(const Motion<T>& m, std::size_t axis, const std::vector<std::int64_t>& which) {
  const bool of_keys = axis != 2;  // rows alone leave keys where they are
  return {gathered(m.q, axis, which), of_keys ? gathered(m.k, axis, which) : m.k,
          of_keys ? gathered(m.v, axis, which) : m.v, gathered_mask(m.bias, axis, which)};
}

template <typename T>
MovedResult<T> gathered(const MovedResult<T>& r, std::size_t axis,
                        const std::vector<std::int64_t>& which) {
  return {gathered(r.o, axis, which), gathered(r.lse, axis, which)};
}

template <typename T>
class jvp_bits : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(jvp_bits, Reals);

TYPED_TEST(jvp_bits, no_place_in_a_batch_changes_one) {
  for (const auto& s : bases<TypeParam>()) {
    const auto m = draw_motion(s, 81);
    const auto alone = run_jvp(with_batch(s, {1}), gathered(m, 0, {1}));
    for (const std::size_t size : {2U, 5U})
      for (const std::size_t place : {std::size_t{0}, size - 1}) {
        std::vector<std::int64_t> entries(size, 0);
        entries[place] = 1;
        const auto together = run_jvp(with_batch(s, entries), gathered(m, 0, entries));
        EXPECT_TRUE(same_bits(gathered(together, 0, {static_cast<std::int64_t>(place)}), alone))
            << "place " << place << " of " << size << ": " << describe(s);
      }
  }
}

/// The last KV head and the heads that share it, alone: not with options that have a number to each
/// head.
TYPED_TEST(jvp_bits, no_place_among_heads_changes_one) {
  for (const Dims& dims : {Dims{2, 6, 3, 20, 200, 5, 6}, Dims{1, 4, 4, 3, 900, 64, 64},
                           Dims{2, 4, 2, 40, 130, 32, 8}}) {
    auto s = plain_call<TypeParam>(dims, 82);
    s.causal = true;
    s.query_start = {dims.keys - dims.queries};
    auto m = draw_motion(s, 83);
    const auto all = run_jvp(s, m);
    const std::vector<std::int64_t> kv_head{dims.kv_heads - 1};
    const auto heads = range(dims.heads - dims.heads / dims.kv_heads, dims.heads);
    for (auto* t : {&s.q, &m.q}) *t = gathered(*t, 1, heads);
    for (auto* t : {&s.k, &s.v, &m.k, &m.v}) *t = gathered(*t, 1, kv_head);
    EXPECT_TRUE(same_bits(gathered(all, 1, heads), run_jvp(s, m))) << describe(s);
  }
}

TYPED_TEST(jvp_bits, asking_for_less_changes_none) {
  for (const auto& s : bases<TypeParam>()) {
    const auto m = draw_motion(s, 91);
    const auto forward = run(s);
    const auto both = run_jvp(s, forward, m);
    const Told<TypeParam> told(s);
    const heed::JvpInputs inputs{.q = s.q.view(s.rank),
                                 .k = s.k.view(s.rank),
                                 .v = s.v.view(s.rank),
                                 .output = forward.o.view(s.rank),
                                 .lse = without_last_axis(forward.lse.view(s.rank))};
    heed::Tangents along{.q = m.q.view(s.rank), .k = m.k.view(s.rank), .v = m.v.view(s.rank)};
    if (m.bias.present()) along.bias = m.bias.view(s.rank);
    MovedResult<TypeParam> each{Tensor<TypeParam>(both.o.shape), Tensor<TypeParam>(both.lse.shape)};
    heed::attention_jvp(inputs, along, {.output = each.o.out(s.rank)}, told.options);
    heed::attention_jvp(inputs, along, {.lse = without_last_axis(each.lse.out(s.rank))},
                        told.options);
    EXPECT_TRUE(same_bits(each, both)) << describe(s);
  }
}

TYPED_TEST(jvp_bits, no_company_of_rows_changes_one) {
  std::vector<Call<TypeParam>> all = bases<TypeParam>();
  all.push_back(plain_call<TypeParam>({1, 2, 1, 600, 200, 8, 8}, 84));  // several tasks
  all.push_back(plain_call<TypeParam>({1, 2, 1, 40, 130, 128, 64}, 85));
  all.back().dropout = {0.3, 5};
  for (const auto& s : all) {
    const auto m = draw_motion(s, 86);
    const auto together = run_jvp(s, m);
    const std::int64_t queries = s.q.shape[2];
    for (const std::int64_t count : {1, 2, 5, 17, 200})
      for (const std::int64_t first : {std::int64_t{0}, queries / 3, queries - count}) {
        if (first < 0 || first + count > queries) continue;
        const auto rows = range(first, first + count);
        EXPECT_TRUE(same_bits(run_jvp(with_queries(s, rows, true), gathered(m, 2, rows)),
                              gathered(together, 2, rows)))
            << count << " rows from " << first << ": " << describe(s);
      }
  }
}

TYPED_TEST(jvp_bits, no_layout_changes_one) {
  for (const auto& base : bases<TypeParam>()) {
    const auto still = draw_motion(base, 87);
    const auto contiguous = run_jvp(base, still);
    for (int n = 0; n < kLayouts; ++n) {
      const auto layout = static_cast<Layout>(n);
      if (!writable(layout)) continue;  // these hold other numbers
      Call<TypeParam> s = base;
      Motion<TypeParam> m = still;
      for (auto* t : {&s.q, &s.k, &s.v, &m.q, &m.k, &m.v}) *t = laid_out(*t, layout);
      m.bias = laid_out(m.bias, layout);
      const auto forward = run(s, {.lse = true, .output = layout});
      EXPECT_TRUE(same_bits(run_jvp(s, forward, m, {}, layout), contiguous))
          << name_of(layout) << ": " << describe(s);
    }
  }
}

/// Keys that nobody may see, appended in each of the ways of masking them; they move by NaN.
TYPED_TEST(jvp_bits, no_masked_keys_at_the_end_change_one) {
  using T = TypeParam;
  for (const Dims& d : {Dims{1, 2, 1, 9, 0, 6, 7}, Dims{1, 2, 2, 1, 0, 64, 32}})
    for (const auto& [keys, more] :
         {std::pair{1, 1}, std::pair{95, 97}, std::pair{700, 96}, std::pair{768, 1025}}) {
      auto s = plain_call<T>({1, d.heads, d.kv_heads, d.queries, keys, d.size, d.value_size}, 88);
      s.query_start = {keys - d.queries};  // a window to the right ends with the last key
      const auto m = draw_motion(s, 89);
      const auto alone = run_jvp(s, m);
      const auto longer = [&, own = std::int64_t{keys}, added = std::int64_t{more}](
                              const auto& t, std::size_t axis) {
        Shape shape = t.shape;
        shape[axis] += added;
        std::remove_cvref_t<decltype(t)> to(shape);
        to.each([&](auto b, auto h, auto i, auto x) {
          if ((axis == 2 ? i : x) < own) to.at(b, h, i, x) = t.at(b, h, i, x);  // else NaN
        });
        return to;
      };
      const Motion<T> moved{m.q, longer(m.k, 2), longer(m.v, 2), longer(m.bias, 3)};
      for (int n = 0; n < kHidings; ++n) {
        const auto how = static_cast<Hiding>(n);
        const bool one = how == Hiding::window;
        const std::vector<std::int64_t> last{d.queries - 1};
        const auto hidden = with_hidden_keys(s, more, how, T(1e30));
        EXPECT_TRUE(same_bits(run_jvp(hidden, one ? gathered(moved, 2, last) : moved),
                              one ? gathered(alone, 2, last) : alone))
            << more << " keys after, hidden in way " << n << ": " << describe(s);
      }
    }
}

TYPED_TEST(jvp_bits, no_instruction_set_changes_one) {
  for (const auto& s : bases<TypeParam>()) {
    const auto m = draw_motion(s, 90);
    const auto forward = run(s);
    const auto first = run_jvp(s, forward, m);
    for (const heed::Isa isa : isas_for_races(runnable_isas())) {
      const Forced forced(isa);
      EXPECT_TRUE(same_bits(run_jvp(s, forward, m), first))
          << heed::name_of(isa) << ": " << describe(s);
    }
  }
}

}  // namespace
}  // namespace heed_test

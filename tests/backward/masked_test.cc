// What is masked neither takes nor gives a gradient, whatever stands there; a NaN that is attended
// reaches what it must and nothing else.
// Method: the same problem with and without garbage, bit by bit.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backward/support.h"
#include "forward/draws.h"

namespace heed_test {
namespace {

template <typename T>
constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();

template <typename T>
class backward_masked : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(backward_masked, Reals);

template <typename T>
T garbage(std::int64_t n) {
  const T kinds[] = {kNaN<T>, std::numeric_limits<T>::infinity(), T(1e30),
                     -std::numeric_limits<T>::infinity()};
  return kinds[n % 4];
}

/// Which (b, h, i) sees which key.
template <typename T>
bool sees(const Call<T>& s, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  const auto p = problem_of(s);
  return oracle::allowed(p, b, h, i, j) &&
         !(s.bias.present() && std::isinf(p.bias.at(b, h, i, j))) &&
         !(s.mod == Mod::holes && (i + 2 * j) % 3 == 0);
}

constexpr Masking kMasks[] = {
    Masking::causal,        Masking::causal_at_end,   Masking::window_self,  Masking::window_narrow,
    Masking::keep_half,     Masking::keep_empty_rows, Masking::bias_masking, Masking::key_lengths,
    Masking::query_lengths, Masking::everything};

/// Keys and rows with garbage in k, v, q and dO wherever nobody looks, in blocks that others see.
TYPED_TEST(backward_masked, garbage_that_nobody_sees_changes_no_bit_and_gets_zero) {
  using T = TypeParam;
  for (const Masking masking : kMasks)
    for (const auto& [queries, keys] : {std::pair{40, 90}, std::pair{150, 210}}) {
      Case c;
      c.dims = {2, 4, 2, queries, keys, 7, 6};
      c.masking = masking;
      c.seed = 800;
      c.mask_axes = 3;
      auto s = make<T>(c);
      if (s.keep.present() || masking == Masking::none) s.key_lengths = {keys - 5, keys - 9};
      if (!s.drop.present()) {
        s.drop = Tensor<std::uint8_t>({1, 1, queries, keys});
        s.drop.each([&](auto b, auto h, auto i, auto j) {
          s.drop.at(b, h, i, j) = i % 9 == 4 || j % 7 == 3;  // some rows and keys see nothing
        });
      }
      auto g = draw_d_output(s, 801);
      const auto clean = run_backward(s, run(s), g);
      auto dirty = s;
      auto dirty_g = g;
      std::int64_t count = 0;
      for (std::int64_t b = 0; b < 2; ++b)
        for (std::int64_t hk = 0; hk < 2; ++hk)
          for (std::int64_t j = 0; j < keys; ++j) {
            bool seen = false;
            for (std::int64_t h = 2 * hk; h < 2 * hk + 2; ++h)
              for (std::int64_t i = 0; i < queries; ++i) seen |= sees(s, b, h, i, j);
            if (seen) continue;
            ++count;
            for (std::int64_t x = 0; x < 7; ++x) dirty.k.at(b, hk, j, x) = garbage<T>(j + x);
            for (std::int64_t x = 0; x < 6; ++x) dirty.v.at(b, hk, j, x) = garbage<T>(j + x + 1);
            for (std::int64_t x = 0; x < 7; ++x) EXPECT_EQ(clean.dk.at(b, hk, j, x), T(0));
            for (std::int64_t x = 0; x < 6; ++x) EXPECT_EQ(clean.dv.at(b, hk, j, x), T(0));
          }
      for (std::int64_t b = 0; b < 2; ++b)
        for (std::int64_t h = 0; h < 4; ++h)
          for (std::int64_t i = 0; i < queries; ++i) {
            bool any = false;
            for (std::int64_t j = 0; j < keys; ++j) any |= sees(s, b, h, i, j);
            if (any) continue;
            ++count;
            for (std::int64_t x = 0; x < 7; ++x) dirty.q.at(b, h, i, x) = garbage<T>(i + x);
            for (std::int64_t x = 0; x < 6; ++x) dirty_g.at(b, h, i, x) = garbage<T>(i + x + 1);
            for (std::int64_t x = 0; x < 7; ++x) EXPECT_EQ(clean.dq.at(b, h, i, x), T(0));
            EXPECT_EQ(clean.ds_norms.at(b, h, i, 0), T(0));
          }
      EXPECT_GT(count, 0) << "nothing is hidden: " << describe(s);
      for (const heed::Isa isa : runnable_isas()) {
        const Forced forced(isa);
        EXPECT_TRUE(same_bits(run_backward(dirty, run(dirty), dirty_g), clean))
            << heed::name_of(isa) << ": " << describe(s);
      }
    }
}

/// A NaN in row i of q or dO reaches dQ_i and the dK and dV of keys that i sees; other rows keep
/// their bits.
TYPED_TEST(backward_masked, nan_in_a_row_reaches_its_dq_and_the_keys_it_sees_only) {
  using T = TypeParam;
  struct Where {
    Masking masking;
    std::int64_t heads, row;
  };
  // The last: alone in its tile it sees every key that the tile does, but not all of its
  // neighbours'.
  for (const Where& where :
       {Where{Masking::causal, 2, 20}, Where{Masking::window_narrow, 2, 20},
        Where{Masking::keep_half, 2, 20}, Where{Masking::window_self, 1, 74}}) {
    Case c;
    c.dims = {1, where.heads, 1, 75, 110, 6, 5};
    c.masking = where.masking;
    c.seed = 810;
    c.mask_axes = 3;
    const auto s = make<T>(c);
    const auto g = draw_d_output(s, 811);
    const auto clean = run_backward(s, g);
    const std::int64_t head = where.heads - 1, row = where.row;
    for (const bool in_q : {true, false}) {
      auto dirty = s;
      auto dirty_g = g;
      if (in_q) {
        dirty.q.at(0, head, row, 2) = kNaN<T>;
      } else {
        dirty_g.at(0, head, row, 2) = kNaN<T>;
      }
      for (const heed::Isa isa : runnable_isas()) {
        const Forced forced(isa);
        const auto got = run_backward(dirty, run(dirty), dirty_g);
        got.dq.each([&](auto b, auto h, auto i, auto x) {
          const T value = got.dq.at(b, h, i, x);
          if (h == head && i == row) {
            EXPECT_TRUE(std::isnan(value)) << "dq of the row itself";
          } else {
            EXPECT_EQ(value, clean.dq.at(b, h, i, x)) << "dq of row " << i;
          }
        });
        got.ds_norms.each([&](auto b, auto h, auto i, auto) {
          const T value = got.ds_norms.at(b, h, i, 0);
          if (h == head && i == row) {
            EXPECT_TRUE(std::isnan(value)) << "the norm of the row itself";
          } else {
            EXPECT_EQ(value, clean.ds_norms.at(b, h, i, 0)) << "the norm of row " << i;
          }
        });
        got.dk.each([&](auto b, auto h, auto j, auto x) {
          const T value = got.dk.at(b, h, j, x);
          if (sees(s, b, head, row, j)) {
            EXPECT_TRUE(std::isnan(value)) << "dk of key " << j << ", which the row sees";
          } else {
            EXPECT_EQ(value, clean.dk.at(b, h, j, x)) << "dk of key " << j;
          }
        });
        got.dv.each([&](auto b, auto h, auto j, auto x) {
          const T value = got.dv.at(b, h, j, x);
          if (!sees(s, b, head, row, j)) {
            EXPECT_EQ(value, clean.dv.at(b, h, j, x)) << "dv of key " << j;
          } else if (in_q || x == 2) {
            EXPECT_TRUE(std::isnan(value)) << "dv of key " << j << ", which the row sees";
          }
        });
      }
    }
  }
}

/// A NaN in an attended key reaches the dq of rows that see it, and no other row's.
TYPED_TEST(backward_masked, nan_in_a_key_reaches_rows_that_see_it_only) {
  using T = TypeParam;
  Case c;
  c.dims = {1, 1, 1, 75, 110, 6, 5};
  c.masking = Masking::window_narrow;
  c.seed = 820;
  const auto s = make<T>(c);
  const auto g = draw_d_output(s, 821);
  const auto clean = run_backward(s, g);
  for (const bool in_k : {true, false}) {
    auto dirty = s;
    (in_k ? dirty.k : dirty.v).at(0, 0, 30, 1) = kNaN<T>;
    for (const heed::Isa isa : runnable_isas()) {
      const Forced forced(isa);
      const auto got = run_backward(dirty, run(dirty), g);
      got.dq.each([&](auto b, auto h, auto i, auto x) {
        const T value = got.dq.at(b, h, i, x);
        if (sees(s, b, h, i, 30)) {
          EXPECT_TRUE(std::isnan(value)) << "dq of row " << i << ", which sees the key";
        } else {
          EXPECT_EQ(value, clean.dq.at(b, h, i, x)) << "dq of row " << i;
        }
      });
    }
  }
}

TYPED_TEST(backward_masked, rows_and_keys_that_are_not_there_give_zeros) {
  const auto no_keys = plain_call<TypeParam>({2, 2, 1, 5, 0, 4, 3}, 830);
  const auto a = run_backward(no_keys, draw_d_output(no_keys, 831));
  a.dq.each([&](auto b, auto h, auto i, auto x) { EXPECT_EQ(a.dq.at(b, h, i, x), TypeParam(0)); });
  const auto no_rows = plain_call<TypeParam>({2, 2, 1, 0, 800, 4, 3}, 832);
  const auto b = run_backward(no_rows, draw_d_output(no_rows, 833));
  b.dk.each([&](auto n, auto h, auto i, auto x) { EXPECT_EQ(b.dk.at(n, h, i, x), TypeParam(0)); });
  b.dv.each([&](auto n, auto h, auto i, auto x) { EXPECT_EQ(b.dv.at(n, h, i, x), TypeParam(0)); });
  const auto no_heads = plain_call<TypeParam>({2, 0, 2, 5, 800, 4, 3}, 836);  // but keys
  const auto e = run_backward(no_heads, draw_d_output(no_heads, 837));
  e.dk.each([&](auto n, auto h, auto i, auto x) { EXPECT_EQ(e.dk.at(n, h, i, x), TypeParam(0)); });
  e.dv.each([&](auto n, auto h, auto i, auto x) { EXPECT_EQ(e.dv.at(n, h, i, x), TypeParam(0)); });
  auto masked = plain_call<TypeParam>({1, 2, 1, 70, 800, 4, 3}, 834);
  masked.key_lengths = {0};
  masked.sinks = {0.5, 1};
  const auto c = run_backward(masked, draw_d_output(masked, 835));
  each_gradient(c, [&](const Tensor<TypeParam>& t, const char* name) {
    t.each([&](auto n, auto h, auto i, auto x) {
      EXPECT_TRUE(t.at(n, h, i, x) == 0 && !std::signbit(t.at(n, h, i, x))) << name;
    });
  });
}

}  // namespace
}  // namespace heed_test

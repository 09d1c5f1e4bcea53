// What is masked neither takes nor gives a gradient, whatever stands there; a NaN that is attended
// reaches what it must and nothing else.
// Method: the same problem with and without garbage, bit by bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backward/judge.h"
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

/// Forward and backward, in the type.
template <typename T>
Gradients<T> gradients_in(const Call<T>& call, const Tensor<T>& g, heed::DType dtype) {
  if constexpr (std::is_same_v<T, float>) {
    if (dtype != heed::DType::f32) {
      Call<float> s = nearest(call, dtype);
      s.fewer_axes = false;
      return run_half_backward(s, run_half(s, dtype), nearest(g, dtype), Layout::bhtd, dtype);
    }
  }
  return run_backward(call, run(call), g);
}

/// Keys and rows with garbage in k, v, q and dO wherever nobody looks, in blocks that others see.
template <typename T>
void expect_garbage_without_effect(heed::DType dtype) {
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
      const auto clean_on = [&](heed::Isa isa) {
        const Forced forced(isa);
        return gradients_in(s, g, dtype);
      };
      const auto clean = clean_on(runnable_isas().back());
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
      for (const heed::Isa isa : isas_of(dtype)) {
        const auto got = [&] {
          const Forced forced(isa);
          return gradients_in(dirty, dirty_g, dtype);
        }();
        EXPECT_TRUE(same_bits(got, isa == kPaired ? clean_on(isa) : clean))
            << heed::name_of(isa) << ", " << heed::name_of(dtype) << ": " << describe(s);
      }
    }
}

TYPED_TEST(backward_masked, garbage_that_nobody_sees_changes_no_bit_and_gets_zero) {
  expect_garbage_without_effect<TypeParam>(heed::detail::dtype_of<TypeParam>());
  if (std::is_same_v<TypeParam, double>) return;
  for (const heed::DType half : {heed::DType::f16, heed::DType::bf16})
    expect_garbage_without_effect<float>(half);
}

enum class Poison { q, output, lse, d_output };

const char* name_of(Poison poison) {
  constexpr const char* kNames[] = {"q", "O", "LSE", "dO"};
  return kNames[static_cast<int>(poison)];
}

/// A row of a call, and which keys it sees or drops.
template <typename T>
struct PoisonedRow {
  const Call<T>& s;
  std::int64_t head, row;

  [[nodiscard]] bool is(std::int64_t h, std::int64_t i) const { return h == head && i == row; }
  [[nodiscard]] bool sees(std::int64_t j) const { return heed_test::sees(s, 0, head, row, j); }
  [[nodiscard]] bool drops(std::int64_t j) const {
    return s.dropout.factor(s.dropout.head_of(0, head, s.q.shape[1]), row, j) == 0;
  }
};

/// The gradients with one element of the row NaN.
template <typename T>
Gradients<T> run_poisoned(const PoisonedRow<T>& at, Tensor<T> g, Poison poison) {
  auto s = at.s;
  if (poison == Poison::q) s.q.at(0, at.head, at.row, 2) = kNaN<T>;
  if (poison == Poison::d_output) g.at(0, at.head, at.row, 2) = kNaN<T>;
  auto forward = run(s);
  if (poison == Poison::output) forward.o.at(0, at.head, at.row, 2) = kNaN<T>;
  if (poison == Poison::lse) forward.lse.at(0, at.head, at.row, 0) = kNaN<T>;
  return run_backward(s, forward, g);
}

/// NaN where `reached` says so, and nowhere else another bit than `clean` has.
template <typename T, typename Reached>
void expect_nan_only_where(const Reached& reached, const Tensor<T>& got, const Tensor<T>& clean,
                           const char* name) {
  Tensor<T> expected = clean;
  expected.each([&](auto b, auto h, auto i, auto x) {
    if (reached(h, i, x)) expected.at(b, h, i, x) = kNaN<T>;
  });
  EXPECT_TRUE(same_bits(got, expected)) << name;
}

/// docs/numerics.md, section 1: dQ_i, the dK_j of the keys that the row attends to, and sums over
/// rows; of q or LSE also dV_j, but for weights that are dropped; of dO its column of dV_j.
template <typename T>
void expect_nan_where_promised(const PoisonedRow<T>& at, Poison poison, const Gradients<T>& got,
                               const Gradients<T>& clean) {
  const auto own = [&](auto h, auto i, auto) { return at.is(h, i); };
  const auto of_head = [&](auto, auto, auto h) { return h == at.head; };
  expect_nan_only_where(own, got.dq, clean.dq, "dq");
  expect_nan_only_where(own, got.ds_norms, clean.ds_norms, "ds_norms");
  expect_nan_only_where([&](auto, auto j, auto) { return at.sees(j); }, got.dk, clean.dk, "dk");
  const auto in_dv = [&](auto, auto j, auto x) {
    if (!at.sees(j) || poison == Poison::output) return false;
    return poison == Poison::d_output ? x == 2 : !at.drops(j);
  };
  expect_nan_only_where(in_dv, got.dv, clean.dv, "dv");
  expect_nan_only_where(of_head, got.dscale, clean.dscale, "dscale");
  expect_nan_only_where(of_head, got.dalibi, clean.dalibi, "dalibi");
  expect_nan_only_where(of_head, got.dsinks, clean.dsinks, "dsinks");
  expect_nan_only_where([&](auto, auto, auto j) { return at.sees(j); }, got.dbias, clean.dbias,
                        "dbias");
}

TYPED_TEST(backward_masked, nan_in_a_row_reaches_its_dq_and_the_keys_it_sees_only) {
  using T = TypeParam;
  struct Where {
    Masking masking;
    std::int64_t heads, row;
    double dropout;
  };
  // The one of window_self: alone in its tile it sees every key that the tile does, but not all of
  // its neighbours'.
  for (const Where& where :
       {Where{Masking::causal, 2, 20, 0}, Where{Masking::window_narrow, 2, 20, 0},
        Where{Masking::keep_half, 2, 20, 0}, Where{Masking::window_self, 1, 74, 0},
        Where{Masking::none, 2, 20, 0.4}, Where{Masking::keep_half, 2, 20, 0.4},
        Where{Masking::window_narrow, 1, 74, 0.4}}) {
    Case c;
    c.dims = {1, where.heads, 1, 75, 110, 6, 5};
    c.masking = where.masking;
    c.seed = 810;
    c.mask_axes = 3;
    auto s = make<T>(c);
    s.dropout = {.p = where.dropout, .seed = 812};
    for (std::int64_t h = 0; h < where.heads; ++h) {
      s.alibi.push_back(0.25 + static_cast<double>(h));
      s.sinks.push_back(0.5);
    }
    s.bias = Tensor<double>({1, 1, 1, 110});  // so that its gradient is a sum over rows
    s.bias.each([&](auto b, auto h, auto i, auto j) {
      s.bias.at(b, h, i, j) = static_cast<double>(j % 7) / 8;
    });
    const PoisonedRow<T> at{s, where.heads - 1, where.row};
    std::int64_t dropped = 0;
    for (std::int64_t j = 0; j < 110; ++j) dropped += at.sees(j) && at.drops(j);
    EXPECT_EQ(dropped > 0, where.dropout > 0) << describe(s);
    const auto g = draw_d_output(s, 811);
    const auto clean = run_backward(s, g);
    for (const Poison poison : {Poison::q, Poison::output, Poison::lse, Poison::d_output})
      for (const heed::Isa isa : runnable_isas()) {
        const Forced forced(isa);
        SCOPED_TRACE(testing::Message() << "NaN in " << name_of(poison) << ", "
                                        << heed::name_of(isa) << ": " << describe(s));
        expect_nan_where_promised(at, poison, run_poisoned(at, g, poison), clean);
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

/// docs/numerics.md, section 1: D of a row whose O is all zeros is 0.
TYPED_TEST(backward_masked, nan_in_d_output_of_a_row_whose_output_is_zero_goes_through_v_alone) {
  using T = TypeParam;
  const auto nan_in = [](const Tensor<T>& t) {
    return std::any_of(t.memory.begin(), t.memory.end(), [](T x) { return std::isnan(x); });
  };
  auto zeros = plain_call<T>({1, 1, 1, 1, 5, 4, 3}, 851);
  zeros.sinks = {0.5};
  auto dropped = zeros;
  std::fill(zeros.v.memory.begin(), zeros.v.memory.end(), T{0});
  dropped.dropout = {.p = 0.99, .seed = 7};
  for (std::int64_t j = 0; j < 5; ++j) {
    ASSERT_TRUE((PoisonedRow<T>{dropped, 0, 0}.drops(j)));
  }
  const auto g = draw_d_output(zeros, 853);
  for (const heed::Isa isa : runnable_isas())
    for (const auto* s : {&zeros, &dropped}) {
      const Forced forced(isa);
      const auto got = run_poisoned<T>({*s, 0, 0}, g, Poison::d_output);
      EXPECT_EQ(nan_in(got.dq), s == &zeros);
      EXPECT_EQ(nan_in(got.dk), s == &zeros);
      EXPECT_EQ(got.dsinks.at(0, 0, 0, 0), T{0});
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

// The forward-mode derivative against derivatives that know no formula, against the backward pass,
// and what must not change it.
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include "backward/support.h"
#include "forward/draws.h"
#include "forward/executors.h"
#include "heed/error.h"
#include "support.h"

namespace heed_test {
namespace {

Call<double> call_of(const Dims& dims, Masking masking, std::uint64_t seed, double dropout = 0) {
  Case c;
  c.dims = dims;
  c.masking = masking;
  c.seed = seed;
  c.mask_axes = 7;
  c.dropout = dropout;
  return make<double>(c);
}

void expect_steps(const Call<double>& s, std::uint64_t seed) {
  const auto m = draw_motion(s, seed);
  const auto steps = oracle::moved_by_complex_step(problem_of(s), m.plain());
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    const auto got = run_jvp(s, m);
    const auto expect_near = [&](const Tensor<double>& t, const oracle::Truth& want) {
      double largest = 0;
      for (const double x : want.value) largest = std::max(largest, std::fabs(x));
      std::size_t n = 0;
      t.each([&](auto b, auto h, auto i, auto x) {
        ASSERT_NEAR(t.at(b, h, i, x), want.value[n++], 1e-13 * largest) << describe(s);
      });
    };
    expect_near(got.o, steps.o);
    expect_near(got.lse, steps.lse);
  }
}

TEST(jvp_float64, equals_a_complex_step_for_every_masking) {
  for (int masking = 0; masking < kMaskings; ++masking)
    for (const double dropout : {0.0, 0.4}) {
      const auto seed = static_cast<std::uint64_t>(600 + masking);
      expect_steps(call_of({2, 4, 2, 6, 9, 5, 4}, static_cast<Masking>(masking), seed, dropout),
                   seed);
    }
}

TEST(jvp_float64, equals_a_complex_step_on_several_blocks_and_splits) {
  expect_steps(call_of({1, 2, 1, 70, 900, 9, 6}, Masking::everything, 61), 61);
  expect_steps(call_of({1, 2, 1, 70, 900, 9, 6}, Masking::causal_at_end, 62), 62);
}

TEST(jvp_float64, equals_a_complex_step_through_a_bent_score_mod) {
  auto s = plain_call<double>({1, 2, 1, 6, 8, 4, 3}, 51);
  s.mod = Mod::bend;
  s.softcap = 1.5;
  s.normalize_qk = true;
  s.scale = {4};
  s.alibi = {0.25, 0.5};
  expect_steps(s, 2);
}

double dot(const Tensor<double>& a, const Tensor<double>& b) {
  double sum = 0;
  a.each([&](auto n, auto h, auto i, auto x) { sum += a.at(n, h, i, x) * b.at(n, h, i, x); });
  return sum;
}

/// <J u, g> = <u, J' g>: the two modes hold each other.
TEST(jvp_float64, is_the_adjoint_of_the_backward_pass) {
  for (int masking = 0; masking < kMaskings; ++masking) {
    const auto s = call_of({1, 4, 2, 90, 800, 24, 20}, static_cast<Masking>(masking),
                           static_cast<std::uint64_t>(640 + masking), masking % 3 == 0 ? 0.2 : 0);
    auto m = draw_motion(s, 65);
    if (!s.bias.present()) m.bias = {};
    const auto g = draw_d_output(s, 66);
    const auto back = run_backward(s, g);
    double pulled = dot(back.dq, m.q) + dot(back.dk, m.k) + dot(back.dv, m.v);
    if (s.bias.present()) pulled += dot(back.dbias, m.bias);
    const double pushed = dot(run_jvp(s, m).o, g);
    // Sums of some ten thousand products: 1e-13 of their magnitude is a hundred times their
    // rounding.
    double magnitude = 1;
    for (const auto& [gradient, along] :
         {std::pair{&back.dq, &m.q}, std::pair{&back.dk, &m.k}, std::pair{&back.dv, &m.v}})
      magnitude += std::sqrt(dot(*gradient, *gradient) * dot(*along, *along));
    EXPECT_NEAR(pushed, pulled, 1e-13 * magnitude) << describe(s);
  }
}

template <typename T>
class jvp : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(jvp, Reals);

TYPED_TEST(jvp, has_the_same_bits_for_any_threads) {
  for (const auto& [masking, dims] :
       {std::pair{Masking::none, Dims{2, 4, 2, 300, 900, 9, 5}},
        std::pair{Masking::causal_at_end, Dims{2, 4, 2, 300, 900, 9, 5}},
        std::pair{Masking::everything, Dims{2, 4, 2, 300, 900, 9, 5}},
        std::pair{Masking::everything, Dims{1, 2, 1, 3, 900, 128, 64}},
        std::pair{Masking::none, Dims{1, 1, 1, 70, 800, 192, 128}}}) {
    Case c;
    c.dims = dims;
    c.masking = masking;
    c.seed = 67;
    c.mask_axes = 3;
    const auto s = make<TypeParam>(c);
    const auto m = draw_motion(s, 68);
    const auto forward = run(s);
    const auto one = run_jvp(s, forward, m, {.executor = nullptr, .threads = 1});
    for (const int threads : thread_counts())
      EXPECT_TRUE(same_bits(run_jvp(s, forward, m, {.executor = nullptr, .threads = threads}), one))
          << describe(s);
  }
}

// A call takes no more threads than it has work for: here each of them has a share.
TYPED_TEST(jvp, has_the_same_bits_where_64_threads_share) {
  const auto s = for_many_threads<TypeParam>(Masking::everything);
  const auto m = draw_motion(s, 69);
  const auto forward = run(s);
  expect_same_where_64_threads_share(
      [&](const auto& execution) { return run_jvp(s, forward, m, execution); });
}

TYPED_TEST(jvp, is_zero_where_nothing_moves) {
  auto s = plain_call<TypeParam>({1, 2, 1, 20, 50, 5, 4}, 69);
  s.query_lengths = {12};
  const auto still = run_jvp(s, Motion<TypeParam>{});
  still.o.each([&](auto b, auto h, auto i, auto x) { EXPECT_EQ(still.o.at(b, h, i, x), 0); });
  still.lse.each([&](auto b, auto h, auto i, auto) { EXPECT_EQ(still.lse.at(b, h, i, 0), 0); });
  const auto moving = run_jvp(s, draw_motion(s, 70));
  for (std::int64_t i = 12; i < 20; ++i) {  // rows that see no key
    EXPECT_EQ(moving.o.at(0, 1, i, 2), 0);
    EXPECT_EQ(moving.lse.at(0, 1, i, 0), 0);
  }
}

/// Rows whose squares are infinite count as rows of zeros, which normalize_qk does not move.
TYPED_TEST(jvp, of_rows_too_long_to_be_squared_is_that_of_rows_that_stay) {
  using T = TypeParam;
  auto s = plain_call<T>({1, 1, 1, 6, 9, 4, 3}, 75);
  s.normalize_qk = true;
  const T large = std::numeric_limits<T>::max() / 3;
  for (std::int64_t x = 0; x < 4; ++x) s.q.at(0, 0, 2, x) = s.k.at(0, 0, 5, x) = large;
  auto m = draw_motion(s, 76);
  // so large that their products overflow, too
  for (auto* t : {&m.q, &m.k})
    for (T& x : t->memory) x *= T(1e6);
  auto still = m;
  for (std::int64_t x = 0; x < 4; ++x) still.q.at(0, 0, 2, x) = still.k.at(0, 0, 5, x) = 0;
  const auto moved = run_jvp(s, m);
  EXPECT_FALSE(std::isnan(moved.o.at(0, 0, 2, 0)));
  EXPECT_TRUE(same_bits(moved, run_jvp(s, still)));
}

/// NaN and infinity in inputs and tangents wherever nobody looks change no bit.
TYPED_TEST(jvp, never_sees_what_is_masked) {
  using T = TypeParam;
  for (const Masking masking : {Masking::causal, Masking::keep_half, Masking::normalized,
                                Masking::softcap_causal, Masking::bias_masking}) {
    Case c;
    c.dims = {2, 4, 2, 60, 210, 7, 6};
    c.masking = masking;
    c.seed = 71;
    c.mask_axes = 3;
    auto s = make<T>(c);
    s.key_lengths = {190, 150};
    auto m = draw_motion(s, 72);
    const auto clean = run_jvp(s, m);
    const auto problem = problem_of(s);
    const std::int64_t group = c.dims.heads / c.dims.kv_heads;
    std::int64_t hidden = 0;
    for (std::int64_t b = 0; b < c.dims.batch; ++b)
      for (std::int64_t h = 0; h < c.dims.kv_heads; ++h)
        for (std::int64_t j = 0; j < c.dims.keys; ++j) {
          bool seen = false;
          for (std::int64_t i = 0; i < group * c.dims.queries; ++i)
            seen |= oracle::allowed(problem, b, h * group + i % group, i / group, j);
          if (seen) continue;
          ++hidden;
          s.k.at(b, h, j, 0) = m.k.at(b, h, j, 1) = std::numeric_limits<T>::quiet_NaN();
          s.v.at(b, h, j, 0) = m.v.at(b, h, j, 1) = std::numeric_limits<T>::infinity();
        }
    EXPECT_GE(hidden, c.dims.kv_heads * (20 + 60)) << describe(s);  // those past the lengths
    EXPECT_TRUE(same_bits(run_jvp(s, m), clean)) << describe(s);
  }
}

TYPED_TEST(jvp, carries_what_is_not_a_number_where_it_is_seen) {
  using T = TypeParam;
  auto s = plain_call<T>({1, 1, 1, 20, 30, 4, 3}, 73);
  s.causal = true;
  auto m = draw_motion(s, 74);
  m.q.at(0, 0, 5, 0) = std::numeric_limits<T>::quiet_NaN();
  m.v.at(0, 0, 12, 1) = std::numeric_limits<T>::quiet_NaN();
  const auto r = run_jvp(s, m);
  for (std::int64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(std::isnan(r.lse.at(0, 0, i, 0)), i == 5) << i;
    EXPECT_EQ(std::isnan(r.o.at(0, 0, i, 0)), i == 5) << i;
    EXPECT_EQ(std::isnan(r.o.at(0, 0, i, 1)), i == 5 || i >= 12) << i;
  }
}

std::string message_of(const heed::JvpInputs& inputs, const heed::Tangents& tangents,
                       const heed::JvpOutputs& outputs,
                       const heed::AttentionOptions& options = {}) {
  try {
    heed::attention_jvp(inputs, tangents, outputs, options);
  } catch (const heed::Error& error) {
    EXPECT_EQ(error.kind(), heed::ErrorKind::argument);
    return error.what();
  }
  return "no error";
}

TEST(jvp_errors, name_the_argument_and_what_was_expected) {
  const auto s = plain_call<float>({1, 2, 1, 3, 5, 4, 6}, 75);
  const auto forward = run(s);
  Tensor<float> o(forward.o.shape), lse_tangent(forward.lse.shape), other({1, 2, 3, 5});
  Tensor<double> wide(s.q.shape);
  std::fill(wide.memory.begin(), wide.memory.end(), 1.0);
  std::fill(other.memory.begin(), other.memory.end(), 1.0F);
  heed::TensorView moved_lse = lse_tangent.out();
  --moved_lse.rank;
  heed::ConstTensorView lse = forward.lse.view();
  --lse.rank;
  const heed::JvpInputs good{
      .q = s.q.view(), .k = s.k.view(), .v = s.v.view(), .output = forward.o.view(), .lse = lse};
  auto bad = good;
  bad.lse = {};
  EXPECT_EQ(message_of(bad, {}, {.output = o.out(), .lse = moved_lse}),
            "attention_jvp: lse is absent; expected a view to read from");
  EXPECT_EQ(message_of(good, {.q = wide.view()}, {.output = o.out(), .lse = moved_lse}),
            "attention_jvp: tangents.q is float64; expected float32, the type of q");
  EXPECT_EQ(message_of(good, {.k = other.view()}, {.output = o.out(), .lse = moved_lse}),
            "attention_jvp: tangents.k has shape [1, 2, 3, 5]; expected [1, 1, 5, 4]");
  EXPECT_EQ(message_of(good, {.bias = s.q.view()}, {.output = o.out(), .lse = moved_lse}),
            "attention_jvp: tangents.bias has shape [1, 2, 3, 4]; expected one that broadcasts to "
            "[1, 2, 3, 5]");
  const std::int64_t whole[] = {1, 2, 3, 4, 5};
  EXPECT_EQ(
      message_of(good, {.bias = heed::view(whole, {1, 5})}, {.output = o.out(), .lse = moved_lse}),
      "attention_jvp: tangents.bias is int64; expected a floating type");
  EXPECT_EQ(message_of(good, {.v = s.v.view()}, {.output = other.out()}),
            "attention_jvp: outputs.output has shape [1, 2, 3, 5]; expected [1, 2, 3, 6]");
  heed::TensorView over = o.out();
  over.data = const_cast<float*>(forward.o.memory.data());
  EXPECT_EQ(message_of(good, {}, {.output = over}),
            "attention_jvp: outputs.output overlaps output in memory; expected memory of its own");
  heed::AttentionOptions options;
  options.score_mod.f32 = [](const heed::ScoreTile&, const void*) {};
  EXPECT_EQ(message_of(good, {.q = s.q.view()}, {.output = o.out(), .lse = moved_lse}, options),
            "attention_jvp: score_mod has no derivative for float32, the type of q");
  for (const Tensor<float>* tensor : {&o, &lse_tangent})
    for (const std::byte byte : std::as_bytes(std::span(tensor->memory)))
      ASSERT_EQ(byte, std::byte{0xFF}) << "written in spite of an error";
}

}  // namespace
}  // namespace heed_test

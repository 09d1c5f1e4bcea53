// Properties of attention that hold for every bit: two problems that must have the same result, or
// a change that must not be seen.
// Method: random problems; seeds are printed with a failure.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "forward/draws.h"

namespace heed_test {
namespace {

/// What the type of the call has; 1e30 is infinite in float16.
template <typename T>
T poison(const Call<T>& call, Random& random) {
  const T infinity = std::numeric_limits<T>::infinity();
  return random.pick(
      {std::numeric_limits<T>::quiet_NaN(), infinity, -infinity, held(call, T(1e30)), T(-7)});
}

TEST(property, permuted_queries_permute_rows) {  // P2
  for_draws(2, usual_draws(), [](Random& random, auto real) {
    const auto s = random_call<decltype(real)>(random, placeless());
    const auto order = shuffled(s.q.shape[2], random);
    EXPECT_TRUE(same_bits(run(with_queries(s, order, false)), gathered(run(s), 2, order)))
        << describe(s);
  });
}

TEST(property, permuted_batch_permutes_entries) {  // P3
  for_draws(3, usual_draws(), [](Random& random, auto real) {
    const auto s = random_call<decltype(real)>(random, placeless());
    const auto order = shuffled(s.q.shape[0], random);
    EXPECT_TRUE(same_bits(run(with_batch(s, order)), gathered(run(s), 0, order))) << describe(s);
  });
}

TEST(property, permuted_heads_permute_heads) {  // P3
  for_draws(4, usual_draws(), [](Random& random, auto real) {
    const auto s = random_call<decltype(real)>(
        random, {Masking::none, Masking::keep_half, Masking::bias_masking, Masking::causal});
    const std::int64_t groups = s.k.shape[1], size = s.q.shape[1] / groups;
    const auto order = shuffled(groups, random);
    std::vector<std::int64_t> heads;
    for (const auto g : order)
      for (std::int64_t h = 0; h < size; ++h) heads.push_back(g * size + h);
    auto moved = s;
    moved.q = gathered(s.q, 1, heads);
    moved.k = gathered(s.k, 1, order);
    moved.v = gathered(s.v, 1, order);
    moved.keep = gathered_mask(s.keep, 1, heads);
    moved.bias = gathered_mask(s.bias, 1, heads);
    EXPECT_TRUE(same_bits(run(moved), gathered(run(s), 1, heads))) << describe(s);
  });
}

TEST(property, one_allowed_key_gives_its_v) {  // P7
  for_draws(7, usual_draws(), [](Random& random, auto real) {
    using T = decltype(real);
    auto s = random_call<T>(
        random, {Masking::none, Masking::bias_finite, Masking::alibi, Masking::normalized});
    const Dims d = s.dims();
    if (s.v.count() > 0) s.v.at(0, 0, 0, 0) = T(-0.0);
    s.keep = Tensor<std::uint8_t>({1, 1, d.queries, d.keys});
    std::vector<std::int64_t> chosen;
    for (std::int64_t i = 0; i < d.queries; ++i) chosen.push_back(random.below(d.keys));
    s.keep.each([&](auto b, auto h, auto i, auto j) {
      s.keep.at(b, h, i, j) = chosen[static_cast<std::size_t>(i)] == j;
    });
    Tensor<T> expected({d.batch, d.heads, d.queries, d.value_size});
    expected.each([&](auto b, auto h, auto i, auto x) {
      expected.at(b, h, i, x) =
          s.v.at(b, h / (d.heads / d.kv_heads), chosen[static_cast<std::size_t>(i)], x) + T(0);
    });
    EXPECT_TRUE(same_bits(run(s).o, expected)) << describe(s);
  });
}

/// More than this share of the draws proves something; of a few draws, chance decides.
void expect_share(int proving, int ran, double share, const char* what) {
  if (ran >= 50) {
    EXPECT_GT(proving, share * ran) << what;
  }
}

TEST(property, the_future_leaks_into_no_causal_row) {  // P8
  int proving = 0;
  const int ran = for_draws(8, usual_draws(), [&](Random& random, auto real) {
    using T = decltype(real);
    auto s = random_call<T>(random, {Masking::causal, Masking::softcap_causal});
    const Dims d = s.dims();
    const std::int64_t cut = random.below(d.keys) + 1;  // rows before it see no key from it on
    const auto rows = range(0, std::min(cut, d.queries));
    proving += cut < d.keys;
    for (Tensor<T>* t : {&s.k, &s.v}) *t = laid_out(*t, Layout::bthd);
    const auto before = gathered(run(s), 2, rows);
    for (Tensor<T>* t : {&s.k, &s.v})
      t->each([&](auto b, auto h, auto j, auto x) {
        if (j >= cut) t->at(b, h, j, x) = poison(s, random);
      });
    EXPECT_TRUE(same_bits(gathered(run(s), 2, rows), before)) << "cut " << cut << describe(s);
  });
  expect_share(proving, ran, 0.9, "draws with a future");
}

/// Maskings that hide something from most rows.
const std::vector<Masking> kHiding{
    Masking::causal,        Masking::causal_at_end,   Masking::window_self,
    Masking::window_narrow, Masking::keep_half,       Masking::drop_half,
    Masking::bias_masking,  Masking::keep_empty_rows, Masking::softcap_causal,
    Masking::key_lengths,   Masking::query_lengths,   Masking::score_mod,
    Masking::everything};

/// Everything that one row may not see is poisoned, for that row alone to be looked at.
TEST(property, what_any_mask_hides_changes_no_bit) {  // P9
  int proving = 0;
  const int ran = for_draws(9, 2 * usual_draws(), [&](Random& random, auto real) {
    using T = decltype(real);
    auto s = random_call<T>(random, kHiding);
    const Dims d = s.dims();
    for (Tensor<T>* t : {&s.k, &s.v}) *t = laid_out(*t, Layout::bthd);
    const auto before = run(s);
    const std::int64_t b = random.below(d.batch), h = random.below(d.heads),
                       i = random.below(d.queries), hk = h / (d.heads / d.kv_heads);
    const auto problem = problem_of(s);
    const int which = static_cast<int>(random.between(1, 3));  // k, v, or both
    auto poisoned = s;
    bool any = false;
    for (std::int64_t j = 0; j < d.keys; ++j) {
      const bool seen = oracle::allowed(problem, b, h, i, j) &&
                        !(s.bias.present() && std::isinf(problem.bias.at(b, h, i, j))) &&
                        !(s.mod == Mod::holes && (i + 2 * j) % 3 == 0);
      if (seen) continue;
      any = true;
      for (std::int64_t x = 0; x < d.size && (which & 1); ++x)
        poisoned.k.at(b, hk, j, x) = poison(s, random);
      for (std::int64_t x = 0; x < d.value_size && (which & 2); ++x)
        poisoned.v.at(b, hk, j, x) = poison(s, random);
      const bool bias_hides = s.bias.present() && std::isinf(problem.bias.at(b, h, i, j));
      if (s.bias.shape[2] == d.queries && s.bias.shape[3] == d.keys && !bias_hides)
        poisoned.bias.at(s.bias.shape[0] > 1 ? b : 0, s.bias.shape[1] > 1 ? h : 0, i, j) = NAN;
    }
    proving += any;
    const auto after = run(poisoned);
    const auto row = [&](const Result<T>& r) {
      return gathered(gathered(gathered(r, 0, {b}), 1, {h}), 2, {i});
    };
    EXPECT_TRUE(same_bits(row(after), row(before)))
        << "row " << b << ", " << h << ", " << i << ", which " << which << ": " << describe(s);
  });
  expect_share(proving, ran, 2.0 / 3, "draws in which something is hidden");
}

TEST(property, an_empty_row_is_zero_and_its_lse_minus_infinity_or_the_sink) {  // P10
  for_draws(10, usual_draws(), [](Random& random, auto real) {
    using T = decltype(real);
    auto s = random_call<T>(random);
    const Dims d = s.dims();
    const std::int64_t empty = random.below(d.queries);
    s.drop = Tensor<std::uint8_t>({1, 1, d.queries, d.keys});
    s.drop.each([&](auto b, auto h, auto i, auto j) { s.drop.at(b, h, i, j) = i == empty; });
    const auto r = gathered(run(s, {.lse = true, .weights = true}), 2, {empty});
    EXPECT_TRUE(same_bits(r.o,
                          [&] {
                            Tensor<T> zero(r.o.shape);
                            zero.each(
                                [&](auto b, auto h, auto i, auto x) { zero.at(b, h, i, x) = 0; });
                            return zero;
                          }()))
        << describe(s);
    r.weights.each([&](auto b, auto h, auto i, auto j) {
      EXPECT_EQ(r.weights.at(b, h, i, j), T(0)) << describe(s);
    });
    r.lse.each([&](auto b, auto h, auto i, auto x) {
      const T lse = r.lse.at(b, h, i, x);
      if (s.sinks.empty()) {
        EXPECT_EQ(lse, -std::numeric_limits<T>::infinity()) << describe(s);
      } else {
        const T sink = static_cast<T>(s.sinks[static_cast<std::size_t>(h)]);
        EXPECT_NEAR(lse, sink, 4 * std::numeric_limits<T>::epsilon() * std::fabs(sink));
      }
    });
  });
}

TEST(property, twice_q_at_half_the_scale_is_the_same) {  // P12
  for_draws(12, usual_draws(), [](Random& random, auto real) {
    using T = decltype(real);
    auto s = random_call<T>(random);
    if (s.normalize_qk) s.normalize_qk = false;
    s.scale = {0.375};
    const auto before = run(s);
    s.q = laid_out(s.q, Layout::padded_row);
    s.q.each([&](auto b, auto h, auto i, auto x) { s.q.at(b, h, i, x) *= 2; });
    s.scale = {0.1875};
    EXPECT_TRUE(same_bits(run(s), before)) << describe(s);
  });
}

/// In float16 where both are normal numbers; beneath them a multiple of o has more digits than o,
/// and each of the two is rounded by half of 2^-24.
TEST(property, v_times_a_power_of_two_is_o_times_it) {  // P13
  for_draws(13, usual_draws(), [](Random& random, auto real) {
    using T = decltype(real);
    auto s = random_call<T>(random);
    const bool f16 = s.dtype == heed::DType::f16;
    const T factor = random.pick({T(0.5), T(-2), T(f16 ? 32 : 1024)});  // 1000 is in v
    s.v = laid_out(s.v, Layout::bhtd);
    auto times = s;
    s.v.each([&](auto b, auto h, auto j, auto x) {
      const T product = held(s, s.v.at(b, h, j, x) * factor);
      times.v.at(b, h, j, x) = product;
      s.v.at(b, h, j, x) = product / factor;  // another one only beneath the normal numbers
    });
    auto expected = run(s);
    const auto got = run(times);
    expected.o.each([&](auto b, auto h, auto i, auto x) {
      T& o = expected.o.at(b, h, i, x);
      const T product = o * factor + T(0), seen = got.o.at(b, h, i, x);
      const bool rounded = f16 && std::fmin(std::fabs(o), std::fabs(seen)) < 0x1p-14;
      const double loss = (1 + std::fabs(double{factor})) * 0x1p-25;
      EXPECT_NEAR(seen, product, rounded ? loss : 0) << describe(s);
      o = rounded ? seen : product;
    });
    EXPECT_TRUE(same_bits(got, expected)) << describe(s);
  });
}

TEST(property, a_row_alone_is_a_row_in_company) {  // P19
  auto maskings = every_masking();
  std::erase(maskings, Masking::score_mod);  // it sees the row's number
  std::erase(maskings, Masking::everything);
  for_draws(19, 3 * usual_draws() / 2, [&](Random& random, auto real) {
    auto s = random_call<decltype(real)>(random, maskings);
    if (random.chance(0.2)) s.dropout = {.p = 0.3, .seed = 19};
    const std::int64_t first = random.below(s.q.shape[2]);
    const auto rows = range(first, random.between(first + 1, s.q.shape[2]));
    EXPECT_TRUE(same_bits(run(with_queries(s, rows, true)), gathered(run(s), 2, rows)))
        << rows.size() << " rows from " << first << ": " << describe(s);
  });
}

TEST(property, shared_kv_heads_are_repeated_kv_heads) {  // P22
  for_draws(22, usual_draws(), [](Random& random, auto real) {
    const auto s = random_call<decltype(real)>(random);
    std::vector<std::int64_t> repeated;
    for (std::int64_t h = 0; h < s.q.shape[1]; ++h)
      repeated.push_back(h / (s.q.shape[1] / s.k.shape[1]));
    auto full = s;
    full.k = gathered(s.k, 1, repeated);
    full.v = gathered(s.v, 1, repeated);
    EXPECT_TRUE(same_bits(run(full), run(s))) << describe(s);
  });
}

TEST(property, a_boolean_mask_is_an_additive_one_of_zero_and_minus_infinity) {  // P23
  for_draws(23, usual_draws(), [](Random& random, auto real) {
    auto s = random_call<decltype(real)>(random, {Masking::keep_half, Masking::keep_empty_rows});
    const auto by_keep = run(s);
    auto by_drop = s, by_bias = s;
    by_drop.drop = s.keep;
    by_drop.keep = {};
    by_drop.drop.each([&](auto b, auto h, auto i, auto j) {
      auto& place = by_drop.drop.at(b, h, i, j);
      place = place == 0;
    });
    by_bias.bias = Tensor<double>(s.keep.shape);
    by_bias.keep = {};
    s.keep.each([&](auto b, auto h, auto i, auto j) {
      by_bias.bias.at(b, h, i, j) =
          s.keep.at(b, h, i, j) != 0 ? 0 : -std::numeric_limits<double>::infinity();
    });
    EXPECT_TRUE(same_bits(run(by_drop), by_keep)) << "drop: " << describe(s);
    EXPECT_TRUE(same_bits(run(by_bias), by_keep)) << "bias: " << describe(s);
  });
}

TEST(property, causal_is_a_window_without_a_right_side) {  // P24
  for_draws(24, usual_draws(), [](Random& random, auto real) {
    auto s = random_call<decltype(real)>(random, {Masking::causal, Masking::causal_at_end});
    const auto causal = run(s);
    s.causal = false;
    s.right = 0;
    EXPECT_TRUE(same_bits(run(s), causal)) << describe(s);
  });
}

TEST(property, a_key_length_is_a_slice_of_the_keys) {  // P24
  for_draws(25, usual_draws(), [](Random& random, auto real) {
    auto s = random_call<decltype(real)>(random);
    s.key_lengths = {};
    const std::int64_t length = random.between(1, s.k.shape[2]);
    const auto sliced = run(with_keys(s, range(0, length)));
    s.key_lengths = {length};
    EXPECT_TRUE(same_bits(run(s), sliced)) << "length " << length << ": " << describe(s);
  });
}

TEST(property, neutral_options_change_no_bit) {
  for_draws(29, usual_draws(), [](Random& random, auto real) {
    const auto s = random_call<decltype(real)>(random, {Masking::none, Masking::causal});
    const Dims d = s.dims();
    const auto before = run(s);
    auto neutral = s;
    neutral.bias = Tensor<double>({1, 1, 1, d.keys});
    neutral.bias.each([&](auto b, auto h, auto i, auto j) { neutral.bias.at(b, h, i, j) = 0; });
    neutral.alibi.assign(static_cast<std::size_t>(d.heads), 0.0);
    neutral.sinks.assign(static_cast<std::size_t>(d.heads),
                         -std::numeric_limits<double>::infinity());
    neutral.left = neutral.right = d.keys + d.queries;
    neutral.key_lengths = {d.keys};
    neutral.query_lengths = {d.queries};
    EXPECT_TRUE(same_bits(run(neutral), before)) << describe(s);
  });
}

TEST(property, every_pair_of_instruction_sets_agrees) {  // P27
  for_draws(27, usual_draws(), [](Random& random, auto real) {
    const auto s = random_call<decltype(real)>(random);
    // Dot products of bfloat16 have bits of their own, but where the call is to be reproducible.
    const heed::Execution execution{.reproducible = by_pairs(s)};
    std::vector<heed::Isa> isas = runnable_isas();
    if (by_pairs(s)) isas.push_back(kPaired);
    std::vector<Result<decltype(real)>> all;
    for (const heed::Isa isa : isas) {
      const Forced forced(isa);
      all.push_back(run(s, {.lse = true, .weights = true}, execution));
      EXPECT_TRUE(same_bits(all.back(), all.front())) << heed::name_of(isa) << ": " << describe(s);
    }
  });
}

}  // namespace
}  // namespace heed_test

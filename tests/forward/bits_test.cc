// The bits of an output never depend on how a call is run or on what else is in it (D0 to D6).
// Method: the same problem twice, every bit compared; NaN equals NaN, +0 is not -0.
#include <gtest/gtest.h>

#include "forward/bases.h"
#include "forward/draws.h"
#include "forward/executors.h"
#include "forward/half.h"
#include "heed/runtime.h"
#include "sanitized.h"

namespace heed_test {
namespace {

/// Sizes that models have: whole vectors, for which few rows have products of their own; scores of
/// one to five chains. Little work, but most of it enough for several threads to share.
struct Usual {
  std::int64_t queries, keys, size, value_size;
  Masking masking;
};
constexpr Usual kUsual[] = {
    {1, 1600, 128, 128, Masking::keep_half},  {2, 1600, 192, 192, Masking::none},
    {3, 1600, 64, 64, Masking::bias_masking}, {4, 1600, 128, 128, Masking::causal_at_end},
    {5, 1600, 192, 128, Masking::everything}, {4, 800, 576, 512, Masking::sinks},
    {16, 800, 64, 128, Masking::key_lengths}, {70, 800, 128, 64, Masking::causal_at_end},
};

/// Long enough for three splits of 768 keys, with heads that share keys; then kUsual.
template <typename T>
std::vector<Call<T>> bases() {
  std::vector<Call<T>> all;
  for (const Masking masking :
       {Masking::none, Masking::causal_at_end, Masking::window_causal, Masking::keep_half,
        Masking::bias_masking, Masking::key_lengths, Masking::sinks, Masking::everything}) {
    Case c;
    c.dims = {2, 4, 2, 37, 1700, 9, 5};
    c.masking = masking;
    c.mask_axes = 3;
    c.seed = 100 + all.size();
    all.push_back(make<T>(c));
  }
  Case many;  // more rows than a superblock
  many.dims = {1, 1, 1, 600, 200, 8, 8};
  many.seed = 99;
  all.push_back(make<T>(many));
  for (const Usual& usual : kUsual) {
    Case c;
    c.dims = {1, 1, 1, usual.queries, usual.keys, usual.size, usual.value_size};
    c.masking = usual.masking;
    c.mask_axes = 3;
    c.seed = 100 + all.size();
    all.push_back(make<T>(c));
  }
  return all;
}

template <typename T>
class bits : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(bits, Reals);

TYPED_TEST(bits, no_number_of_threads_changes_one) {
  for (const auto& s : each_third(bases<TypeParam>())) {
    for (const bool weights : {false, true}) {  // splits of keys are shared, too, or rows alone
      if (weights && s.dims().size > 64) continue;
      const Ask ask{.lse = true, .weights = weights};
      const auto one = run(s, ask, {.executor = nullptr, .threads = 1});
      for (const int threads : thread_counts())
        EXPECT_TRUE(same_bits(run(s, ask, {.executor = nullptr, .threads = threads}), one))
            << threads << " threads: " << describe(s);
    }
  }
}

TYPED_TEST(bits, no_share_of_64_threads_changes_one) {
  for (const Masking masking : {Masking::none, Masking::everything}) {
    const auto s = for_many_threads<TypeParam>(masking);
    SCOPED_TRACE(describe(s));
    const auto of = [&](const heed::Execution& execution) { return run(s, {}, execution); };
    expect_same_where_64_threads_share(of);
    const auto planned = [&](int threads) {
      return heed::explain(s.q.view(), s.k.view(), s.v.view(), {},
                           {.executor = nullptr, .threads = threads});
    };
    EXPECT_EQ(planned(64).threads, 64);
    EXPECT_TRUE(same_bits(of({.executor = nullptr, .threads = 64}),
                          of({.executor = nullptr, .threads = 1})));
  }
}

TYPED_TEST(bits, no_executor_changes_one) {
  for (const auto& s : each_third(bases<TypeParam>())) {
    const auto one = run(s, {}, {.executor = nullptr, .threads = 1});
    Backwards backwards;
    OwnThreads own(5);
    heed::PoolExecutor pool(3);
    EXPECT_TRUE(same_bits(run(s, {}, {.executor = &backwards, .threads = 0}), one)) << describe(s);
    EXPECT_TRUE(same_bits(run(s, {}, {.executor = &own, .threads = 0}), one)) << describe(s);
    EXPECT_TRUE(same_bits(run(s, {}, {.executor = &pool, .threads = 0}), one)) << describe(s);
  }
  Backwards used;
  const auto large = plain_call<TypeParam>({4, 4, 4, 128, 256, 32, 32}, 5);
  (void)run(large, {}, {.executor = &used, .threads = 0});
  EXPECT_GT(used.ran, 0) << "the caller's executor got no task";
  Backwards unused;
  const auto small = plain_call<TypeParam>({1, 2, 2, 16, 16, 8, 8}, 5);
  (void)run(small, {}, {.executor = &unused, .threads = 0});
  EXPECT_EQ(unused.ran, 0) << "a call too small to share went to the executor";
}

TYPED_TEST(bits, no_repetition_changes_one) {  // P20
  const auto all = bases<TypeParam>();
  EXPECT_EQ(working_threads(all[7], kRepeated), kRepeated.threads);
  const int some = sanitized() ? 5 : 25;
  for (const auto& [base, times] : {std::pair{7U, 10 * some}, std::pair{11U, some}}) {
    const auto& s = all[base];
    const auto first = run(s, {}, kRepeated);
    for (int n = 0; n < times; ++n)
      ASSERT_TRUE(same_bits(run(s, {}, kRepeated), first)) << "run " << n;
  }
}

TEST(bits_of_halves, no_repetition_changes_one) {
  for (const heed::DType dtype : {heed::DType::f16, heed::DType::bf16}) {
    const auto call = nearest(bases<float>()[7], dtype);
    const auto again = [&] { return run_half(call, dtype, {}, kRepeated); };
    const auto first = again();
    for (int n = 0; n < (sanitized() ? 20 : 100); ++n)
      ASSERT_TRUE(same_bits(again(), first)) << heed::name_of(dtype) << ", run " << n;
  }
}

TYPED_TEST(bits, no_instruction_set_changes_one) {
  for (const auto& s : bases<TypeParam>()) {
    std::vector<Result<TypeParam>> all;
    for (const heed::Isa isa : isas_for_races(runnable_isas())) {
      const Forced forced(isa);
      all.push_back(run(s, {.lse = true, .weights = true}));
      EXPECT_TRUE(same_bits(all.back(), all.front()))
          << heed::name_of(isa) << " against scalar: " << describe(s);
      EXPECT_TRUE(same_bits(run(s), all.front()))
          << heed::name_of(isa) << " without weights: " << describe(s);
    }
  }
}

TYPED_TEST(bits, asking_for_more_changes_none) {
  for (const auto& s : bases<TypeParam>()) {
    const auto all = run(s, {.lse = true, .weights = true});
    EXPECT_TRUE(same_bits(run(s, {.lse = false, .weights = false}).o, all.o)) << describe(s);
    EXPECT_TRUE(same_bits(run(s, {.lse = true, .weights = false}), all)) << describe(s);
    EXPECT_TRUE(same_bits(run(s, {.lse = false, .weights = true}).weights, all.weights))
        << describe(s);
  }
}

TYPED_TEST(bits, no_place_in_a_batch_changes_one) {
  for (auto& s : bases<TypeParam>()) {
    s.mod = Mod::none;  // it sees the entry's number
    const std::int64_t last = s.q.shape[0] - 1;
    const auto alone = run(with_batch(s, {last}));
    for (const std::size_t size : {2U, 3U, 8U})
      for (std::size_t place = 0; place < size; place += size - 1) {
        std::vector<std::int64_t> entries(size, 0);
        entries[place] = last;
        const auto together = run(with_batch(s, entries));
        EXPECT_TRUE(same_bits(gathered(together, 0, {static_cast<std::int64_t>(place)}), alone))
            << "place " << place << " of " << size << ": " << describe(s);
      }
  }
}

TYPED_TEST(bits, no_company_of_rows_changes_one) {
  for (const Masking masking : {Masking::none, Masking::causal_at_end, Masking::window_causal,
                                Masking::alibi, Masking::keep_half, Masking::bias_masking,
                                Masking::normalized, Masking::softcap_causal, Masking::sinks}) {
    Case c;
    c.dims = {1, 2, 1, 1100, 850, 5, 3};
    c.masking = masking;
    c.seed = 7;
    c.mask_axes = 3;
    const auto s = make<TypeParam>(c);
    const auto all = run(s);
    for (const std::int64_t count : {1, 2, 16, 17, 64, 1000})
      for (const std::int64_t first : {0, 95, 100}) {
        const auto rows = range(first, first + count);
        EXPECT_TRUE(same_bits(run(with_queries(s, rows, true)), gathered(all, 2, rows)))
            << count << " rows from " << first << ": " << describe(s);
      }
  }
}

/// The same for sizes of whole vectors, on every instruction set: a step of decoding has the bits
/// that its row has in the prompt, whichever kernels compute the two.
TYPED_TEST(bits, no_company_of_rows_changes_one_of_a_usual_size) {
  constexpr std::int64_t kQueries = 40;
  std::uint64_t seed = 40;
  for (const auto& [size, value_size] :
       {std::pair{64, 64}, std::pair{128, 128}, std::pair{192, 192}, std::pair{192, 128},
        std::pair{576, 512}})
    for (const auto& [masking, keys] :
         {std::pair{Masking::none, 800}, std::pair{Masking::causal_at_end, 130},
          std::pair{Masking::keep_half, 97}, std::pair{Masking::bias_masking, 100}}) {
      if (size == 576 && keys > 130) continue;  // seconds, for five chains of one split
      Case c;
      c.dims = {1, 2, ++seed % 2 == 0 ? 1 : 2, kQueries, keys, size, value_size};
      c.masking = masking;
      c.seed = seed;
      c.mask_axes = 3;
      const auto s = make<TypeParam>(c);
      for (const heed::Isa isa : isas_for_races(runnable_isas())) {
        const Forced forced(isa);
        const auto all = run(s);
        for (const std::int64_t count : {1, 2, 3, 4, 5, 16}) {
          const auto rows = range(kQueries - count, kQueries);
          EXPECT_TRUE(same_bits(run(with_queries(s, rows, true)), gathered(all, 2, rows)))
              << heed::name_of(isa) << ", the last " << count << " rows: " << describe(s);
        }
      }
    }
}

/// Keys, and how many more nobody may see: all at the size that takes no time, else the edges of
/// blocks and splits.
std::vector<std::pair<std::int64_t, std::int64_t>> padded_keys(std::int64_t size) {
  std::vector<std::pair<std::int64_t, std::int64_t>> all;
  if (size >= 64) return {{1, 1}, {95, 97}, {700, 96}, {768, 1025}};
  for (const std::int64_t keys : {1, 95, 700, 768})
    for (const std::int64_t more : {1, 7, 96, 97, 768, 1025}) all.emplace_back(keys, more);
  return all;
}

/// Keys that nobody may see, appended in each of the ways of masking them.
TYPED_TEST(bits, no_masked_keys_at_the_end_change_one) {
  std::vector<Usual> sizes(std::begin(kUsual), std::end(kUsual) - 1);
  sizes.push_back({.queries = 9, .keys = 0, .size = 6, .value_size = 7, .masking = Masking::none});
  for (const Usual& z : sizes)
    for (const auto& [keys, more] : padded_keys(z.size)) {
      auto s = plain_call<TypeParam>({1, 2, 1, z.queries, keys, z.size, z.value_size}, 11);
      s.query_start = {keys - z.queries};  // a window to the right ends with the last key
      const auto alone = run(s);
      for (int n = 0; n < kHidings; ++n) {
        const auto how = static_cast<Hiding>(n);
        const auto seen = how == Hiding::window ? gathered(alone, 2, {z.queries - 1}) : alone;
        EXPECT_TRUE(same_bits(run(with_hidden_keys(s, more, how, TypeParam(1e30))), seen))
            << more << " keys after, hidden in way " << n << ": " << describe(s);
      }
    }
}

TYPED_TEST(bits, no_layout_changes_one) {
  for (const auto& base : each_third(bases<TypeParam>())) {
    const auto contiguous = run(base);
    for (int n = 0; n < kLayouts; ++n) {
      const auto layout = static_cast<Layout>(n);
      if (!writable(layout)) continue;  // these hold other numbers; the matrix has them
      Call<TypeParam> s = base;
      for (auto* t : {&s.q, &s.k, &s.v}) *t = laid_out(*t, layout);
      EXPECT_TRUE(same_bits(run(s, {.lse = true, .weights = false, .output = layout}), contiguous))
          << name_of(layout) << ": " << describe(s);
    }
  }
}

/// Calls that are small even with all their weights: rows that fill no vector, and few rows of
/// whole ones.
template <typename T>
std::vector<Call<T>> weighed() {
  auto all =
      crossed<T>({{2, 4, 2, 40, 900, 9, 5}, {2, 2, 1, 2, 900, 64, 64}, {2, 2, 2, 3, 900, 192, 128}},
                 {Masking::none, Masking::everything}, 130);
  for (auto& s : all) s.mod = Mod::none;  // it sees the entry's and the row's number
  return all;
}

TYPED_TEST(bits, no_batch_company_or_layout_changes_a_weight) {
  const Ask ask{.lse = true, .weights = true};
  for (const auto& s : weighed<TypeParam>()) {
    const auto whole = run(s, ask);
    EXPECT_TRUE(same_bits(run(with_batch(s, {1}), ask), gathered(whole, 0, {1}))) << describe(s);
    EXPECT_TRUE(same_bits(run(with_batch(s, {0, 0, 1}), ask), gathered(whole, 0, {0, 0, 1})))
        << describe(s);
    for (const std::int64_t first : {std::int64_t{0}, s.q.shape[2] - 1}) {
      const auto rows = range(first, first + 1);
      EXPECT_TRUE(same_bits(run(with_queries(s, rows, true), ask), gathered(whole, 2, rows)))
          << "row " << first << " alone: " << describe(s);
    }
    for (int n = 0; n < kLayouts; ++n) {
      const auto layout = static_cast<Layout>(n);
      if (!writable(layout)) continue;
      Call<TypeParam> moved = s;
      for (auto* t : {&moved.q, &moved.k, &moved.v}) *t = laid_out(*t, layout);
      EXPECT_TRUE(same_bits(run(moved, {.lse = true, .weights = true, .output = layout}), whole))
          << name_of(layout) << ": " << describe(s);
    }
  }
}

TYPED_TEST(bits, masked_keys_at_the_end_have_weights_of_zero_and_change_no_other) {
  const Ask ask{.lse = true, .weights = true};
  for (const auto& [queries, size] : {std::pair{9, 6}, std::pair{2, 64}})
    for (const auto& [keys, more] :
         {std::pair{1, 1}, std::pair{95, 97}, std::pair{700, 96}, std::pair{768, 1025}}) {
      auto s = plain_call<TypeParam>({1, 2, 1, queries, keys, size, size}, 12);
      s.query_start = {keys - queries};  // a window to the right ends with the last key
      auto alone = run(s, ask);
      Tensor<TypeParam> weights({1, 2, queries, keys + more});
      const std::int64_t own = keys;
      weights.each([&](auto b, auto h, auto i, auto j) {
        weights.at(b, h, i, j) = j < own ? alone.weights.at(b, h, i, j) : TypeParam{0};
      });
      alone.weights = weights;
      for (int n = 0; n < kHidings; ++n) {
        const auto how = static_cast<Hiding>(n);
        const auto seen = how == Hiding::window ? gathered(alone, 2, {queries - 1}) : alone;
        EXPECT_TRUE(same_bits(run(with_hidden_keys(s, more, how, TypeParam(1e30)), ask), seen))
            << more << " keys after, hidden in way " << n << ": " << describe(s);
      }
    }
}

TYPED_TEST(bits, no_broadcast_stride_changes_one) {
  for (const Layout layout : {Layout::stride0_batch, Layout::stride0_head, Layout::overlapping}) {
    for (const Dims& dims : {Dims{3, 4, 2, 20, 150, 12, 9}, Dims{3, 4, 2, 2, 150, 128, 64},
                             Dims{3, 4, 4, 3, 800, 192, 128}, Dims{3, 4, 4, 20, 150, 192, 192}}) {
      Call<TypeParam> s = plain_call<TypeParam>(dims, 21);
      for (auto* t : {&s.q, &s.k, &s.v}) *t = laid_out(*t, layout);
      Call<TypeParam> copy = s;
      for (auto* t : {&copy.q, &copy.k, &copy.v}) *t = laid_out(*t, Layout::bhtd);
      EXPECT_TRUE(same_bits(run(s), run(copy))) << name_of(layout) << ": " << describe(s);
    }
  }
}

}  // namespace
}  // namespace heed_test

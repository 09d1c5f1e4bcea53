// DecodeOrder::key_by_key: as near the truth as prefill's order, the same bits for any threads,
// batch, cache and instruction set, and no other bits where it does not apply. Its sums:
// internal/few_kernels_test.cc.
// Method: the cases of few rows, each with one row and as many KV heads as heads, then bits
// compared.
#include <gtest/gtest.h>

#include <array>

#include "forward/bases.h"
#include "forward/draws.h"
#include "forward/executors.h"
#include "forward/judge.h"
#include "forward/shrink.h"

namespace heed_test {
namespace {

constexpr heed::DecodeOrder kByKey = heed::DecodeOrder::key_by_key;

/// few_cases() with one row and sizes for which the order changes, in batches of up to 3.
std::vector<Case> cases() {
  std::vector<Case> all = few_cases();
  for (std::size_t n = 0; n < all.size(); ++n) {
    Dims& d = all[n].dims;
    d.heads = d.kv_heads = static_cast<std::int64_t>(1 + n % 3);
    d.queries = 1;
    d.size = std::array{32, 128, 160, 64, 256}[n / 3 % 5];
    d.value_size = std::array{32, 96, 17, 128}[n / 5 % 4];
  }
  return all;
}

/// One case in `every`, a step that meets all that these lists vary, each with its number among
/// those that run; how many ran.
template <typename Judge>
std::size_t judge_all(std::size_t every, const Judge& judge) {
  const std::vector<Case> all = cases();
  std::size_t count = 0;
  for (std::size_t n = 0; n < all.size() && !testing::Test::HasFailure(); n += every, ++count) {
    judge_and_shrink(all[n], [&](const Case& c) { judge(c, count); });
  }
  return count;
}

TEST(decode_order, key_by_key_is_within_bounds_and_the_same_on_every_instruction_set) {
  EXPECT_EQ(judge_all(2, [](const Case& c, std::size_t n) { (void)judge<float>(c, n, kByKey); }),
            (cases().size() + 1) / 2);
}

TEST(decode_order, key_by_key_of_16_bits_has_the_bits_of_float32) {
  for (const heed::DType dtype : {heed::DType::f16, heed::DType::bf16}) {
    const auto isas = isas_of(dtype);
    EXPECT_EQ(
        judge_all(13, [&](const Case& c, std::size_t n) { judge_half(c, n, dtype, isas, kByKey); }),
        (cases().size() + 12) / 13);
  }
}

TEST(decode_order, key_by_key_by_dot_products_of_bfloat16_is_within_bounds) {
  const Forced forced(runnable_isas().back());
  heed::cap_instruction_set(kPaired);
  if (heed::instruction_set() != kPaired) {
    GTEST_SKIP() << "this CPU has no dot products of bfloat16 (" << heed::name_of(kPaired) << ")";
  }
  EXPECT_EQ(judge_all(2, [](const Case& c, std::size_t n) { judge_paired(c, n, kByKey); }),
            (cases().size() + 1) / 2);
}

/// A long row whose order of sums shows.
Call<float> long_call(std::int64_t batch = 1) {
  return plain_call<float>({batch, 4, 4, 1, 5000, 128, 64}, 11);
}

TEST(decode_order, no_number_of_threads_changes_a_bit_of_key_by_key) {
  for (const heed::DType dtype : {heed::DType::f32, heed::DType::bf16, heed::DType::f16}) {
    const Call<float> call = nearest(long_call(), dtype);
    const auto of = [&](const heed::Execution& execution) {
      return dtype == heed::DType::f32 ? run(call, {}, execution)
                                       : run_half(call, dtype, {}, execution);
    };
    const auto one = of({.threads = 1, .decode_order = kByKey});
    for (const int threads : thread_counts()) {
      OwnThreads own(threads);
      EXPECT_TRUE(same_bits(of({.threads = threads, .decode_order = kByKey}), one)) << threads;
      EXPECT_TRUE(same_bits(of({.executor = &own, .decode_order = kByKey}), one)) << threads;
    }
  }
}

TEST(decode_order, no_place_in_a_batch_changes_a_bit_of_key_by_key) {
  const Call<float> call = long_call(3);
  const Result<float> all = run(call, {}, {.decode_order = kByKey});
  for (std::int64_t b = 0; b < 3; ++b) {
    const Result<float> alone = run(with_batch(call, {b}), {}, {.decode_order = kByKey});
    alone.o.each([&](auto, auto h, auto i, auto x) {
      ASSERT_EQ(alone.o.at(0, h, i, x), all.o.at(b, h, i, x)) << b << ", " << h << ", " << x;
    });
  }
}

TEST(decode_order, no_layout_changes_a_bit_of_key_by_key) {
  const Call<float> base = plain_call<float>({3, 2, 2, 1, 800, 64, 40}, 14);
  const heed::Execution execution{.decode_order = kByKey};
  const Result<float> contiguous = run(base, {}, execution);
  EXPECT_FALSE(same_bits(contiguous, run(base)));
  for (int n = 0; n < kLayouts; ++n) {
    const auto layout = static_cast<Layout>(n);
    if (!writable(layout)) continue;  // these hold other numbers
    Call<float> s = base;
    for (auto* t : {&s.q, &s.k, &s.v}) *t = laid_out(*t, layout);
    EXPECT_TRUE(same_bits(run(s, {.output = layout}, execution), contiguous)) << name_of(layout);
  }
}

TEST(decode_order, no_masked_keys_at_the_end_change_a_bit_of_key_by_key) {
  const heed::Execution execution{.decode_order = kByKey};
  for (const auto& [keys, more] :
       {std::pair{1, 1}, std::pair{95, 97}, std::pair{700, 96}, std::pair{768, 1025}}) {
    auto s = plain_call<float>({1, 2, 2, 1, keys, 64, 32}, 15);
    s.query_start = {keys - 1};  // a window to the right ends with the last key
    const auto alone = run(s, {}, execution);
    for (int n = 0; n < kHidings; ++n) {
      const auto hidden = with_hidden_keys(s, more, static_cast<Hiding>(n), 1e30f);
      EXPECT_TRUE(same_bits(run(hidden, {}, execution), alone))
          << more << " keys after " << keys << ", hidden in way " << n;
    }
  }
}

/// The request changes bits where a sequence has one row to a KV head, d is a multiple of 32 and
/// nothing brings rows to length 1; nowhere else.
TEST(decode_order, prefill_is_the_default_and_stays_where_key_by_key_does_not_apply) {
  const auto changes = [](const Call<float>& call) {
    return !same_bits(run(call, {}, {.decode_order = kByKey}), run(call));
  };
  const auto of = [](const Dims& dims) { return plain_call<float>(dims, 12); };
  EXPECT_TRUE(changes(of({2, 3, 3, 1, 900, 64, 32})));
  EXPECT_FALSE(changes(of({2, 3, 3, 2, 900, 64, 32})));
  EXPECT_FALSE(changes(of({2, 4, 2, 1, 900, 64, 32})));
  EXPECT_FALSE(changes(of({2, 3, 3, 1, 900, 48, 32})));
  EXPECT_TRUE(changes(of({2, 3, 3, 1, 900, 64, 17})));
  Call<float> normalized = of({2, 3, 3, 1, 900, 64, 32});
  normalized.normalize_qk = true;
  EXPECT_FALSE(changes(normalized));
  const auto wide = plain_call<double>({2, 3, 3, 1, 900, 64, 32}, 12);
  EXPECT_TRUE(same_bits(run(wide, {}, {.decode_order = kByKey}), run(wide)));
}

TEST(decode_order, asking_for_more_changes_no_bit_of_key_by_key) {
  const Call<float> call = plain_call<float>({2, 3, 3, 1, 900, 64, 32}, 13);
  const heed::Execution execution{.decode_order = kByKey};
  const auto all = run(call, {.lse = true, .weights = true}, execution);
  EXPECT_TRUE(same_bits(run(call, {.lse = false}, execution).o, all.o));
  EXPECT_TRUE(same_bits(run(call, {.lse = true}, execution).lse, all.lse));
}

TEST(decode_order, explain_says_which) {
  const auto path = [](std::int64_t heads, heed::DType dtype,
                       const heed::AttentionOptions& options) {
    const auto view = [&](std::int64_t h, std::int64_t rows) {
      return heed::view(static_cast<const void*>(nullptr), dtype, {1, h, rows, 64});
    };
    return heed::explain(view(heads, 1), view(2, 500), view(2, 500), options,
                         {.decode_order = kByKey})
        .path;
  };
  const auto says = [&](std::int64_t heads, heed::DType dtype = heed::DType::f32,
                        const heed::AttentionOptions& options = {}) {
    return path(heads, dtype, options).find(", key by key") != std::string::npos;
  };
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    for (const heed::DType dtype : {heed::DType::f32, heed::DType::bf16, heed::DType::f16}) {
      EXPECT_TRUE(says(2, dtype)) << path(2, dtype, {});
    }
    EXPECT_FALSE(says(4)) << path(4, heed::DType::f32, {});
    EXPECT_FALSE(says(2, heed::DType::f64));
    EXPECT_FALSE(says(2, heed::DType::f32, {.normalize_qk = true}));
  }
}

}  // namespace
}  // namespace heed_test

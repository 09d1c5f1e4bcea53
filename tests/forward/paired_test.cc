// bfloat16 by the CPU's dot products: the case matrix against the oracle, whose bound T1 gains what
// rounding P and the output to bfloat16 may cost, and T3; and the promises on bits that hold there.
// Inputs are read as the instruction reads them: subnormal numbers as 0.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "forward/draws.h"
#include "forward/judge.h"
#include "forward/shrink.h"
#include "sanitized.h"

namespace heed_test {
namespace {

constexpr heed::DType kType = heed::DType::bf16;

class paired : public testing::Test {
 protected:
  void SetUp() override {
    heed::cap_instruction_set(kPaired);
    if (heed::instruction_set() != kPaired) {
      GTEST_SKIP() << "this CPU has no dot products of bfloat16 (" << heed::name_of(kPaired) << ")";
    }
  }
};

/// One case in `every`.
Tally judge_all(const std::vector<Case>& cases, std::size_t every) {
  Tally tally;
  for (std::size_t n = 0; n < cases.size() && !testing::Test::HasFailure(); n += every) {
    Tally one;
    judge_and_shrink(cases[n], [&](const Case& c) { one = judge_paired(c, tally.cases); });
    tally += one;
  }
  EXPECT_LE(100 * tally.mistrusted, tally.cases) << "mistrusted cases";
  return tally;
}

TEST_F(paired, sizes_lengths_and_masks_are_within_bounds) {
  const Tally tally = judge_all(core_cases(), 3);
  EXPECT_EQ(tally.cases, 738U);
  EXPECT_GE(tally.held_to_t3, 50U);
}
TEST_F(paired, layouts_are_within_bounds) { EXPECT_EQ(judge_all(layout_cases(), 1).cases, 121U); }
TEST_F(paired, masks_in_all_types_are_within_bounds) {
  EXPECT_EQ(judge_all(broadcast_cases(), 1).cases, 160U);
}
TEST_F(paired, heads_and_batch_are_within_bounds) {
  EXPECT_EQ(judge_all(head_cases(), 1).cases, 108U);
}
TEST_F(paired, value_classes_are_within_bounds) {
  EXPECT_EQ(judge_all(value_cases(), 1).cases, 540U);
}
TEST_F(paired, scales_are_within_bounds) { EXPECT_EQ(judge_all(scale_cases(), 1).cases, 140U); }
TEST_F(paired, dropout_is_within_bounds) { EXPECT_EQ(judge_all(dropout_cases(), 2).cases, 56U); }
TEST_F(paired, blocks_and_splits_are_within_bounds) {
  EXPECT_EQ(judge_all(large_cases(20, 40), 1).cases, 40U);
}

/// The few cases with sizes of whole vectors of pairs, which have products of their own.
TEST_F(paired, few_rows_are_within_bounds) {
  std::vector<Case> cases = few_cases();
  for (std::size_t n = 0; n < cases.size(); ++n) {
    cases[n].dims.size = std::array{32, 128, 160}[n / 3 % 3];
    cases[n].dims.value_size = std::array{32, 96, 256}[n % 3];
  }
  const std::size_t every = std::max<std::size_t>(one_in(cases.size()), 2);
  EXPECT_EQ(judge_all(cases, every).cases, (cases.size() - 1) / every + 1);
}

TEST_F(paired, one_visible_key_gives_its_value) {
  Call<float> call = read_by_pairs(plain_call<float>({1, 2, 1, 70, 401, 33, 19}, 5));
  call.left = call.right = 0;
  call.query_start = {77};
  const Result<float> got = run_half(call, kType);
  got.o.each([&](auto b, auto h, auto i, auto x) {
    ASSERT_EQ(got.o.at(b, h, i, x), call.v.at(b, 0, i + 77, x) + 0.0f) << i << ", " << x;
  });
}

/// Problems whose ranges of keys begin and end at odd keys, or have holes.
std::vector<Call<float>> ragged_calls() {
  std::vector<Call<float>> calls;
  for (const Dims& d : {Dims{2, 4, 2, 37, 823, 20, 9}, Dims{1, 2, 2, 130, 385, 65, 64},
                        Dims{1, 1, 1, 3, 191, 16, 32}, Dims{1, 4, 2, 66, 823, 64, 96},
                        Dims{2, 2, 1, 2, 391, 128, 32}}) {
    Call<float> call = read_by_pairs(plain_call<float>(d, 31 + static_cast<std::uint64_t>(d.keys)));
    calls.push_back(call);
    call.causal = true;
    call.query_start = {d.keys - d.queries - 1};
    calls.push_back(call);
    call.left = 100;
    calls.push_back(call);
    call.causal = false, call.left.reset(), call.query_start = {};
    call.key_lengths = {d.keys - 6};
    calls.push_back(call);
    Random random(static_cast<std::uint64_t>(d.keys));
    call.key_lengths = {};
    call.keep = Tensor<std::uint8_t>({1, 1, d.queries, d.keys});
    call.keep.each([&](auto b, auto h, auto i, auto j) {
      call.keep.at(b, h, i, j) = j % 50 != 7 && random.chance(0.6);
    });
    calls.push_back(call);
  }
  return calls;
}

TEST_F(paired, any_number_of_threads_gives_the_same_bits) {
  for (const Call<float>& call : ragged_calls()) {
    for (const bool weights : {false, true}) {  // without them splits of keys are shared, too
      const Result<float> one = run_half(call, kType, {.weights = weights}, {.threads = 1});
      for (const int threads : thread_counts()) {
        EXPECT_TRUE(
            same_bits(run_half(call, kType, {.weights = weights}, {.threads = threads}), one))
            << threads << " threads, " << describe(call);
      }
    }
  }
}

// D4: tensors that lie in any way, odd addresses too, against dense copies of them. A layout whose
// elements share memory holds other numbers than the call did.
TEST_F(paired, no_layout_and_no_broadcast_stride_changes_a_bit) {
  int count = 0;
  for (const Call<float>& call : ragged_calls()) {
    for (int n = 0; n < kLayouts; ++n) {
      const auto layout = static_cast<Layout>(n);
      const int which = count % 2 == 0 ? 7 : 1 << (count / 2 % 3);  // q, k and v, or one of them
      Call<float> spread = call, dense = call;
      int bit = 1;
      for (auto tensor : {&Call<float>::q, &Call<float>::k, &Call<float>::v}) {
        if (which & bit) spread.*tensor = laid_out(call.*tensor, layout);
        dense.*tensor = laid_out(spread.*tensor, Layout::bhtd);
        bit *= 2;
      }
      const Ask ask{.weights = true, .output = writable(layout) ? layout : Layout::bhtd};
      const auto offset = static_cast<std::size_t>(count++ / 2 % 2);
      EXPECT_TRUE(same_bits(run_half(spread, kType, ask, {}, offset),
                            run_half(dense, kType, {.weights = true})))
          << name_of(layout) << " of " << which << ": " << describe(call);
    }
  }
  EXPECT_EQ(count, 25 * kLayouts);
}

TEST_F(paired, a_row_alone_has_the_bits_that_it_has_among_others) {
  for (const Call<float>& call : ragged_calls()) {
    if (call.keep.present()) continue;
    const Result<float> all = run_half(call, kType);
    for (const std::int64_t i : {std::int64_t{0}, call.q.shape[2] / 2, call.q.shape[2] - 1}) {
      Call<float> alone = call;
      alone.q = Tensor<float>({call.q.shape[0], call.q.shape[1], 1, call.q.shape[3]});
      alone.q.each(
          [&](auto b, auto h, auto, auto x) { alone.q.at(b, h, 0, x) = call.q.at(b, h, i, x); });
      alone.query_start = {(call.query_start.empty() ? 0 : call.query_start[0]) + i};
      const Result<float> got = run_half(alone, kType);
      got.o.each([&](auto b, auto h, auto, auto x) {
        ASSERT_EQ(got.o.at(b, h, 0, x), all.o.at(b, h, i, x)) << i << ": " << describe(call);
      });
    }
  }
}

TEST_F(paired, what_is_masked_changes_no_bit) {
  for (const Call<float>& call : ragged_calls()) {
    const oracle::Problem<float> problem = problem_of(call);
    const Result<float> clean = run_half(call, kType, {.weights = true});
    Call<float> spoilt = call;
    int places = 0;
    call.k.each([&](auto b, auto h, auto j, auto x) {
      const Dims d = call.dims();
      bool seen = false;
      for (std::int64_t g = h * d.heads / d.kv_heads; g < (h + 1) * d.heads / d.kv_heads; ++g) {
        for (std::int64_t i = 0; i < d.queries; ++i) seen |= visible(call, problem, b, g, i, j);
      }
      if (seen || x > 0) return;
      ++places;
      for (std::int64_t y = 0; y < d.size; ++y) spoilt.k.at(b, h, j, y) = std::nanf("");
      for (std::int64_t y = 0; y < d.value_size; ++y) {
        spoilt.v.at(b, h, j, y) = y % 2 == 0 ? std::nanf("") : HUGE_VALF;
      }
    });
    if (!call.key_lengths.empty() || call.keep.present()) {
      EXPECT_GT(places, 0) << describe(call);
    }
    EXPECT_TRUE(same_bits(run_half(spoilt, kType, {.weights = true}), clean)) << describe(call);
  }
}

// A key that some rows see and others do not: its NaN reaches the former alone, and no bit of the
// latter.
TEST_F(paired, an_infinite_value_reaches_the_rows_that_see_it_alone) {
  for (const Call<float>& call : ragged_calls()) {
    const oracle::Problem<float> problem = problem_of(call);
    const Result<float> clean = run_half(call, kType);
    for (const std::int64_t key : {call.k.shape[2] / 2, call.k.shape[2] / 2 + 1}) {
      Call<float> spoilt = call;
      spoilt.v.at(0, 0, key, 1) = HUGE_VALF;
      const Result<float> got = run_half(spoilt, kType);
      got.o.each([&](auto b, auto h, auto i, auto x) {
        const bool reached = b == 0 && h < call.dims().heads / call.dims().kv_heads && x == 1 &&
                             visible(call, problem, b, h, i, key);
        if (reached) {
          ASSERT_FALSE(std::isfinite(got.o.at(b, h, i, x))) << i << ": " << describe(call);
        } else {
          ASSERT_EQ(got.o.at(b, h, i, x), clean.o.at(b, h, i, x)) << i << ": " << describe(call);
        }
      });
    }
  }
}

TEST_F(paired, keys_behind_the_length_and_padding_change_no_bit) {
  const Call<float> call = read_by_pairs(plain_call<float>({1, 2, 1, 40, 399, 24, 17}, 9));
  Call<float> longer = call;
  longer.k = Tensor<float>({1, 1, 640, 24});
  longer.v = Tensor<float>({1, 1, 640, 17});  // NaN behind the length
  for (auto [from, to] : {std::pair{&call.k, &longer.k}, std::pair{&call.v, &longer.v}}) {
    from->each([&, f = from, t = to](auto b, auto h, auto j, auto x) {
      t->at(b, h, j, x) = f->at(b, h, j, x);
    });
  }
  longer.key_lengths = {399};
  EXPECT_TRUE(same_bits(run_half(longer, kType), run_half(call, kType)));
}

TEST_F(paired, reproducible_gives_the_bits_of_every_other_cpu) {
  const Call<float> call = nearest(plain_call<float>({1, 2, 1, 200, 1000, 64, 64}, 3), kType);
  const Result<float> native = run_half(call, kType);
  const Result<float> wide = run_half(call, kType, {}, {.reproducible = true});
  EXPECT_FALSE(same_bits(native, wide));
  heed::cap_instruction_set(heed::Isa::avx2);
  EXPECT_TRUE(same_bits(run_half(call, kType), wide));
}

TEST_F(paired, explain_says_what_is_multiplied) {
  const auto of = [](heed::DType dtype, const heed::AttentionOptions& options = {},
                     const heed::Execution& execution = {}) {
    const auto view = heed::view(static_cast<const void*>(nullptr), dtype, {1, 2, 500, 64});
    return heed::explain(view, view, view, options, execution);
  };
  const auto native = of(kType);
  const auto floats = of(heed::DType::f32);
  const std::string name(heed::name_of(kPaired)), below(heed::name_of(floats.isa));
  const std::string rows = "tiles of " + std::to_string(floats.tile_queries) + " queries x ";
  EXPECT_EQ(native.path, rows + "192 keys, bfloat16, dot products of bfloat16");
  EXPECT_EQ(native.isa, kPaired);
  EXPECT_EQ(native.tile_keys, 192);
  EXPECT_EQ(native.tiles_computed, 2 * ((500 + floats.tile_queries - 1) / floats.tile_queries) * 3);
  const auto wide = of(kType, {}, {.reproducible = true});
  EXPECT_EQ(wide.path, rows + "96 keys, bfloat16, widened to float32");
  EXPECT_EQ(wide.isa, floats.isa);
  EXPECT_EQ(wide.reason, below + ": reproducible; this CPU also has " + name);
  const auto normalized = of(kType, {.normalize_qk = true});
  EXPECT_EQ(normalized.path, wide.path);
  EXPECT_EQ(normalized.reason, below + ": normalize_qk; this CPU also has " + name);
  EXPECT_EQ(of(heed::DType::f16).path, rows + "96 keys, float16, widened to float32");
  EXPECT_EQ(of(heed::DType::f16).reason, of(heed::DType::f32).reason);
  heed::cap_instruction_set(floats.isa);
  EXPECT_EQ(of(kType).path, wide.path);
  const auto sets = heed::instruction_sets();
  const bool slow = std::find_if(sets.begin(), sets.end(), [](const heed::InstructionSet& set) {
                      return set.isa == kPaired;
                    })->slow;
  EXPECT_EQ(of(kType).reason,
            below + (slow ? ": faster here" : ": capped") + "; this CPU also has " + name);
}

}  // namespace
}  // namespace heed_test

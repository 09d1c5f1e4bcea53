// Numbers at the edge of a type's range, met on the way in: what is finite in the caller's data
// must not become an infinity, which would mean a mask or a NaN. Every test bears the name of a
// bug.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "heed/heed.h"

namespace heed::test {
namespace {

constexpr double kLargest = std::numeric_limits<double>::max();

/// One query of ones, two keys of ones with values 1 and 3.
struct Pair {
  std::vector<float> ones = std::vector<float>(8, 1.0f);
  std::vector<float> values{1.0f, 3.0f};
  float output = -1.0f;
  float lse = -1.0f;

  void run(const AttentionOptions& options) {
    const float* q = ones.data();
    const float* v = values.data();
    attention_forward(view(q, {1, 4}), view(q, {2, 4}), view(v, {2, 1}),
                      {.output = view(&output, {1, 1}), .lse = view(&lse, {1})}, options);
  }
};

TEST(ranges, the_lowest_float64_bias_is_plain_addition_to_float32_scores) {
  const std::vector<double> bias(2, -kLargest);
  Pair pair;
  pair.run({.bias = view(bias.data(), {1, 2})});
  EXPECT_EQ(pair.output, 2.0f) << "mean(V), not 0";
  EXPECT_TRUE(std::isfinite(pair.lse));
}

TEST(ranges, a_float64_bias_beyond_float32_is_no_nan) {
  const std::vector<double> bias{1e39, 0.0};
  Pair pair;
  pair.run({.bias = view(bias.data(), {1, 2})});
  EXPECT_EQ(pair.output, 1.0f);
}

TEST(ranges, a_float64_sink_beyond_float32_takes_all_the_weight) {
  const double sink = 1e39;
  Pair pair;
  pair.run({.sinks = view(&sink, {1})});
  EXPECT_EQ(pair.output, 0.0f);
  EXPECT_TRUE(std::isfinite(pair.lse));
}

TEST(ranges, a_huge_slope_leaves_the_querys_own_key) {
  for (const double slope : {3e38, 1e300}) {
    Pair pair;
    pair.run({.alibi = view(&slope, {1})});
    EXPECT_EQ(pair.output, 1.0f) << "distance 0 adds 0, distance 1 takes everything";
  }
}

TEST(ranges, a_head_size_whose_scratch_overflows_is_an_error_of_kind_memory) {
  const float one = 1.0f;
  float output = -1.0f;
  const std::int64_t huge = std::int64_t{1} << 58;
  const ConstTensorView row{&one, DType::f32, 2, {1, huge}, {0, 0}};
  try {
    attention_forward(row, row, view(&one, {1, 1}), {.output = view(&output, {1, 1})});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::memory) << error.what();
  }
  EXPECT_EQ(output, -1.0f);
}

TEST(ranges, explain_tells_any_scratch_that_has_a_number_of_bytes) {
  const float one = 1.0f;
  const ConstTensorView q{&one, DType::f32, 2, {64, 16}, {0, 0}};
  const ConstTensorView k{&one, DType::f32, 2, {1, 16}, {0, 0}};
  int told = 0;
  int refused = 0;
  for (int bits = 40; bits < 60; ++bits) {
    const std::int64_t size = std::int64_t{1} << bits;
    const ConstTensorView v{&one, DType::f32, 2, {1, size}, {0, 0}};
    try {
      EXPECT_GE(explain(q, k, v).scratch_bytes / 64, size) << bits;
      ++told;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::memory);
      EXPECT_STREQ(error.what(), "explain: scratch memory exceeds the address space");
      ++refused;
    }
  }
  EXPECT_GE(told, 10);
  EXPECT_GE(refused, 4);
}

// Found by fuzz_merge under valgrind: the C library's tanh branched on memory that was never
// written.
TEST(ranges, float64_scores_that_a_causal_mask_spares_are_zero_where_softcap_reads_them) {
  constexpr std::int64_t kLength = 40;
  const std::vector<double> zeros(kLength, 0.0);
  const std::vector<double> ones(kLength, 1.0);
  std::vector<double> output(kLength);
  struct Count {
    int* others;
  };
  int others = 0;
  const Count count{&others};
  AttentionOptions options{.softcap = 2.0};
  options.score_mod.context = &count;
  options.score_mod.f64 = [](const ScoreTile64& tile, const void* context) {
    for (int i = 0; i < tile.queries; ++i) {
      for (int j = 0; j < tile.keys; ++j) {
        const double score = tile.scores[i * tile.query_stride + j * tile.key_stride];
        *static_cast<const Count*>(context)->others += score == 0.0 ? 0 : 1;
      }
    }
  };
  // The first call leaves weights of 1 in the memory that the thread keeps.
  for (const bool causal : {false, true}) {
    options.mask.causal = causal;
    const auto of = [](auto& numbers) { return view(numbers.data(), {kLength, 1}); };
    attention_forward(of(ones), of(zeros), of(ones), {.output = of(output)}, options,
                      {.threads = 1});
    EXPECT_EQ(output, ones);
  }
  EXPECT_EQ(others, 0) << "products of 1 and 0";
}

TEST(ranges, a_view_of_five_axes_is_refused_by_the_call_that_gets_it) {
  const float one = 1.0f;
  float output = -1.0f;
  const ConstTensorView q = view(&one, {1, 1, 1, 1, 1});
  try {
    attention_forward(q, q, q, {.output = view(&output, {1, 1})});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "attention_forward: q has rank 5; expected at most 4");
  }
}

TEST(ranges, products_of_empty_views_are_checked_too) {
  const std::int64_t huge = std::int64_t{1} << 40;
  float output = -1.0f;
  const ConstTensorView q{nullptr, DType::f32, 4, {huge, huge, 0, 4}, {0, 0, 4, 1}};
  const TensorView o{&output, DType::f32, 4, {huge, huge, 0, 4}, {0, 0, 4, 1}};
  EXPECT_THROW(attention_forward(q, q, q, {.output = o}), Error);
}

TEST(ranges, explain_tells_the_scratch_of_the_workers_that_get_tasks) {
  const ConstTensorView q{nullptr, DType::f32, 2, {1, 64}, {64, 1}};
  const ConstTensorView k{nullptr, DType::f32, 2, {2000, 64}, {64, 1}};
  const Explanation one = explain(q, k, k, {}, {.threads = 1});
  const Explanation many = explain(q, k, k, {}, {.threads = 4096});
  EXPECT_EQ(many.threads, 1);
  EXPECT_EQ(many.scratch_bytes, one.scratch_bytes) << "one task needs one worker's scratch";
}

struct ManyWorkers final : Executor {
  [[nodiscard]] int workers() const override { return 4096; }
  void run(std::int64_t, void (*)(void*, std::int64_t, int), void*) override {}
};

// Keys that are one number in memory are as many as their view may have. The products of their
// splits and the tasks, and of their blocks and the tiles of rows, are beyond 63 bits.
TEST(ranges, explain_tells_what_any_number_of_keys_takes) {
  constexpr std::int64_t kQueries = 512000, kMost = std::numeric_limits<std::int64_t>::max();
  const ConstTensorView q{nullptr, DType::f32, 2, {kQueries, 1}, {0, 1}};
  const AttentionOptions options{.mask = {.window = {.left = 0, .right = 0}}};
  ManyWorkers workers;
  const auto of = [&](std::int64_t keys, const Execution& execution) {
    const ConstTensorView k{nullptr, DType::f32, 2, {keys, 1}, {0, 1}};
    return explain(q, k, k, options, execution);
  };
  const Explanation usual = of(std::int64_t{1} << 40, {.executor = &workers});
  for (const std::int64_t keys : {std::int64_t{1} << 40, std::int64_t{1} << 54,
                                  std::int64_t{1} << 59, std::int64_t{1} << 60, kMost / 4}) {
    const Explanation one = of(keys, {.threads = 1});
    const std::int64_t down = (kQueries + one.tile_queries - 1) / one.tile_queries;
    const std::int64_t across = (keys - 1) / one.tile_keys + 1;
    EXPECT_LE(one.tiles_computed, 2 * down + kQueries / one.tile_keys) << keys;
    EXPECT_EQ(one.tiles_skipped, across > kMost / down ? kMost : down * across - one.tiles_computed)
        << keys;
    const Explanation many = of(keys, {.executor = &workers});
    EXPECT_EQ(many.path, usual.path) << keys;
    EXPECT_EQ(many.tasks, usual.tasks) << keys;
    EXPECT_EQ(many.scratch_bytes, usual.scratch_bytes) << keys;
  }
}

// Nothing lies a stride away from a single element, or in a tensor without any.
TEST(ranges, strides_that_lead_to_no_element_are_any_number) {
  const std::vector<float> ones(8, 1.0f);
  const std::vector<float> values{1.0f, 3.0f};
  const std::int64_t two = 2;
  for (const std::int64_t far :
       {std::numeric_limits<std::int64_t>::min(), -std::numeric_limits<std::int64_t>::max(),
        std::numeric_limits<std::int64_t>::max()}) {
    float output = -1.0f;
    float lse = -1.0f;
    const auto of = [&](const float* data, std::int64_t rows, std::int64_t columns) {
      return ConstTensorView{data,
                             DType::f32,
                             4,
                             {1, 1, rows, columns},
                             {far, far, rows == 1 ? far : columns, columns == 1 ? far : 1}};
    };
    const auto to = [&](float* data, int rank) {
      return TensorView{data, DType::f32, rank, {1, 1, 1, 1}, {far, far, far, far}};
    };
    const ConstTensorView slope{ones.data(), DType::f32, 1, {1}, {far}};
    const ConstTensorView length{&two, DType::i64, 1, {1}, {far}};
    attention_forward(of(ones.data(), 1, 4), of(ones.data(), 2, 4), of(values.data(), 2, 1),
                      {.output = to(&output, 4), .lse = to(&lse, 3)},
                      {.scale = slope,
                       .bias = of(ones.data(), 1, 1),
                       .mask = {.key_lengths = length, .query_lengths = 1}});
    EXPECT_EQ(output, 2.0f) << far;
    EXPECT_FLOAT_EQ(lse, 5.0f + std::log(2.0f)) << far;
    for (const std::array<std::int64_t, 4>& shape :
         {std::array<std::int64_t, 4>{0, 2, 3, 4}, {3, 2, 0, 4}}) {
      const TensorView none{&output, DType::f32, 4, shape, {far, far, far, far}};
      attention_forward(none, none, none, {.output = none});
    }
    EXPECT_EQ(output, 2.0f) << far;
  }
}

}  // namespace
}  // namespace heed::test

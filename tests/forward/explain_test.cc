// What explain() tells: the instruction set that runs, tiles that masks save, scratch that does not
// grow with length.
// Method: counts that geometry gives, within one tile per row of tiles.
#include <gtest/gtest.h>

#include "forward/support.h"
#include "sanitized.h"

namespace heed_test {
namespace {

heed::Explanation of(std::int64_t queries, std::int64_t keys,
                     const heed::AttentionOptions& options = {}, int threads = 1,
                     heed::DType dtype = heed::DType::f32) {
  const auto view = [&](std::int64_t rows) {  // data may be null
    return heed::view(static_cast<const void*>(nullptr), dtype, {1, 2, rows, 64});
  };
  return heed::explain(view(queries), view(keys), view(keys), options,
                       {.executor = nullptr, .threads = threads});
}

double share(const heed::Explanation& e) {
  return static_cast<double>(e.tiles_computed) /
         static_cast<double>(e.tiles_computed + e.tiles_skipped);
}

TEST(explain, names_the_instruction_set_that_is_forced) {
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    const auto e = of(100, 100);
    EXPECT_EQ(e.isa, isa);
    EXPECT_NE(e.reason.find(heed::name_of(isa)), std::string::npos) << e.reason;
    EXPECT_NE(e.path.find("float32"), std::string::npos) << e.path;
  }
  EXPECT_NE(of(9, 9, {}, 1, heed::DType::f64).path.find("float64"), std::string::npos);
}

// Counts and sizes belong together: without a mask the tiles cover all rows of the heads that share
// keys, and all keys.
TEST(explain, sizes_of_tiles_are_those_that_are_counted) {
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    const auto e = of(1000, 500);
    const std::int64_t down = (1000 + e.tile_queries - 1) / e.tile_queries;
    const std::int64_t across = (500 + e.tile_keys - 1) / e.tile_keys;
    EXPECT_EQ(e.tiles_computed, 2 * down * across) << heed::name_of(isa);
    const std::string sizes = "tiles of " + std::to_string(e.tile_queries) + " queries x " +
                              std::to_string(e.tile_keys) + " keys";
    EXPECT_EQ(e.path.find(sizes), 0U) << e.path;
  }
}

TEST(explain, names_the_products_of_few_rows) {
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    const bool has_vectors = isa != heed::Isa::scalar;
    const auto names_them = [](const heed::Explanation& e) {
      return e.path.find(", products of few rows") != std::string::npos;
    };
    EXPECT_EQ(names_them(of(1, 500)), has_vectors) << of(1, 500).path;
    const bool has_two = isa == heed::Isa::avx512;  // 8 rows are half of its vector
    EXPECT_EQ(names_them(of(8, 500)), has_two) << of(8, 500).path;
    EXPECT_FALSE(names_them(of(8, 40))) << of(8, 40).path;
    EXPECT_FALSE(names_them(of(500, 500))) << of(500, 500).path;
    if (!has_two) continue;
    EXPECT_EQ(of(8, 500).tiles_computed, 2 * 2 * 6);  // tiles of 4 rows, two KV heads, blocks of 96
  }
}

TEST(explain, small_calls_keep_to_one_thread_and_large_ones_take_all) {
  EXPECT_EQ(of(16, 16, {}, 2).threads, 1);
  EXPECT_EQ(of(2048, 2048, {}, 2).threads, 2);
}

TEST(explain, without_a_mask_every_tile_is_computed) {
  const auto e = of(1000, 1000);
  EXPECT_EQ(e.tiles_skipped, 0);
  EXPECT_GT(e.tiles_computed, 0);
}

TEST(explain, a_causal_mask_saves_about_half_of_a_square) {
  const auto e = of(4096, 4096, {.mask = {.causal = true}});
  EXPECT_NEAR(share(e), 0.5, 0.03);
}

TEST(explain, a_causal_mask_at_the_end_of_the_keys_saves_little) {
  const auto e = of(128, 4096, {.mask = {.causal = true, .query_start = 4096 - 128}});
  EXPECT_GT(share(e), 0.95);
}

TEST(explain, a_window_costs_its_width) {
  const auto e = of(8192, 8192, {.mask = {.causal = true, .window = {.left = 255}}});
  EXPECT_GT(share(e), 256.0 / 8192);
  EXPECT_LT(share(e), (256 + 96 + 2 * 64.0) / 8192 + 0.01);
}

TEST(explain, lengths_save_what_lies_behind_them) {
  EXPECT_NEAR(share(of(960, 960, {.mask = {.key_lengths = 480}})), 0.5, 1e-9);
  EXPECT_NEAR(share(of(4096, 960, {.mask = {.query_lengths = 1024}})), 0.25, 0.02);
  EXPECT_EQ(of(960, 960, {.mask = {.key_lengths = 0}}).tiles_computed, 0);
}

TEST(explain, a_dense_mask_saves_tiles_that_it_empties) {
  std::vector<std::uint8_t> keep(960);
  for (std::size_t j = 0; j < 96; ++j) keep[j] = 1;  // the first block of ten
  const auto e = of(960, 960, {.mask = {.keep = heed::view(keep.data(), {960})}});
  EXPECT_NEAR(share(e), 0.1, 1e-9);
}

TEST(explain, scratch_does_not_grow_with_length) {
  const std::int64_t long_one = sanitized() ? 1 << 17 : 1 << 20;  // tiles are counted one by one
  for (const bool causal : {false, true}) {
    const auto small = of(4096, 4096, {.mask = {.causal = causal}});
    const auto large = of(long_one, long_one, {.mask = {.causal = causal}});
    EXPECT_LE(large.scratch_bytes, small.scratch_bytes);
    EXPECT_LE(large.scratch_bytes, 1 << 20);
  }
  EXPECT_LE(of(1 << 16, 1 << 16, {}, 4).scratch_bytes, 4 * of(1 << 16, 1 << 16).scratch_bytes);
}

TEST(explain, no_more_workers_than_threads_and_enough_tasks_for_them) {
  const auto e = of(4096, 4096, {}, 3);
  EXPECT_GE(e.threads, 1);
  EXPECT_LE(e.threads, 3);
  EXPECT_GE(e.tasks, e.threads);
}

TEST(explain, an_empty_problem_has_no_tasks) {
  EXPECT_EQ(of(0, 5).tasks, 0);
  EXPECT_EQ(of(0, 5).tiles_computed, 0);
}

}  // namespace
}  // namespace heed_test

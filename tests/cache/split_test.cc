// Splits of keys as tasks, where rows alone make too few: the same bits as one task that takes all
// keys, and work for every worker.
// Method: one thread, which never splits, against many.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cached.h"
#include "forward/between_guards.h"
#include "forward/cases.h"
#include "forward/executors.h"
#include "sanitized.h"

namespace heed_test {
namespace {

heed::Explanation explained(const Dims& d, int threads) {
  const auto view = [&](std::int64_t heads, std::int64_t rows, std::int64_t size) {
    return heed::view(static_cast<const float*>(nullptr), {d.batch, heads, rows, size});
  };
  return heed::explain(view(d.heads, d.queries, d.size), view(d.kv_heads, d.keys, d.size),
                       view(d.kv_heads, d.keys, d.value_size), {},
                       {.executor = nullptr, .threads = threads});
}

template <typename T>
void expect_same(const Call<T>& call) {
  const Result<T> one = run(call, {}, {.executor = nullptr, .threads = 1});
  for (const int threads : thread_counts()) {
    EXPECT_TRUE(same_bits(run(call, {}, {.executor = nullptr, .threads = threads}), one))
        << threads << " threads: " << describe(call);
  }
}

TEST(split_keys, are_tasks_where_rows_make_too_few) {
  const Dims decode{1, 4, 1, 1, 20000, 64, 64};
  EXPECT_EQ(explained(decode, 1).tasks, 1);
  for (const int threads : {2, 4, 8}) {
    const auto e = explained(decode, threads);
    EXPECT_GE(e.tasks, 3 * threads) << threads;
    EXPECT_EQ(e.threads, threads);
    EXPECT_NE(e.path.find("splits of keys as tasks"), std::string::npos) << e.path;
    EXPECT_GT(e.scratch_bytes, 27 * 66 * 4) << "the states of 27 splits are memory too";
  }
  EXPECT_EQ(explained({1, 32, 32, 1, 20000, 64, 64}, 2).tasks, 32);
  EXPECT_EQ(explained({1, 8, 8, 2000, 2000, 64, 64}, 2).path.find("splits"), std::string::npos);
}

TEST(split_keys, change_no_bit) {
  for (const heed::Isa isa : isas_for_races(runnable_isas())) {
    const Forced forced(isa);
    expect_same(plain_call<float>({1, 4, 1, 1, 5000, 64, 64}, 1));  // few rows
    expect_same(plain_call<float>({1, 2, 1, 9, 5000, 40, 33}, 2));  // some
  }
  expect_same(plain_call<float>({1, 1, 1, 200, 3000, 40, 33}, 3, 4));  // several tiles
  expect_same(plain_call<float>({2, 1, 1, 1, 30000, 64, 64}, 4));
  expect_same(plain_call<double>({1, 2, 1, 3, 5000, 64, 16}, 5));
}

TEST(split_keys, change_no_bit_with_options) {
  const auto with = [](auto change) {
    Call<float> call = plain_call<float>({1, 4, 2, 3, 6000, 64, 64}, 6);
    change(call);
    expect_same(call);
  };
  with([](auto& c) { c.causal = true, c.query_start = {2500}; });
  with([](auto& c) { c.left = 800, c.query_start = {3000}; });
  with([](auto& c) { c.key_lengths = {0}; });
  with([](auto& c) { c.query_lengths = {2}; });
  with([](auto& c) { c.sinks = {1, 2, 3, 4}; });
  with([](auto& c) { c.softcap = 2, c.alibi = {1, 0.5, 0.25, 0.125}; });
  with([](auto& c) { c.dropout = {.p = 0.4, .seed = 3}; });
  with([](auto& c) { c.v.at(0, 1, 4000, 7) = std::nanf(""); });
  with([](auto& c) { c.k.at(0, 0, 800, 7) = std::nanf(""); });
}

// A cache with one very long sequence among short ones: it is cut, whatever the others are.
template <typename T>
void expect_same_of_ragged_sequences(heed::DType dtype) {
  SCOPED_TRACE(heed::name_of(dtype));
  heed::KvCacheOptions options = options_for<T>({1, 4, 2, 0, 0, 64, 64}, 256, 96);
  options.dtype = dtype;
  heed::KvCache cache(options);
  std::vector<heed::SequenceId> ids;
  Random random(7);
  Memory inputs;
  for (const std::int64_t length : {30, 17000, 0, 1, 900, 96, 10, 3000, 12, 13}) {
    ids.push_back(cache.create());
    Tensor<T> k({1, 2, length, 64}), v({1, 2, length, 64});
    fill_normal(k, random);
    fill_normal(v, random);
    cache.append(ids.back(), inputs.input(k, dtype), inputs.input(v, dtype));
  }
  Tensor<T> drawn({10, 4, 2, 64});
  fill_normal(drawn, random);
  const heed::ConstTensorView q = inputs.input(drawn, dtype);
  const auto decoded = [&](const heed::Execution& execution) {
    Memory results;
    const heed::ForwardOutputs to{.output = results.result(dtype, {10, 4, 2, 64}),
                                  .lse = results.result(wide(dtype), {10, 4, 2})};
    heed::attention_decode(q, cache, ids, to, {.mask = {.causal = true}}, execution);
    return results;
  };
  const Memory one = decoded({.executor = nullptr, .threads = 1});
  const auto same = [](const Memory& a, const Memory& b) { return a.same_results(b); };
  for (const int threads : thread_counts())
    EXPECT_TRUE(same(decoded({.executor = nullptr, .threads = threads}), one)) << threads;
  expect_same_where_64_threads_share(decoded, same);
  const auto e = heed::explain(q, cache, ids, {}, {.executor = nullptr, .threads = 4});
  EXPECT_GT(e.tasks, 25) << "the long sequence is one task";
  EXPECT_EQ(e.threads, 4);
}

TEST(split_keys, of_ragged_sequences_change_no_bit) {
  expect_same_of_ragged_sequences<float>(heed::DType::f32);
  expect_same_of_ragged_sequences<double>(heed::DType::f64);
  expect_same_of_ragged_sequences<float>(heed::DType::f16);
  expect_same_of_ragged_sequences<float>(heed::DType::bf16);
}

// Statistics and weights take rows as a whole: such calls have the same bits, and do not split.
TEST(split_keys, leave_calls_with_weights_as_they_are) {
  const Call<float> call = plain_call<float>({1, 2, 1, 2, 3000, 64, 64}, 8);
  const Ask ask{.lse = true, .weights = true};
  const auto one = run(call, ask, {.executor = nullptr, .threads = 1});
  EXPECT_TRUE(same_bits(run(call, ask, {.executor = nullptr, .threads = 4}), one));
  EXPECT_TRUE(same_bits(run(call, {}, {.executor = nullptr, .threads = 4}).o, one.o));
}

}  // namespace
}  // namespace heed_test

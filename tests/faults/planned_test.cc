// Memory is asked for while a call is planned, never by its tasks.
// Method: an executor that runs the tasks on a thread of its own, and counts what this program's
// operator new and aligned_alloc are asked for meanwhile, which are all that the library asks
// (package.libraries_have_manners); every masking of the case matrix, every type and instruction
// set, many rows and one with several splits of keys, and sequences end to end, with all
// statistics, in calls large enough for an executor, on threads that have kept no memory.
#include <gtest/gtest.h>

#include <thread>

#include "backward/judge.h"
#include "backward/support.h"
#include "forward/failing_allocation.h"
#include "forward/half.h"
#include "heed/kv_cache.h"
#include "heed/merge.h"
#include "heed/modules.h"
#include "inspection/looked.h"
#include "packing/every_call.h"

namespace heed_test {
namespace {

class Counting final : public heed::Executor {
 public:
  [[nodiscard]] int workers() const override { return 3; }
  void run(std::int64_t tasks, void (*task)(void*, std::int64_t, int), void* context) override {
    std::thread([&] {
      const long before = allocations;
      for (std::int64_t n = 0; n < tasks; ++n) task(context, n, static_cast<int>(n % 3));
      asked += allocations - before;
    }).join();
    ran += tasks;
  }
  long asked = 0;
  std::int64_t ran = 0;
};

/// `act(execution)` on a thread that has kept no memory of calls before.
template <typename Act>
void expect_no_task_asks(const std::string& what, const Act& act) {
  Counting executor;
  std::thread([&] { act(heed::Execution{.executor = &executor, .threads = 0}); }).join();
  EXPECT_GT(executor.ran, 1) << what << " never asked the executor, or for one task";
  EXPECT_EQ(executor.asked, 0) << what;
}

constexpr Dims kDims[] = {{2, 4, 2, 70, 230, 40, 24}, {1, 4, 2, 1, 2100, 64, 64}};

template <typename T>
Call<T> call_of(int masking, const Dims& dims = kDims[0]) {
  Case c;
  c.dims = dims;
  c.masking = static_cast<Masking>(masking);
  c.dropout = masking % 3 == 0 ? 0.25 : 0;
  c.seed = static_cast<std::uint64_t>(700 + masking);
  return make<T>(c);
}

/// Forward with all statistics.
template <typename T>
void run_with_statistics(const Call<T>& s, const heed::Execution& execution) {
  Memory at;
  const Dims d = s.dims();
  const heed::RowStatistics statistics = some_statistics(at, s.dtype, d);
  const Told<T> told(s);
  heed::attention_forward(
      at.input(s.q, s.dtype), at.input(s.k, s.dtype), at.input(s.v, s.dtype),
      {.output = at.result(s.dtype, {d.batch, d.heads, d.queries, d.value_size}),
       .statistics = &statistics},
      told.options, execution);
}

template <typename T>
void expect_none_of(const Call<T>& s, const std::string& what) {
  const auto g = draw_d_output(s, 71);
  const auto m = draw_motion(s, 72);
  const auto r = run(s);
  expect_no_task_asks("forward, " + what,
                      [&](auto e) { (void)run(s, {.lse = true, .weights = true}, e); });
  expect_no_task_asks("statistics, " + what, [&](auto e) { run_with_statistics(s, e); });
  expect_no_task_asks("backward, " + what, [&](auto e) { (void)run_backward(s, r, g, {}, e); });
  expect_no_task_asks("jvp, " + what, [&](auto e) { (void)run_jvp(s, r, m, e); });
}

TEST(planned, no_task_of_attention_asks_for_memory) {
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    for (int masking = 0; masking < kMaskings; ++masking) {
      const std::string what =
          "masking " + std::to_string(masking) + ", " + std::string(heed::name_of(isa));
      for (const Dims& dims : kDims) {
        const std::string rows = std::to_string(dims.queries) + " rows, " + what;
        expect_none_of(call_of<float>(masking, dims), "float32, " + rows);
        expect_none_of(call_of<double>(masking, dims), "float64, " + rows);
      }
    }
  }
}

TEST(planned, no_task_in_16_bits_asks_for_memory) {
  for (const heed::DType dtype : {heed::DType::f16, heed::DType::bf16})
    for (const heed::Isa isa : isas_of(dtype)) {
      const Forced forced(isa);
      for (int masking = 0; masking < kMaskings; ++masking) {
        const auto s = narrowed(call_of<float>(masking), dtype);
        const std::string what = std::string(heed::name_of(dtype)) + ", masking " +
                                 std::to_string(masking) + ", " + std::string(heed::name_of(isa));
        expect_no_task_asks("forward, " + what,
                            [&](auto e) { (void)run(s, {.lse = true, .weights = true}, e); });
        expect_no_task_asks("statistics, " + what, [&](auto e) { run_with_statistics(s, e); });
        const auto r = run(s);
        const auto g = nearest(draw_d_output(s, 73), dtype);
        expect_no_task_asks("backward, " + what, [&](auto e) {
          (void)run_half_backward(s, r, g, Layout::bhtd, dtype, e);
        });
        Motion<float> m = draw_motion(s, 74);
        for (Tensor<float>* t : {&m.q, &m.k, &m.v}) *t = nearest(std::move(*t), dtype);
        expect_no_task_asks("jvp, " + what,
                            [&](auto e) { (void)run_half_jvp(s, r, m, Layout::bhtd, dtype, e); });
      }
    }
}

/// Sequences end to end, short ones and one with several splits of keys, with options of every
/// kind.
template <typename T>
void expect_none_of_packed(heed::DType dtype) {
  for (const heed::Isa isa : isas_of(dtype)) {
    const Forced forced(isa);
    Random random(75);
    for (int n = 0; n < 8; ++n) {
      Packed<T> p =
          packed<T>(random, {{70, 1, 0, 40}, {230, 2100, 5, 100}}, {1, 4, 2, 0, 0, 40, 24}, 3);
      if (n > 0) add_options(random, p);
      const std::string what = std::string(heed::name_of(dtype)) + ", packed, draw " +
                               std::to_string(n) + ", " + std::string(heed::name_of(isa));
      EveryPackedCall<T> calls(p, dtype, 76);
      Memory at;
      expect_no_task_asks("forward, " + what, [&](auto e) { calls.forward(at, e); });
      expect_no_task_asks("backward, " + what, [&](auto e) { calls.backward(at, e); });
      expect_no_task_asks("jvp, " + what, [&](auto e) { calls.forward_mode(at, e); });
    }
  }
}

TEST(planned, no_task_of_packed_sequences_asks_for_memory) {
  expect_none_of_packed<double>(heed::DType::f64);
  for (const heed::DType dtype : {heed::DType::f32, heed::DType::f16, heed::DType::bf16})
    expect_none_of_packed<float>(dtype);
}

TEST(planned, no_task_beside_attention_asks_for_memory) {
  const auto s = call_of<float>(0);
  const auto r = run(s);
  // A task of merging reads more than one of attention.
  const std::vector<float> part(std::size_t{2} * 8 * 2000 * 64, 0.5F);
  const heed::AttentionPart parts[] = {
      {heed::view(part.data(), {2, 8, 2000, 64}), heed::view(part.data(), {2, 8, 2000})},
      {heed::view(part.data(), {2, 8, 2000, 64}), heed::view(part.data(), {2, 8, 2000})}};
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    const std::string name(heed::name_of(isa));
    std::vector<float> merged(part.size());
    expect_no_task_asks("merge, " + name, [&](auto e) {
      heed::merge(parts, {.output = heed::view(merged.data(), {2, 8, 2000, 64})}, e);
    });
    expect_no_task_asks("inspect_weights, " + name,
                        [&](auto e) { Looked<float>(s, r.lse, {}, e); });
    heed::KvCache cache(
        {.kv_heads = 2, .head_size = 40, .value_size = 24, .pages = 40, .page_keys = 16});
    const heed::SequenceId ids[] = {cache.create(), cache.create()};
    cache.append(ids, s.k.view(), s.v.view());
    Memory at;
    const heed::RowStatistics statistics = some_statistics(at, heed::DType::f32, s.dims());
    const heed::TensorView o = at.result(heed::DType::f32, {2, 4, 70, 24});
    expect_no_task_asks("attention_decode, " + name, [&](auto e) {
      heed::attention_decode(s.q.view(), cache, ids, {.output = o, .statistics = &statistics}, {},
                             e);
    });
  }
}

TEST(planned, no_task_of_modules_asks_for_memory) {
  const std::vector<float> x(std::size_t{2} * 200 * 96, 0.5F);
  std::vector<float> y(x.size()), dx(x.size());
  const auto rows = [](auto& numbers) { return heed::view(numbers.data(), {2, 200, 96}); };
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    const std::string name(heed::name_of(isa));
    heed::Linear linear({.inputs = 96, .outputs = 96, .bias = true});
    expect_no_task_asks("Linear, forward, " + name,
                        [&](auto e) { linear.forward(rows(x), rows(y), e); });
    expect_no_task_asks("Linear, backward, " + name,
                        [&](auto e) { linear.backward(rows(x), rows(y), rows(dx), e); });
    heed::MultiHeadAttention attention({.d_model = 96,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .bias = true,
                                        .dropout = 0.25,
                                        .temperature = heed::Temperature::per_head});
    heed::AttentionOptions options;
    options.dropout.seed = 77;
    heed::SavedAttention saved;
    expect_no_task_asks("MultiHeadAttention, forward, " + name, [&](auto e) {
      attention.forward({.x = rows(x)}, {.output = rows(y), .saved = &saved}, options, e);
    });
    expect_no_task_asks("MultiHeadAttention, backward, " + name, [&](auto e) {
      attention.backward({.x = rows(x)}, saved, rows(y), {.dx = rows(dx)}, options, e);
    });
  }
}

}  // namespace
}  // namespace heed_test

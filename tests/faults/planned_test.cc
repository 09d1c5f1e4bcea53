// Memory is asked for while a call is planned, never by its tasks. Method: an executor that runs the tasks
// on a thread of its own, and counts what this program's operator new and aligned_alloc are asked for
// meanwhile; every masking of the case matrix, every type and instruction set, many rows and one with
// several splits of keys, in calls large enough for an executor, on threads that have kept no memory.
#include <gtest/gtest.h>

#include <thread>

#include "backward/judge.h"
#include "backward/support.h"
#include "forward/failing_allocation.h"
#include "forward/half.h"
#include "heed/inspect.h"
#include "heed/kv_cache.h"
#include "heed/merge.h"
#include "heed/modules.h"
#include "jvp/support.h"

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

template <typename T>
void expect_none_of(const Call<T>& s, const std::string& what) {
  const auto g = draw_d_output(s, 71);
  const auto m = draw_motion(s, 72);
  const auto r = run(s);
  expect_no_task_asks("forward, " + what,
                      [&](auto e) { (void)run(s, {.lse = true, .weights = true}, e); });
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
        const auto r = run(s);
        const auto g = nearest(draw_d_output(s, 73), dtype);
        expect_no_task_asks("backward, " + what, [&](auto e) {
          (void)run_half_backward(s, r, g, Layout::bhtd, dtype, e);
        });
      }
    }
}

TEST(planned, no_task_beside_attention_asks_for_memory) {
  const auto s = call_of<float>(0);
  const auto r = run(s);
  heed::ConstTensorView lse = r.lse.view();
  --lse.rank;
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
    std::vector<float> sums(std::size_t{2} * 4 * 230);
    expect_no_task_asks("inspect_weights, " + name, [&](auto e) {
      heed::inspect_weights({s.q.view(), s.k.view(), lse},
                            {.column_sums = heed::view(sums.data(), {2, 4, 230})},
                            Told<float>(s).options, e);
    });
    heed::KvCache cache(
        {.kv_heads = 2, .head_size = 40, .value_size = 24, .pages = 40, .page_keys = 16});
    const heed::SequenceId ids[] = {cache.create(), cache.create()};
    cache.append(ids, s.k.view(), s.v.view());
    Tensor<float> o(r.o.shape);
    expect_no_task_asks("attention_decode, " + name, [&](auto e) {
      heed::attention_decode(s.q.view(), cache, ids, {.output = o.out()}, {}, e);
    });
    const heed::Linear linear({.inputs = 96, .outputs = 128});
    std::vector<float> y(std::size_t{400} * 128);
    expect_no_task_asks("Linear, " + name, [&](auto e) {
      linear.forward(heed::view(part.data(), {400, 96}), heed::view(y.data(), {400, 128}), e);
    });
  }
}

}  // namespace
}  // namespace heed_test

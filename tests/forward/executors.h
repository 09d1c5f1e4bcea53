// Executors of a caller's own: the bits of a result depend on none of them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

#include "forward/draws.h"
#include "heed/runtime.h"

namespace heed_test {

/// Tasks one after another from the last to the first, under changing worker ids.
struct Backwards final : heed::Executor {
  std::int64_t ran = 0;

  [[nodiscard]] int workers() const override { return 3; }
  void run(std::int64_t tasks, void (*task)(void*, std::int64_t, int), void* context) override {
    for (std::int64_t i = tasks; i-- > 0;) task(context, i, static_cast<int>(i % 3));
    ran += tasks;
  }
};

/// A thread for each worker, made for the call, that takes every n-th task: as many threads as
/// asked for have a share, however few cores there are.
struct OwnThreads final : heed::Executor {
  int count;
  std::int64_t most = 0;  ///< that had tasks in one run

  explicit OwnThreads(int n) : count(n) {}
  [[nodiscard]] int workers() const override { return count; }
  void run(std::int64_t tasks, void (*task)(void*, std::int64_t, int), void* context) override {
    most = std::max(most, std::min<std::int64_t>(tasks, count));
    std::vector<std::thread> threads;
    for (int w = 0; w < count && w < tasks; ++w)
      threads.emplace_back([=, n = count] {
        for (std::int64_t i = w; i < tasks; i += n) task(context, i, w);
      });
    for (std::thread& t : threads) t.join();
  }
};

/// Of calls that are made again and again, for what threads may do to each other: a number of its
/// own, since by default there is one thread where the environment or the machine has no more.
inline constexpr heed::Execution kRepeated{.executor = nullptr, .threads = 4};

/// How many threads of a forward call have work.
template <typename T>
int working_threads(const Call<T>& s, const heed::Execution& execution) {
  const Told<T> told(s);
  return heed::explain(s.q.view(s.rank), s.k.view(s.rank), s.v.view(s.rank), told.options,
                       execution)
      .threads;
}

/// A problem with tasks for 64 threads, where rows are shared out, and little to compute otherwise.
/// The backward pass shares keys out, and needs more of them.
template <typename T>
Call<T> for_many_threads(Masking masking, std::int64_t queries = 520, std::int64_t keys = 900) {
  Case c;
  c.dims = {2, 8, 4, queries, keys, 8, 5};
  c.masking = masking;
  c.seed = 181;
  return make<T>(c);
}

/// run(execution) on one thread, then on threads of a caller's own, up to 64: the same results, as
/// same(many, one) tells. A call takes no more threads than it has work for: here each must have a
/// share.
template <typename Run, typename Same>
void expect_same_where_64_threads_share(const Run& run, const Same& same) {
  const auto one = run(heed::Execution{.executor = nullptr, .threads = 1});
  for (const int threads : thread_counts()) {
    OwnThreads own(threads);
    EXPECT_TRUE(same(run(heed::Execution{.executor = &own, .threads = 0}), one)) << threads;
    EXPECT_EQ(own.most, threads);
  }
}

template <typename Run>
void expect_same_where_64_threads_share(const Run& run) {
  expect_same_where_64_threads_share(
      run, [](const auto& many, const auto& one) { return same_bits(many, one); });
}

}  // namespace heed_test

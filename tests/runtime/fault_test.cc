// What the system refuses: threads and memory. Also: what is never asked of it.
// Method: this program's own pthread_create, aligned_alloc and operator new stand before the
// system's; they count, and refuse when told to.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>

#include "runtime/pool.h"
#include "runtime/scratch.h"
#include "runtime/tasks.h"
#include "support.h"

namespace {

constinit std::atomic<int> threads_granted{1 << 30};
constinit std::atomic<int> threads_asked{0};
constinit std::atomic<bool> memory_refused{false};
constinit std::atomic<int> allocations{0};

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  ++threads_asked;
  if (threads_granted.fetch_sub(1) <= 0) {
    threads_granted = 0;
    return EAGAIN;
  }
  return create(thread, attributes, start, argument);
}

extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  // Not the system's own, by dlsym: Clang's sanitizer, linked in, would not know what it gave.
  ++allocations;
  void* memory = nullptr;
  if (memory_refused || posix_memalign(&memory, alignment, bytes) != 0) return nullptr;
  return memory;
}

// Not inlined, or GCC takes the pairs of new and free that it then sees for mistakes.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace heed::runtime {
namespace {

using testing::runs_all;

TEST(fault, one_worker_or_one_task_asks_for_no_thread_and_no_memory) {
  const std::int64_t runs_before = pool_counters().shared_runs;
  const int threads_before = threads_asked;
  std::atomic<int> calls{0};
  const auto count = [](void* context, std::int64_t, int) {
    ++*static_cast<std::atomic<int>*>(context);
  };
  const int allocations_before = allocations;
  PoolExecutor(1).run(100, count, &calls);
  PoolExecutor(64).run(1, count, &calls);
  PoolExecutor(64).run(0, count, &calls);
  const int allocations_after = allocations;
  EXPECT_EQ(calls, 101);
  EXPECT_EQ(pool_counters().shared_runs, runs_before);
  EXPECT_EQ(allocations_after, allocations_before);
  EXPECT_EQ(threads_asked, threads_before);
}

TEST(fault, default_number_of_threads_is_looked_for_once) {
  const int first = default_threads();
  const int allocations_before = allocations;
  EXPECT_EQ(default_threads(), first);
  const int allocations_after = allocations;
  EXPECT_EQ(allocations_after, allocations_before);
}

TEST(fault, no_thread_at_all_is_a_serial_run) {
  threads_granted = 0;
  const std::int64_t refused = refused_thread_starts();
  PoolExecutor executor(8);
  EXPECT_TRUE(runs_all(executor, 1000));
  EXPECT_EQ(pool_counters().threads, 0);
  EXPECT_EQ(refused_thread_starts(), refused + 1);
}

TEST(fault, some_threads_are_used_and_more_are_asked_for_later) {
  threads_granted = 2;
  PoolExecutor executor(8);
  for (int round = 0; round < 10; ++round) EXPECT_TRUE(runs_all(executor, 1000));
  EXPECT_EQ(pool_counters().threads, 2);
  EXPECT_EQ(executor.workers(), 8);
  threads_granted = 1 << 30;
  EXPECT_TRUE(runs_all(executor, 1000));
  EXPECT_EQ(pool_counters().threads, 7);
}

TEST(fault, exceptions_pass_where_threads_are_missing) {
  threads_granted = 0;
  PoolExecutor executor(16);
  EXPECT_EQ(testing::message_of([&] {
              run_tasks(executor, 10, [](std::int64_t, int) { throw Error("of a task"); });
            }),
            "of a task");
  threads_granted = 1 << 30;
}

TEST(fault, runs_on_started_threads_and_kept_scratch_allocate_nothing) {
  PoolExecutor executor(4);
  std::atomic<std::int64_t> sum{0};
  const auto call = [&] {
    const ScratchLease lease(100000);
    run_tasks(executor, 50, [&](std::int64_t i, int) { sum += i; });
  };
  call();
  const int allocations_before = allocations;
  const int threads_before = threads_asked;
  for (int round = 0; round < 100; ++round) call();
  const int allocations_after = allocations;
  EXPECT_EQ(allocations_after, allocations_before);
  EXPECT_EQ(threads_asked, threads_before);
}

TEST(fault, refused_memory_is_an_error_and_leaves_scratch_usable) {
  const ScratchLease outer(100);
  memory_refused = true;
  const std::string message = testing::message_of([] { const ScratchLease lease(12345678); });
  memory_refused = false;
  EXPECT_EQ(message, "scratch memory: 12345678 bytes could not be allocated");
  const ScratchLease again(12345678);
  EXPECT_NE(again.data(), nullptr);
}

}  // namespace
}  // namespace heed::runtime

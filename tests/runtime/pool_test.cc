// The pool of threads: every task once, whoever calls and however many at a time.
#include "runtime/pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support.h"

namespace heed::runtime {
namespace {

using testing::runs_all;

TEST(pool, every_task_runs_once_on_1_to_64_threads) {
  for (int threads = 1; threads <= 64; ++threads) {
    PoolExecutor executor(threads);
    EXPECT_EQ(executor.workers(), threads);
    for (const std::int64_t tasks : {0, 1, 2, 3, threads - 1, threads, threads + 1, 1000}) {
      EXPECT_TRUE(runs_all(executor, tasks)) << threads << " threads, " << tasks << " tasks";
    }
  }
}

TEST(pool, negative_number_of_tasks_is_none) {
  PoolExecutor executor(4);
  executor.run(
      -1, [](void*, std::int64_t, int) { FAIL(); }, nullptr);
}

TEST(pool, what_tasks_write_is_seen_by_the_caller) {  // plain memory: ThreadSanitizer looks on
  PoolExecutor executor(4);
  std::vector<std::int64_t> squares(500);
  for (int round = 0; round < 200; ++round) {
    const auto square = [](void* context, std::int64_t i, int) {
      static_cast<std::int64_t*>(context)[i] += i * i;
    };
    executor.run(500, square, squares.data());
  }
  for (std::int64_t i = 0; i < 500; ++i)
    EXPECT_EQ(squares[static_cast<std::size_t>(i)], 200 * i * i);
}

TEST(pool, tasks_run_at_the_same_time) {
  struct Meeting {
    std::atomic<int> present{0};
    std::atomic<bool> met{false};
  } meeting;
  PoolExecutor executor(2);
  const auto meet = [](void* context, std::int64_t, int) {
    Meeting& here = *static_cast<Meeting*>(context);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    if (++here.present == 2) here.met = true;
    while (!here.met && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  };
  executor.run(2, meet, &meeting);
  EXPECT_TRUE(meeting.met);
}

TEST(pool, caller_works_too_as_worker_0) {
  struct Seen {
    std::thread::id caller = std::this_thread::get_id();
    std::atomic<int> by_caller{0};
    std::atomic<int> wrong{0};
  } seen;
  PoolExecutor executor(3);
  const auto look = [](void* context, std::int64_t, int worker) {
    Seen& all = *static_cast<Seen*>(context);
    const bool is_caller = std::this_thread::get_id() == all.caller;
    if (is_caller) ++all.by_caller;
    if (is_caller != (worker == 0)) ++all.wrong;
  };
  for (int round = 0; round < 100; ++round) executor.run(1000, look, &seen);
  EXPECT_GT(seen.by_caller, 0);
  EXPECT_EQ(seen.wrong, 0);
}

TEST(pool, nested_runs_stay_on_their_thread) {
  struct Outer {
    std::atomic<int> inner_tasks{0};
    std::atomic<int> elsewhere{0};
  } outer;
  struct Inner {
    Outer* outer;
    std::thread::id thread;
  };
  PoolExecutor executor(4);
  const auto inner_task = [](void* context, std::int64_t, int worker) {
    Inner& inner = *static_cast<Inner*>(context);
    ++inner.outer->inner_tasks;
    if (std::this_thread::get_id() != inner.thread || worker != 0) ++inner.outer->elsewhere;
  };
  struct Both {
    Outer* outer;
    void (*inner_task)(void*, std::int64_t, int);
  } both{&outer, inner_task};
  const auto outer_task = [](void* context, std::int64_t, int) {
    const Both& all = *static_cast<Both*>(context);
    Inner inner{all.outer, std::this_thread::get_id()};
    PoolExecutor(8).run(10, all.inner_task, &inner);
  };
  executor.run(100, outer_task, &both);
  EXPECT_EQ(outer.inner_tasks, 1000);
  EXPECT_EQ(outer.elsewhere, 0);
}

TEST(pool, callers_at_the_same_time_all_finish) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&wrong, caller] {
      for (int round = 0; round < 500; ++round) {
        PoolExecutor executor(2 + (caller + round) % 7);
        if (!runs_all(executor, round % 50)) ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(pool, busy_pool_is_not_waited_for) {
  struct Long {
    std::atomic<bool> begun{false};
    std::atomic<bool> end{false};
  } state;
  std::thread holder([&state] {
    const auto hold = [](void* context, std::int64_t, int) {
      Long& here = *static_cast<Long*>(context);
      here.begun = true;
      while (!here.end) std::this_thread::yield();
    };
    PoolExecutor(2).run(2, hold, &state);
  });
  while (!state.begun) std::this_thread::yield();
  PoolExecutor executor(4);
  EXPECT_TRUE(runs_all(executor, 100)) << "must end while the other run goes on";
  state.end = true;
  holder.join();
}

TEST(pool, changing_numbers_of_threads_never_exceed_what_was_asked) {
  // Threads that an earlier, larger run has woken late must not enter a smaller one.
  PoolExecutor many(16);
  PoolExecutor few(2);
  for (int round = 0; round < 2000; ++round) {
    ASSERT_TRUE(runs_all(many, 20));
    ASSERT_TRUE(runs_all(few, 20));  // Census has room for two workers: a third would throw
  }
}

TEST(pool, runs_after_sleep_find_their_threads_again) {
  PoolExecutor executor(4);
  const int before = (runs_all(executor, 100), pool_counters().threads);
  for (int round = 0; round < 50; ++round) {
    std::this_thread::sleep_for(std::chrono::microseconds(20 * round));
    ASSERT_TRUE(runs_all(executor, 8));
  }
  EXPECT_EQ(pool_counters().threads, before);
}

TEST(pool, fewer_tasks_than_threads_start_fewer_threads) {
  const int before = pool_counters().threads;
  PoolExecutor executor(before + 1000);
  EXPECT_TRUE(runs_all(executor, 2));
  EXPECT_LE(pool_counters().threads, std::max(before, 1));
}

TEST(pool, many_executors_cost_no_threads) {
  PoolExecutor first(3);
  EXPECT_TRUE(runs_all(first, 30));
  const int before = testing::thread_count();
  for (int i = 0; i < 1000; ++i) {
    PoolExecutor executor(1 + i % 3);
    ASSERT_TRUE(runs_all(executor, 5));
  }
  EXPECT_EQ(testing::thread_count(), before);
}

TEST(pool, impossible_numbers_of_threads_are_errors) {
  EXPECT_EQ(testing::message_of([] { PoolExecutor executor(-1); }),
            "PoolExecutor: threads is -1; it must be from 0 (the default) to 4096");
  EXPECT_EQ(testing::message_of([] { PoolExecutor executor(4097); }),
            "PoolExecutor: threads is 4097; it must be from 0 (the default) to 4096");
}

}  // namespace
}  // namespace heed::runtime

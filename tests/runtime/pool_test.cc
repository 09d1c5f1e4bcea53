// The pool of threads: every task once, whoever calls and however many at a time.
#include "runtime/pool.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "heed/attention.h"
#include "runtime/tasks.h"
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

TEST(pool, is_left_alone_by_a_call_too_small_to_share) {
  const std::vector<float> x(32, 1.0F);
  std::vector<float> o(32);
  const auto in = view(x.data(), {1, 1, 4, 8});
  const PoolCounters before = pool_counters();
  attention_forward(in, in, in, {.output = view(o.data(), {1, 1, 4, 8})}, {}, {.threads = 4});
  EXPECT_EQ(pool_counters().shared_runs, before.shared_runs);
  EXPECT_EQ(pool_counters().threads, before.threads);
  EXPECT_EQ(o[0], 1.0F);
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

TEST(pool, tasks_run_at_the_same_time_on_all_workers) {
  for (const int workers : {2, 3, 8}) {
    std::atomic<int> present{0};
    std::atomic<int> alone{0};
    PoolExecutor executor(workers);
    run_tasks(executor, workers, [&](std::int64_t, int) {
      ++present;
      if (!testing::wait_until([&] { return present == workers; })) {
        ++alone;
        --present;
      }
    });
    EXPECT_EQ(alone, 0);
  }
}

TEST(pool, run_returns_after_the_slowest_task) {
  PoolExecutor executor(2);
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> helper_begun{false};
    int written = 0;  // plain: ThreadSanitizer looks on
    run_tasks(executor, 2, [&](std::int64_t, int worker) {
      if (worker == 0) {
        testing::wait_until([&] { return helper_begun.load(); });
      } else {
        helper_begun = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        written = round + 1;
      }
    });
    ASSERT_EQ(written, round + 1);
  }
}

TEST(pool, threads_leave_the_signals_of_the_application_to_its_own) {
  sigset_t before, after;
  pthread_sigmask(SIG_BLOCK, nullptr, &before);
  std::atomic<bool> helper_asked{false};
  std::atomic<int> taken{0}, faults_held{0};
  PoolExecutor executor(2);
  run_tasks(executor, 2, [&](std::int64_t, int worker) {
    if (worker == 0) {
      testing::wait_until([&] { return helper_asked.load(); });
      return;
    }
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    for (const int signal : {SIGINT, SIGTERM, SIGALRM, SIGCHLD, SIGUSR1, SIGRTMIN})
      taken += sigismember(&mask, signal) == 0 ? 1 : 0;
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE}) faults_held += sigismember(&mask, signal);
    helper_asked = true;
  });
  EXPECT_TRUE(helper_asked);
  EXPECT_EQ(taken, 0);
  EXPECT_EQ(faults_held, 0);
  pthread_sigmask(SIG_BLOCK, nullptr, &after);
  EXPECT_EQ(sigismember(&after, SIGALRM), sigismember(&before, SIGALRM));
}

TEST(pool, caller_works_too_as_worker_0) {
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> by_caller{0};
  std::atomic<int> wrong{0};
  PoolExecutor executor(3);
  for (int round = 0; round < 100; ++round) {
    run_tasks(executor, 1000, [&](std::int64_t, int worker) {
      const bool is_caller = std::this_thread::get_id() == caller;
      if (is_caller) ++by_caller;
      if (is_caller != (worker == 0)) ++wrong;
    });
  }
  EXPECT_GT(by_caller, 0);
  EXPECT_EQ(wrong, 0);
}

TEST(pool, nested_runs_stay_on_their_thread) {
  PoolExecutor executor(4);
  std::atomic<int> inner_tasks{0};
  std::atomic<int> elsewhere{0};
  run_tasks(executor, 100, [&](std::int64_t, int) {
    const std::thread::id here = std::this_thread::get_id();
    PoolExecutor inner(8);
    run_tasks(inner, 10, [&](std::int64_t, int worker) {
      ++inner_tasks;
      if (std::this_thread::get_id() != here || worker != 0) ++elsewhere;
    });
  });
  EXPECT_EQ(inner_tasks, 1000);
  EXPECT_EQ(elsewhere, 0);
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
  std::atomic<bool> begun{false};
  std::atomic<bool> end{false};
  std::thread holder([&] {
    PoolExecutor executor(2);
    run_tasks(executor, 2, [&](std::int64_t, int) {
      begun = true;
      while (!end) std::this_thread::yield();
    });
  });
  while (!begun) std::this_thread::yield();
  PoolExecutor executor(4);
  const std::int64_t before = pool_counters().shared_runs;
  EXPECT_TRUE(runs_all(executor, 100)) << "must end while the other run goes on";
  EXPECT_EQ(pool_counters().shared_runs, before);
  end = true;
  holder.join();
}

TEST(pool, late_threads_of_a_large_run_stay_out_of_a_small_one) {
  PoolExecutor large(16);
  PoolExecutor small(2);
  std::atomic<int> highest{0};
  for (int round = 0; round < 200; ++round) {
    ASSERT_TRUE(runs_all(large, 16));  // done by the caller alone before most threads are awake
    run_tasks(small, 10, [&](std::int64_t, int worker) {
      if (worker > highest) highest = worker;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    });
  }
  EXPECT_EQ(highest, 1);
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

// Fork: after use, during use, inside a task. A child has two seconds.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <thread>

#include "runtime/pool.h"
#include "runtime/tasks.h"
#include "support.h"

// ThreadSanitizer ends forked children that start threads, unless told that this is what is tested.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }

namespace heed::runtime {
namespace {

using testing::runs_all;

enum Exit { fine = 0, wrong = 1, late = 2, died = 3 };

Exit wait_for(pid_t child) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(child, &status, WNOHANG)) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return late;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (child < 0 || ended != child) return died;  // there is none: fork was refused
  return WIFEXITED(status) ? static_cast<Exit>(WEXITSTATUS(status)) : died;
}

template <class Function>
Exit in_child(Function&& function) {
  testing::let_threads_settle();
  const pid_t child = fork();
  if (child == 0) _exit(function() ? fine : wrong);
  return wait_for(child);
}

TEST(fork, a_child_that_is_not_there_is_not_fine) {
  EXPECT_EQ(wait_for(-1), died);
  EXPECT_EQ(in_child([] { return false; }), wrong);
}

TEST(fork, before_first_use_is_nothing_special) {
  EXPECT_EQ(in_child([] {
              PoolExecutor executor(4);
              return runs_all(executor, 1000);
            }),
            fine);
}

TEST(fork, child_starts_threads_of_its_own) {
  PoolExecutor executor(4);
  ASSERT_TRUE(runs_all(executor, 1000));
  ASSERT_EQ(pool_counters().threads, 3);
  EXPECT_EQ(in_child([&] {
              if (pool_counters().threads != 0) return false;
              return runs_all(executor, 1000) && pool_counters().threads == 3;
            }),
            fine);
  EXPECT_TRUE(runs_all(executor, 1000)) << "the parent is not touched";
}

TEST(fork, grandchildren_work_too) {
  PoolExecutor executor(3);
  ASSERT_TRUE(runs_all(executor, 100));
  EXPECT_EQ(in_child([&] {
              if (!runs_all(executor, 100)) return false;
              return in_child([&] { return runs_all(executor, 100); }) == fine &&
                     runs_all(executor, 100);
            }),
            fine);
}

TEST(fork, while_another_thread_runs_a_job) {
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  std::atomic<int> calls{0};
  std::thread busy([&] {  // allocates nothing: AddressSanitizer's allocator is not made for fork
    PoolExecutor executor(4);
    for (; !stop; ++rounds) run_tasks(executor, 200, [&](std::int64_t, int) { ++calls; });
  });
  Exit exit = fine;
  for (int round = 0; round < 50 && exit == fine; ++round) {
    exit = in_child([] {
      PoolExecutor executor(4);
      return runs_all(executor, 200) && runs_all(executor, 200);
    });
  }
  stop = true;
  busy.join();
  EXPECT_EQ(exit, fine);
  EXPECT_EQ(calls, 200 * rounds);
}

TEST(fork, while_another_thread_holds_the_pool_leaves_the_child_a_pool) {
  struct Hold {
    std::atomic<bool> begun{false};
    std::atomic<bool> end{false};
  } hold;
  std::thread holder([&hold] {
    PoolExecutor executor(3);
    run_tasks(executor, 3, [&hold](std::int64_t, int) {
      hold.begun = true;
      while (!hold.end) std::this_thread::yield();
    });
  });
  while (!hold.begun) std::this_thread::yield();
  const Exit exit = in_child([] {
    PoolExecutor executor(3);
    return runs_all(executor, 100) && pool_counters().threads == 2;
  });
  hold.end = true;
  holder.join();
  EXPECT_EQ(exit, fine);
}

TEST(fork, inside_a_task_leaves_a_child_that_computes_on_one_thread) {
  PoolExecutor executor(4);
  std::atomic<int> failed{0};
  run_tasks(executor, 8, [&](std::int64_t, int) {
    const Exit exit = in_child([] {
      PoolExecutor inner(4);
      return runs_all(inner, 100) && pool_counters().threads == 0;
    });
    if (exit != fine) ++failed;
  });
  EXPECT_EQ(failed, 0);
}

TEST(fork, inside_a_task_of_the_caller_lets_the_run_return_in_the_child) {
  PoolExecutor executor(2);
  std::atomic<bool> helper_inside{false};
  std::atomic<bool> forked{false};
  pid_t child = -1;
  run_tasks(executor, 2, [&](std::int64_t, int worker) {
    if (worker == 0) {  // a helper that the child does not have is in the midst of its task
      testing::wait_until([&] { return helper_inside.load(); });
      testing::let_threads_settle();
      child = fork();
      forked = true;
    } else {
      helper_inside = true;
      testing::wait_until([&] { return forked.load(); });
    }
  });
  if (child == 0) _exit(runs_all(executor, 100) && pool_counters().threads == 1 ? fine : wrong);
  EXPECT_EQ(wait_for(child), fine);
}

}  // namespace
}  // namespace heed::runtime

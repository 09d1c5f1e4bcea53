// run_tasks: exceptions out of tasks.
#include "runtime/tasks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>

#include "support.h"

namespace heed::runtime {
namespace {

/// Runs tasks in descending order, and may give up before the last one.
class Backwards final : public Executor {
 public:
  std::int64_t stop_at = 0;

  [[nodiscard]] int workers() const override { return 1; }
  void run(std::int64_t tasks, void (*task)(void*, std::int64_t, int), void* context) override {
    for (std::int64_t i = tasks; i-- > stop_at;) task(context, i, 0);
    if (stop_at > 0) throw std::runtime_error("cancelled");
  }
};

TEST(tasks, each_index_is_called_once) {
  for (const int threads : {1, 2, 8}) {
    PoolExecutor executor(threads);
    testing::Census census(1000, threads);
    run_tasks(executor, 1000, [&](std::int64_t i, int w) { testing::Census::task(&census, i, w); });
    EXPECT_TRUE(census.complete());
  }
}

TEST(tasks, none_is_no_call) {
  PoolExecutor executor(4);
  run_tasks(executor, 0, [](std::int64_t, int) { FAIL(); });
}

TEST(tasks, first_exception_reaches_the_caller_and_the_rest_is_skipped) {
  Backwards executor;
  int calls = 0;
  const auto run = [&] {
    run_tasks(executor, 10, [&](std::int64_t i, int) {
      ++calls;
      if (i <= 7) throw Error("task " + std::to_string(i));
    });
  };
  EXPECT_EQ(testing::message_of(run), "task 7");
  EXPECT_EQ(calls, 3);
}

TEST(tasks, exception_of_any_worker_is_rethrown_and_the_pool_stays_usable) {
  for (const int threads : {1, 2, 4, 16}) {
    PoolExecutor executor(threads);
    for (int round = 0; round < 100; ++round) {
      std::atomic<int> running{0};
      const auto run = [&] {
        run_tasks(executor, 64, [&](std::int64_t i, int) {
          ++running;
          const bool fails = i % 5 == round % 5;
          --running;
          if (fails) throw Error("of a task");
        });
      };
      EXPECT_EQ(testing::message_of(run), "of a task");
      EXPECT_EQ(running, 0) << "a task still ran when the exception came out";
      EXPECT_TRUE(testing::runs_all(executor, 64));
    }
  }
}

TEST(tasks, of_exceptions_at_the_same_time_one_comes_out) {  // ThreadSanitizer looks on
  PoolExecutor executor(4);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> present{0};
    const auto run = [&] {
      run_tasks(executor, 4, [&](std::int64_t, int) {
        ++present;
        testing::wait_until([&] { return present == 4; });
        throw Error("at the same time");
      });
    };
    EXPECT_EQ(testing::message_of(run), "at the same time");
  }
}

TEST(tasks, exceptions_of_any_type_pass) {
  PoolExecutor executor(3);
  EXPECT_THROW(run_tasks(executor, 9, [](std::int64_t, int) { throw 7; }), int);
}

TEST(tasks, exception_of_the_executor_passes) {
  Backwards executor;
  executor.stop_at = 5;
  int calls = 0;
  EXPECT_THROW(run_tasks(executor, 10, [&](std::int64_t, int) { ++calls; }), std::runtime_error);
  EXPECT_EQ(calls, 5);
}

TEST(tasks, move_only_and_const_callables_work) {
  PoolExecutor executor(2);
  std::atomic<int> sum{0};
  const auto add = [&sum, one = std::make_unique<int>(1)](std::int64_t, int) { sum += *one; };
  run_tasks(executor, 10, add);
  EXPECT_EQ(sum, 10);
}

}  // namespace
}  // namespace heed::runtime

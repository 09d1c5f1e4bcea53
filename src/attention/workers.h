// Who runs the tasks of a call.
#pragma once

#include <string>

#include "attention/plan.h"
#include "heed/error.h"
#include "runtime/scratch.h"
#include "runtime/tasks.h"
#include "runtime/threads.h"

namespace heed {

/// Who runs the tasks: the caller's executor, or the pool with as many threads as were asked for.
struct Workers {
  Executor* executor = nullptr;  ///< the caller's
  int count = 0;                 ///< asked for once: scratch is made for so many
};

inline Workers choose_workers(const char* function, const Execution& execution) {
  const auto fail = [&](const std::string& what) {
    throw Error(std::string(function) + ": " + what);
  };
  const int threads = execution.threads;
  if (threads < 0 || threads > runtime::kMaxThreads) {
    fail("execution.threads is " + std::to_string(threads) + "; expected 0 (all) .. " +
         std::to_string(runtime::kMaxThreads));
  }
  const auto order = static_cast<int>(execution.decode_order);
  if (order != static_cast<int>(DecodeOrder::of_prefill) &&
      order != static_cast<int>(DecodeOrder::key_by_key)) {
    fail("execution.decode_order is " + std::to_string(order) +
         "; expected DecodeOrder::of_prefill or DecodeOrder::key_by_key");
  }
  if (execution.executor == nullptr) return {nullptr, threads == 0 ? default_threads() : threads};
  if (threads != 0) {
    fail("execution has an executor and threads = " + std::to_string(threads) +
         "; expected one of the two");
  }
  const int count = execution.executor->workers();
  if (count < 1) {
    fail("execution.executor has " + std::to_string(count) + " workers; expected 1 or more");
  }
  return {execution.executor, count};
}

/// Who runs this call: nobody but the calling thread where it is small.
template <typename Real>
Executor* executor_of(const Plan<Real>& plan, const Workers& workers) {
  return plan.small ? nullptr : workers.executor;
}

/// Scratch areas: the pool gives tasks to no more workers than there are tasks, a caller's executor
/// may use any of its worker ids.
template <typename Real>
int scratch_areas(const Plan<Real>& plan, const Workers& workers) {
  return executor_of(plan, workers) == nullptr ? plan.workers : workers.count;
}

/// Scratch of `areas` workers, `bytes` each.
inline std::size_t scratch_of_all(const char* function, std::size_t bytes, int areas) {
  std::size_t all = 0;
  if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(areas), &all)) {
    throw Error(ErrorKind::memory,
                std::string(function) + ": scratch memory exceeds the address space");
  }
  return all;
}

/// The workers of a call, each with `bytes` of scratch of its own, for one or more rounds of tasks.
class Crew {
 public:
  /// `own`: the caller's executor, or null; `areas`: how many workers it or the pool has at most.
  Crew(const char* function, Executor* own, int areas, std::size_t bytes)
      : own_(own),
        pool_(own == nullptr ? areas : 1),
        bytes_(bytes),
        scratch_(scratch_of_all(function, bytes, areas)) {}

  /// work(task, scratch) for each task.
  template <typename Work>
  void run(std::int64_t tasks, const Work& work) {
    runtime::run_tasks(own_ == nullptr ? pool_ : *own_, tasks, [&](std::int64_t task, int worker) {
      work(task, scratch_.data() + bytes_ * static_cast<std::size_t>(worker));
    });
  }

 private:
  Executor* own_;
  PoolExecutor pool_;
  std::size_t bytes_;
  const runtime::ScratchLease scratch_;
};

}  // namespace heed

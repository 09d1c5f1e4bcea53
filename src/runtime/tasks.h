// Tasks that may throw, on any executor, in the default floating-point environment.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <type_traits>

#include "heed/runtime.h"
#include "runtime/float_environment.h"

namespace heed::runtime {

/// Calls function(index, worker) for each index in [0, tasks) on the executor.
/// When one throws, tasks that have not begun are skipped, and once all have ended the first
/// exception is thrown again here. What the executor itself throws passes through.
template <class Function>
void run_tasks(Executor& executor, std::int64_t tasks, Function&& function) {
  struct Run {
    std::remove_reference_t<Function>* function;
    std::atomic<bool> failed{false};
    std::exception_ptr error{};  // written by the one that set `failed`, read after the run
  };
  Run run{.function = std::addressof(function)};
  executor.run(
      tasks,
      [](void* context, std::int64_t index, int worker) noexcept {
        Run& shared = *static_cast<Run*>(context);
        if (shared.failed.load(std::memory_order_relaxed)) return;
        const DefaultFloatEnvironment environment;
        try {
          (*shared.function)(index, worker);
        } catch (...) {
          if (!shared.failed.exchange(true)) shared.error = std::current_exception();
        }
      },
      &run);
  if (run.error) std::rethrow_exception(run.error);
}

}  // namespace heed::runtime

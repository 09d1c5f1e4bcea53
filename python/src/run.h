// How a call of heed runs inside Python: without the GIL, on the pool, until Ctrl-C, with Python's
// errors.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "heed/runtime.h"

namespace heed::python {

/// The pool, interrupted by Python's signals: the thread that called looks for them between its
/// tasks, every 50 ms, and where a handler raises (Ctrl-C: KeyboardInterrupt) no further task
/// begins. A call that is interrupted ends as soon as the tasks that are under way do; its results
/// are unspecified. So does one of several threads in the child of a handler that forked.
class InterruptibleExecutor final : public Executor {
 public:
  explicit InterruptibleExecutor(int threads) : pool_(threads) {}

  [[nodiscard]] int workers() const override { return pool_.workers(); }
  void run(std::int64_t tasks, void (*task)(void* context, std::int64_t index, int worker),
           void* context) override;

 private:
  struct Watched;

  PoolExecutor pool_;
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
};

/// Calls `work` without the GIL. What it throws becomes Python's: MemoryError, OSError, TypeError
/// for a wrong element type, ValueError for every other argument, RuntimeError after such a fork.
/// Messages begin with `function` and name arguments as Python does; `bias` is what the caller
/// calls what is added to the scores.
void run_without_gil(const char* function, const std::function<void()>& work,
                     const char* bias = "bias");

/// To be called when Python begins to end, and when it has: other threads that come back from a
/// call while it is taken apart, or later, wait for the end of the process.
void python_ends();
void python_has_ended();

/// The message of heed::Error with the names that arguments have in Python.
[[nodiscard]] std::string in_python_words(const char* function, std::string message);

}  // namespace heed::python

// What several tests of the runtime need.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "heed/error.h"
#include "heed/runtime.h"

namespace heed::testing {

/// Threads of this process, those of a sanitizer included.
inline int thread_count() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

/// Waits until the condition holds; false if it does not within ten seconds.
template <class Condition>
bool wait_until(Condition&& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

/// thread_count(), once it is `expected`: a joined thread may be listed for a moment longer.
inline int thread_count_settled_at(int expected) {
  wait_until([expected] { return thread_count() == expected; });
  return thread_count();
}

/// To be called before fork(). AddressSanitizer of GCC 12 does not lock its allocator around a
/// fork: a child made while a new thread still allocates its own things inherits the lock, taken
/// for ever.
inline void let_threads_settle() {
#if defined(__SANITIZE_ADDRESS__)
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
#endif
}

/// The message of the Error that the call throws; "" if it throws none.
template <class Function>
std::string message_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// How often each task ran and, in `shared`, whether a worker ever had two tasks at once.
struct Census {
  std::vector<int> runs;                   // plain, so that ThreadSanitizer sees a task run twice
  std::vector<std::atomic<int>> occupied;  // tasks at once, by worker
  std::atomic<bool> shared{false};

  Census(std::int64_t tasks, int workers)
      : runs(static_cast<std::size_t>(tasks)), occupied(static_cast<std::size_t>(workers)) {}

  static void task(void* context, std::int64_t index, int worker) {
    Census& census = *static_cast<Census*>(context);
    std::atomic<int>& here = census.occupied.at(static_cast<std::size_t>(worker));
    if (here.fetch_add(1) != 0) census.shared = true;
    ++census.runs.at(static_cast<std::size_t>(index));
    here.fetch_sub(1);
  }

  [[nodiscard]] bool complete() const {
    for (const int count : runs) {
      if (count != 1) return false;
    }
    return !shared;
  }
};

/// Whether a run does each task once, and never two under one worker.
inline bool runs_all(Executor& executor, std::int64_t tasks) {
  Census census(tasks, executor.workers());
  executor.run(tasks, Census::task, &census);
  return census.complete();
}

}  // namespace heed::testing

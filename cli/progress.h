// A status line on stderr for work that takes longer than a second.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "heed/runtime.h"

namespace heed::cli {

/// Shows the current stage, and how much of it is done, from the first second on. Shows nothing,
/// and starts no thread, if stderr is no terminal or `quiet`.
class StatusLine {
 public:
  StatusLine(const std::string& command, bool quiet);
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  void stage(const std::string& name);
  /// Takes the line away, before results are told. What comes later is not shown.
  void end();

  std::atomic<std::int64_t> done{0};   ///< tasks of this stage that have ended
  std::atomic<std::int64_t> total{0};  ///< 0: unknown

 private:
  void watch();
  void draw();

  std::string command_;
  std::string stage_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread watcher_;
};

/// An executor that counts the tasks of another one into a status line.
class CountingExecutor final : public Executor {
 public:
  CountingExecutor(Executor& inner, StatusLine& status) : inner_(&inner), status_(&status) {}

  [[nodiscard]] int workers() const override { return inner_->workers(); }
  void run(std::int64_t tasks, void (*task)(void* context, std::int64_t index, int worker),
           void* context) override;

 private:
  Executor* inner_;
  StatusLine* status_;
};

}  // namespace heed::cli

// A caller's own threads beside heed's pool and one thread, at n = 2048: the speed-up of each over
// one thread, of least times in rounds that take turns. Built and run by
//
//     cmake --build build/release --target heed_bench_executor
//     build/release/bench/heed_bench_executor
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "heed/attention.h"

namespace {

/// A pool as a program may have: its threads sleep between calls, and take a task each until none
/// is left.
class OwnThreads final : public heed::Executor {
 public:
  explicit OwnThreads(int threads) {
    for (int worker = 0; worker < threads; ++worker) {
      threads_.emplace_back([this, worker] { serve(worker); });
    }
  }
  ~OwnThreads() override {
    {
      const std::lock_guard lock(mutex_);
      ++call_;
      ends_ = true;
    }
    begun_.notify_all();
  }

  [[nodiscard]] int workers() const override { return static_cast<int>(threads_.size()); }

  void run(std::int64_t tasks, void (*task)(void* context, std::int64_t index, int worker),
           void* context) override {
    std::unique_lock lock(mutex_);
    tasks_ = tasks, task_ = task, context_ = context;
    next_ = 0;
    busy_ = workers();
    ++call_;
    begun_.notify_all();
    ended_.wait(lock, [this] { return busy_ == 0; });
  }

 private:
  void serve(int worker) {
    std::unique_lock lock(mutex_);
    for (std::int64_t seen = 0;;) {
      begun_.wait(lock, [&] { return call_ != seen; });
      seen = call_;
      if (ends_) return;
      lock.unlock();
      for (std::int64_t i = next_++; i < tasks_; i = next_++) task_(context_, i, worker);
      lock.lock();
      if (--busy_ == 0) ended_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable begun_, ended_;
  std::int64_t tasks_ = 0, call_ = 0;
  void (*task_)(void*, std::int64_t, int) = nullptr;
  void* context_ = nullptr;
  std::atomic<std::int64_t> next_{0};
  int busy_ = 0;
  bool ends_ = false;
  std::vector<std::jthread> threads_;  // last: they use all of the above
};

double seconds_of(const auto& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main() {
  constexpr int kThreads = 2, kRounds = 15;
  OwnThreads own(kThreads);
  for (const std::int64_t size : {64, 128}) {
    const std::int64_t count = std::int64_t{8} * 2048 * size;
    std::vector<float> x(static_cast<std::size_t>(count)), o(x.size());
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (float& value : x) value = normal(random);
    const auto tokens = heed::view(static_cast<const float*>(x.data()), {1, 8, 2048, size});
    for (const bool causal : {false, true}) {
      double least[3];
      for (double& time : least) time = std::numeric_limits<double>::infinity();
      const heed::Execution ways[] = {{.executor = nullptr, .threads = 1},
                                      {.executor = nullptr, .threads = kThreads},
                                      {.executor = &own}};
      for (int round = -1; round < kRounds; ++round) {
        for (int way = 0; way < 3; ++way) {
          const double time = seconds_of([&] {
            heed::attention_forward(tokens, tokens, tokens,
                                    {.output = heed::view(o.data(), {1, 8, 2048, size})},
                                    {.mask = {.causal = causal}}, ways[way]);
          });
          if (round >= 0 && time < least[way]) least[way] = time;
        }
      }
      std::printf(
          "(1,8,2048,%d)%s: one thread %.1f ms; with %d threads the pool is %.2f times as fast, "
          "the program's own %.2f\n",
          static_cast<int>(size), causal ? " causal" : "", 1e3 * least[0], kThreads,
          least[0] / least[1], least[0] / least[2]);
    }
  }
}

// heed on somebody else's threads: an executor of the caller's, here one that also counts.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "heed/heed.h"

namespace {

/// Workers take the next task when they are done with one. A program with a thread pool of its own
/// would hand the loop to that pool; a task never waits for another, so any order is right.
class MyThreads final : public heed::Executor {
 public:
  explicit MyThreads(int threads) : tasks_done(static_cast<std::size_t>(threads)) {}

  [[nodiscard]] int workers() const override { return static_cast<int>(tasks_done.size()); }

  void run(std::int64_t tasks, void (*task)(void* context, std::int64_t index, int worker),
           void* context) override {
    std::atomic<std::int64_t> next = 0;
    std::vector<std::jthread> threads;
    for (int worker = 0; worker < workers(); ++worker) {
      threads.emplace_back([&, worker] {
        for (std::int64_t i = next++; i < tasks; i = next++) {
          task(context, i, worker);
          ++tasks_done[static_cast<std::size_t>(worker)];
        }
      });
    }
  }  // the threads are joined here: run returns when all tasks are done

  std::vector<std::int64_t> tasks_done;
};

}  // namespace

int main() {
  constexpr std::int64_t kHeads = 24, kTokens = 512, kSize = 64;
  std::vector<float> x(kHeads * kTokens * kSize), here(x.size()), there(x.size());
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (float& value : x) value = normal(random);

  const auto shaped = [](auto* data) { return heed::view(data, {kHeads, kTokens, kSize}); };
  const auto tokens = shaped(static_cast<const float*>(x.data()));

  MyThreads mine(3);
  heed::attention_forward(tokens, tokens, tokens, {.output = shaped(here.data())}, {},
                          {.executor = &mine});
  heed::attention_forward(tokens, tokens, tokens, {.output = shaped(there.data())}, {},
                          {.threads = 1});

  for (int worker = 0; worker < mine.workers(); ++worker) {
    std::printf("thread %d ran %lld tasks\n", worker,
                static_cast<long long>(mine.tasks_done[static_cast<std::size_t>(worker)]));
  }
  const bool same = std::memcmp(here.data(), there.data(), here.size() * sizeof(float)) == 0;
  std::printf("3 threads of mine and 1 of heed's: %s\n", same ? "the same bits" : "DIFFERENT BITS");
  return same ? 0 : 1;
}

// Sums of 64-bit words over a buffer that no cache holds.
#include "bandwidth.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>

#include "heed/io.h"
#include "heed/runtime.h"

namespace heed::cli {
namespace {

constexpr int kPasses = 6;
constexpr std::int64_t kWordsPerTask = std::int64_t{1} << 18;  // 2 MiB

// What the system says of the last level of cache is that of a whole socket, often 400 MB, of which
// a thread's own slice is 16 to 96 MB. A pass that comes back to the same words in the same order
// finds none of them in a cache that is a little smaller than the buffer, so 256 MiB are enough for
// one slice; with more threads, which reach more slices, 32 MiB for each.
constexpr std::int64_t kFewestBytes = std::int64_t{256} << 20;
constexpr std::int64_t kBytesPerThread = std::int64_t{32} << 20;

struct Work {
  std::uint64_t* words;
  std::atomic<std::uint64_t> sum{0};
};

// Eight sums: the additions wait for no earlier ones, only for memory.
std::uint64_t sum_of(const std::uint64_t* words) {
  std::array<std::uint64_t, 8> sums{};
  for (std::int64_t i = 0; i < kWordsPerTask; i += 8) {
    for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += words[i + static_cast<int>(j)];
  }
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += sum;
  return total;
}

// Written by the pool too, so that on machines of several nodes the pages lie on all of them.
void fill_task(void* raw, std::int64_t index, int /*worker*/) {
  std::uint64_t* words = static_cast<Work*>(raw)->words + index * kWordsPerTask;
  for (std::int64_t i = 0; i < kWordsPerTask; ++i) words[i] = static_cast<std::uint64_t>(i);
}

void sum_task(void* raw, std::int64_t index, int /*worker*/) {
  auto& work = *static_cast<Work*>(raw);
  work.sum.fetch_add(sum_of(work.words + index * kWordsPerTask), std::memory_order_relaxed);
}

}  // namespace

double measure_read_bandwidth(int threads) {
  constexpr auto kTaskBytes = static_cast<std::int64_t>(kWordsPerTask * sizeof(std::uint64_t));
  const std::int64_t wanted = std::max(kFewestBytes, threads * kBytesPerThread);
  if (wanted > memory_budget()) return 0;
  const std::int64_t tasks = wanted / kTaskBytes;
  // Not value-initialised: the pages are to be touched by the pool first.
  const std::unique_ptr<std::uint64_t[]> words(
      new (std::nothrow) std::uint64_t[static_cast<std::size_t>(tasks * kWordsPerTask)]);
  if (words == nullptr) return 0;

  PoolExecutor pool(threads);
  Work work{words.get()};
  pool.run(tasks, fill_task, &work);
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto begin = std::chrono::steady_clock::now();
    pool.run(tasks, sum_task, &work);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    best = std::max(best, static_cast<double>(tasks * kTaskBytes) / elapsed.count());
  }
  return best * 1e-9;
}

}  // namespace heed::cli

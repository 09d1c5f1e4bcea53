// The process-wide pool of threads.
//
// A run opens a gate for `helpers` threads, works itself, closes the gate when no task is left and
// waits for those that came through it. A thread that is late finds the gate closed and is not
// waited for. Everything here is constant-initialised and trivially destructible: usable before and
// after main, and a forked child can forget it without freeing what its lost threads might hold.
#include "runtime/pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>

#include "heed/error.h"
#include "heed/runtime.h"
#include "runtime/scratch.h"
#include "runtime/threads.h"

namespace heed {
namespace runtime {
namespace {

using Task = void (*)(void* context, std::int64_t index, int worker);

struct Job {
  Task task = nullptr;
  void* context = nullptr;
  std::int64_t tasks = 0;
};

constexpr std::size_t kCacheLine = 64;
constexpr std::uint32_t kActiveBits = 16;  // of the gate; 4095 fits either side
constexpr std::uint32_t kActiveMask = (1U << kActiveBits) - 1;
constexpr std::chrono::microseconds kSpin{30};

// Owned by the one run that set `busy`; the end of the process owns it for good.
alignas(kCacheLine) constinit std::atomic<bool> busy{false};
constinit int started = 0;
constinit pthread_t threads[kMaxThreads] = {};
constinit Job job;

// gate = helpers << 16 | active. Threads 1 .. helpers may come in; `active` of them are inside.
alignas(kCacheLine) constinit std::atomic<std::uint32_t> gate{0};
// What thread i + 1 waits on: its invitations are counted here. One word each, so that a run wakes
// no more threads than it wants.
struct alignas(kCacheLine) Invitations {
  std::atomic<std::uint32_t> count{0};
};
constinit Invitations invitations[kMaxThreads] = {};
constinit std::atomic<bool> stopping{false};
// The next task's index.
alignas(kCacheLine) constinit std::atomic<std::int64_t> next{0};

alignas(kCacheLine) constinit std::atomic<int> counted_threads{0};
constinit std::atomic<std::int64_t> refused_starts{0};
constinit std::atomic<std::int64_t> shared_runs{0};

// This thread is inside a run of the pool. Only a fork asks.
constinit thread_local bool inside = false;

void pause() noexcept {
#if defined(__x86_64__)
  asm volatile("pause" : : : "memory");
#elif defined(__aarch64__)
  asm volatile("isb" : : : "memory");
#endif
}

/// Returns once word != old. Runs come in quick succession, and waking a thread takes longer than
/// most gaps between them: hence the spinning.
void wait_while(const std::atomic<std::uint32_t>& word, std::uint32_t old) noexcept {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (word.load(std::memory_order_acquire) != old) return;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  word.wait(old, std::memory_order_acquire);
}

/// noexcept: a task that throws against its contract ends the process here, not the pool's sanity.
void work_on(const Job& current, int worker) noexcept {
  for (;;) {
    const std::int64_t index = next.fetch_add(1, std::memory_order_relaxed);
    if (index >= current.tasks) return;
    current.task(current.context, index, worker);
  }
}

bool enter(std::uint32_t id) noexcept {
  std::uint32_t value = gate.load(std::memory_order_relaxed);
  while (id <= value >> kActiveBits) {
    if (gate.compare_exchange_weak(value, value + 1, std::memory_order_acquire,
                                   std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

void* thread_main(void* argument) {
  const auto id = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(argument));
  const std::atomic<std::uint32_t>& invited = invitations[id - 1].count;
  inside = true;
  for (;;) {
    const std::uint32_t seen = invited.load(std::memory_order_acquire);
    if (stopping.load(std::memory_order_relaxed)) {  // set before the last invitation
      scratch_release();  // statics die, and with them what would do this when the thread ends
      return nullptr;
    }
    if (enter(id)) {
      work_on(Job(job), static_cast<int>(id));
      // 1: the gate is closed and this was the last one inside.
      if (gate.fetch_sub(1, std::memory_order_acq_rel) == 1) gate.notify_one();
    }
    wait_while(invited, seen);
  }
}

/// Signals are the application's: they go to its threads. Those that a thread raises itself stay.
void block_signals(sigset_t* before) noexcept {
  sigset_t signals;
  sigfillset(&signals);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF}) {
    sigdelset(&signals, own);
  }
  pthread_sigmask(SIG_SETMASK, &signals, before);
}

/// Has `wanted` threads started, or as many as the system grants; returns how many there are.
int start_threads(int wanted) noexcept {
  if (started >= wanted) return wanted;
  sigset_t before;
  block_signals(&before);
  while (started < wanted) {
    const std::uintptr_t id = static_cast<std::uintptr_t>(started) + 1;
    if (pthread_create(&threads[started], nullptr, thread_main, reinterpret_cast<void*>(id)) != 0) {
      refused_starts.fetch_add(1, std::memory_order_relaxed);
      break;
    }
    ++started;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  counted_threads.store(started, std::memory_order_relaxed);
  return started;
}

void invite(int helpers) noexcept {
  for (int i = 0; i < helpers; ++i) {
    invitations[i].count.fetch_add(1);
    invitations[i].count.notify_one();
  }
}

/// Runs the job on this thread and `helpers` others. `busy` is ours.
void run_shared(const Job& current, int helpers) noexcept {
  shared_runs.fetch_add(1, std::memory_order_relaxed);
  job = current;
  next.store(0, std::memory_order_relaxed);
  gate.store(static_cast<std::uint32_t>(helpers) << kActiveBits, std::memory_order_release);
  invite(helpers);
  work_on(current, 0);
  std::uint32_t active = gate.fetch_and(kActiveMask, std::memory_order_acq_rel) & kActiveMask;
  while (active != 0) {
    wait_while(gate, active);
    active = gate.load(std::memory_order_acquire);
  }
}

/// A forked child has only the thread that forked, and starts threads anew when it needs them. If
/// that thread is inside a run, the pool stays the run's own, which goes on without helpers; the
/// tasks that those had begun are lost, so a task that forks should end its child before returning.
void after_fork_in_child() noexcept {
  started = 0;
  counted_threads.store(0, std::memory_order_relaxed);
  gate.store(0, std::memory_order_relaxed);
  busy.store(inside, std::memory_order_relaxed);
}

/// Begins when the library is loaded and ends when it is unloaded or the process exits.
struct Lifetime {
  Lifetime() noexcept {
    // A pool that a fork would break is never used: every run stays on its own thread.
    if (pthread_atfork(nullptr, nullptr, after_fork_in_child) != 0) busy.store(true);
  }
  ~Lifetime() {
    // If a run is under way, as when a task calls exit(), its threads are left to the process's
    // end: waiting for them could take for ever. Either way later runs stay on their own thread.
    if (busy.exchange(true, std::memory_order_acquire)) return;
    stopping.store(true, std::memory_order_relaxed);
    invite(started);
    for (int i = 0; i < started; ++i) pthread_join(threads[i], nullptr);
    started = 0;
    counted_threads.store(0, std::memory_order_relaxed);
  }
};
const Lifetime lifetime;

}  // namespace

PoolCounters pool_counters() noexcept {
  return {.threads = counted_threads.load(std::memory_order_relaxed),
          .shared_runs = shared_runs.load(std::memory_order_relaxed)};
}

}  // namespace runtime

std::int64_t refused_thread_starts() noexcept {
  return runtime::refused_starts.load(std::memory_order_relaxed);
}

PoolExecutor::PoolExecutor(int threads) : workers_(threads) {
  if (threads < 0 || threads > runtime::kMaxThreads) {
    throw Error("PoolExecutor: threads is " + std::to_string(threads) +
                "; it must be from 0 (the default) to " + std::to_string(runtime::kMaxThreads));
  }
  if (threads == 0) workers_ = default_threads();
}

void PoolExecutor::run(std::int64_t tasks,
                       void (*task)(void* context, std::int64_t index, int worker), void* context) {
  using namespace runtime;
  if (workers_ > 1 && tasks > 1 && !busy.load(std::memory_order_relaxed) &&
      !busy.exchange(true, std::memory_order_acquire)) {
    const auto most = static_cast<int>(std::min<std::int64_t>(workers_, tasks)) - 1;
    const int helpers = start_threads(most);
    inside = true;
    run_shared({.task = task, .context = context, .tasks = tasks}, helpers);
    inside = false;
    busy.store(false, std::memory_order_release);
    return;
  }
  for (std::int64_t i = 0; i < tasks; ++i) task(context, i, 0);
}

}  // namespace heed

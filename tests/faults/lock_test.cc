// Calls too small to share take no lock: a service of many threads does not queue up before heed.
// Method: this program's own lock functions stand before the system's and count.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <mutex>

#include "heed/attention.h"
#include "heed/backward.h"
#include "heed/jvp.h"

namespace {

constinit std::atomic<int> locks{0};

/// Counts, and goes on to the system's function of this name.
template <typename Lock>
int counted(const char* name, Lock* lock) {
  ++locks;
  using Function = int (*)(Lock*);
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name))(lock);
}

}  // namespace

extern "C" int pthread_mutex_lock(pthread_mutex_t* lock) noexcept {
  return counted("pthread_mutex_lock", lock);
}
extern "C" int pthread_mutex_trylock(pthread_mutex_t* lock) noexcept {
  return counted("pthread_mutex_trylock", lock);
}
extern "C" int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  return counted("pthread_rwlock_rdlock", lock);
}
extern "C" int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  return counted("pthread_rwlock_wrlock", lock);
}
extern "C" int pthread_spin_lock(pthread_spinlock_t* lock) noexcept {
  return counted("pthread_spin_lock", const_cast<int*>(lock));
}

namespace {

TEST(locks, are_counted) {
  std::mutex mutex;
  const int before = locks;
  const std::lock_guard guard(mutex);
  EXPECT_EQ(locks - before, 1);
}

TEST(locks, are_not_taken_by_a_small_call) {
  const std::vector<float> q(32, 0.5F), k(32, 0.25F), v(32, 2.0F);
  std::vector<float> o(32), lse(4), dq(32), dk(32), dv(32), moved(32);
  const auto in = [](const std::vector<float>& numbers) {
    return heed::view(numbers.data(), {1, 1, 4, 8});
  };
  const auto to = [](std::vector<float>& numbers) {
    return heed::view(numbers.data(), {1, 1, 4, 8});
  };
  const auto rows = heed::view(lse.data(), {1, 1, 4});
  const auto calls = [&] {
    heed::attention_forward(in(q), in(k), in(v), {.output = to(o), .lse = rows});
    heed::attention_backward(
        {.q = in(q), .k = in(k), .v = in(v), .output = in(o), .lse = rows, .d_output = in(q)},
        {.dq = to(dq), .dk = to(dk), .dv = to(dv)});
    heed::attention_jvp({.q = in(q), .k = in(k), .v = in(v), .output = in(o), .lse = rows},
                        {.q = in(k)}, {.output = to(moved)});
  };
  calls();  // finds out about CPU and environment, once per process
  const int before = locks;
  for (int n = 0; n < 100; ++n) calls();
  EXPECT_EQ(locks - before, 0);
}

}  // namespace

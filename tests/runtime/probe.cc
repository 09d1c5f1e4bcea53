// One question per process; process_test.cc asks. Prints the answer; exits with 0 if all is well.
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <semaphore>
#include <string>
#include <thread>

#include "runtime/pool.h"
#include "runtime/scratch.h"
#include "runtime/tasks.h"
#include "support.h"

extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }

// LeakSanitizer of GCC 12 guesses where glibc keeps the thread-local variables of a library that
// was loaded at run time. Where their memory happens to begin 16 bytes into a page it takes what
// lies before for an address, reads there and dies. Told not to guess it has fewer places to find
// pointers in.
extern "C" const char* __asan_default_options() { return "intercept_tls_get_addr=0"; }

namespace {

using heed::PoolExecutor;
using heed::testing::let_threads_settle;
using heed::testing::runs_all;
using heed::testing::thread_count;
using heed::testing::thread_count_settled_at;

bool runs_on(int threads) {
  PoolExecutor executor(threads);
  return runs_all(executor, 1000);
}

/// Uses the pool when the statics of this program die.
struct Static {
  bool armed = false;
  ~Static() {
    if (armed && !runs_on(4)) std::_Exit(1);
  }
} runs_after_main;

int threads() {
  // Twice: an error must come at every call.
  for (int i = 0; i < 2; ++i) {
    const std::string message =
        heed::testing::message_of([] { std::printf("%d\n", PoolExecutor().workers()); });
    if (!message.empty()) std::printf("%s\n", message.c_str());
  }
  return 0;
}

int isa() {
  for (int i = 0; i < 2; ++i) {
    const std::string message = heed::testing::message_of(
        [] { std::printf("%s\n", std::string(heed::name_of(heed::instruction_set())).c_str()); });
    if (!message.empty()) std::printf("%s\n", message.c_str());
  }
  return 0;
}

int capped_isa() {
  heed::cap_instruction_set(heed::Isa::scalar);
  return isa();
}

/// Everything but a parallel run leaves the process with the threads it had.
int no_thread_before_use() {
  const int before = thread_count();
  (void)heed::instruction_set();
  (void)heed::default_threads();
  const heed::runtime::ScratchLease lease(1000);
  PoolExecutor many(16);
  const bool right = runs_all(many, 1) && runs_on(1);
  const int after = thread_count();
  const bool parallel = runs_on(4);
  const int in_use = thread_count();
  std::printf("%d %d\n", after - before, in_use - before);
  return right && parallel ? 0 : 1;
}

int use_after_main() {
  runs_after_main.armed = true;
  return runs_on(4) ? 0 : 1;
}

/// One task never ends; the other one, on the main thread, ends the process.
int exit_in_task() {
  PoolExecutor executor(2);
  std::atomic<bool> helper_inside{false};
  heed::runtime::run_tasks(executor, 2, [&](std::int64_t, int worker) {
    if (worker == 0) {
      heed::testing::wait_until([&] { return helper_inside.load(); });
      std::exit(0);
    }
    helper_inside = true;
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  });
  return 1;
}

int exit_while_another_thread_runs() {
  std::thread([] {
    for (;;) runs_on(4);
  }).detach();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return 0;
}

int exit_of_a_child() {
  if (!runs_on(4)) return 1;
  let_threads_settle();
  const pid_t child = fork();
  if (child == 0) std::exit(runs_on(4) ? 0 : 1);
  int status = 1;
  waitpid(child, &status, 0);
  return status == 0 ? 0 : 1;
}

/// The library's threads end when it goes, and a second load starts anew.
int unload(const char* path) {
  const int before = thread_count();
  for (int round = 0; round < 3; ++round) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      std::printf("%s\n", dlerror());
      return 1;
    }
    const auto run = reinterpret_cast<int (*)(int)>(dlsym(library, "heed_module_runs_all"));
    if (run(4) != 1) return 1;
    const int in_use = thread_count() - before;
    dlclose(library);
    const bool gone = dlopen(path, RTLD_NOW | RTLD_NOLOAD) == nullptr;
    const int left = thread_count_settled_at(before) - before;
    std::printf("%d %s %d\n", in_use, gone ? "gone" : "stays", left);
  }
  return 0;
}

/// A thread that used the library ends after it is gone.
int outlive(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return 1;
  const auto keep = reinterpret_cast<std::size_t (*)()>(dlsym(library, "heed_module_keeps"));
  const auto forget = reinterpret_cast<void (*)()>(dlsym(library, "heed_module_forgets"));
  keep();  // for LeakSanitizer to see that it is freed
  std::binary_semaphore used(0), unloaded(0);
  std::thread user([&] {
    keep();
    forget();  // what other threads keep when the library goes is lost
    used.release();
    unloaded.acquire();
  });
  used.acquire();
  dlclose(library);
  std::puts(dlopen(path, RTLD_NOW | RTLD_NOLOAD) == nullptr ? "gone" : "stays");
  unloaded.release();
  user.join();
  return 0;
}

/// Loads the library with this many keys of pthread left: how much it keeps, twice.
int keep_with_keys(const char* path, int left) {
  pthread_key_t keys[PTHREAD_KEYS_MAX];
  int taken = 0;
  while (taken < PTHREAD_KEYS_MAX && pthread_key_create(&keys[taken], nullptr) == 0) ++taken;
  for (; left > 0; --left) pthread_key_delete(keys[--taken]);
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return 1;
  const auto keep = reinterpret_cast<std::size_t (*)()>(dlsym(library, "heed_module_keeps"));
  for (int round = 0; round < 2; ++round) std::printf("%zu ", keep());
  dlclose(library);
  std::puts(dlopen(path, RTLD_NOW | RTLD_NOLOAD) == nullptr ? "gone" : "stays");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
#if defined(__SANITIZE_THREAD__)
  // ThreadSanitizer starts a thread of its own with the first one: let that not be one of ours.
  std::thread([] {}).join();
  (void)thread_count_settled_at(2);
#endif
  const std::string question = argc > 1 ? argv[1] : "";
  if (question == "threads") return threads();
  if (question == "isa") return isa();
  if (question == "capped_isa") return capped_isa();
  if (question == "no_thread_before_use") return no_thread_before_use();
  if (question == "use_after_main") return use_after_main();
  if (question == "exit_in_task") return exit_in_task();
  if (question == "exit_while_another_thread_runs") return exit_while_another_thread_runs();
  if (question == "exit_of_a_child") return exit_of_a_child();
  if (question == "unload" && argc > 2) return unload(argv[2]);
  if (question == "outlive" && argc > 2) return outlive(argv[2]);
  if (question == "keep_without_a_key" && argc > 2) return keep_with_keys(argv[2], 0);
  if (question == "keep_with_the_last_key" && argc > 2) return keep_with_keys(argv[2], 1);
  return 2;
}

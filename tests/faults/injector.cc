// A library to preload into the program: allocations and threads that fail when told to.
//
//   FAULT_MALLOC=n    the n-th allocation after main began fails
//   FAULT_FROM=n      that one and all later ones
//   FAULT_THREADS=n   n threads start, then none
//   FAULT_COUNT=file  how many allocations there were, written when the process ends
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
}

namespace {

using Main = int (*)(int, char**, char**);
Main program = nullptr;
std::atomic<long> allocations{-1};  // not counted before main: nothing of ours runs there
long failing = 0, failing_from = 0, threads = -1;

long number(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atol(text);
}

bool fails() {
  if (allocations.load() < 0) return false;
  const long n = ++allocations;
  if (n != failing && (failing_from == 0 || n < failing_from)) return false;
  errno = ENOMEM;
  return true;
}

int counted_main(int argc, char** argv, char** environment) {
  failing = number("FAULT_MALLOC", 0);
  failing_from = number("FAULT_FROM", 0);
  threads = number("FAULT_THREADS", -1);
  allocations = 0;
  const int code = program(argc, argv, environment);
  const long count = allocations.exchange(-1);
  if (const char* path = std::getenv("FAULT_COUNT")) {
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    dprintf(file, "%ld\n", count);
    close(file);
  }
  return code;
}

}  // namespace

extern "C" {

void* malloc(std::size_t bytes) { return fails() ? nullptr : __libc_malloc(bytes); }
void* calloc(std::size_t count, std::size_t bytes) {
  return fails() ? nullptr : __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  return fails() ? nullptr : __libc_realloc(memory, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  return fails() ? nullptr : __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
  if (fails()) return ENOMEM;
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) noexcept {
  static const auto real =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  if (threads == 0) return EAGAIN;
  if (threads > 0) --threads;
  return real(thread, attributes, start, argument);
}

int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(),
                      void (*rtld_fini)(), void* stack_end) {
  using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  program = main;
  const auto real = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return real(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}

}  // extern "C"

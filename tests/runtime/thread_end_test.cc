// What a thread keeps needs no memory of its own to be freed when the thread ends: glibc ends a
// process that cannot register the destructor of a thread_local.
// Method: this program's calloc, with which glibc asks for that memory, fails when told to.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "runtime/scratch.h"

extern "C" void* __libc_calloc(std::size_t count, std::size_t bytes);  // NOLINT: glibc's name

namespace {

constinit std::atomic<bool> failing{false};

}  // namespace

extern "C" void* calloc(std::size_t count, std::size_t bytes) noexcept {
  return failing ? nullptr : __libc_calloc(count, bytes);
}

namespace heed::runtime {
namespace {

TEST(thread_end, is_prepared_without_an_allocation) {
  std::thread([] {
    failing = true;
    { const ScratchLease first(1); }
    const std::size_t kept = scratch_kept();
    failing = false;
    EXPECT_EQ(kept, kScratchAlignment);
  }).join();
}

}  // namespace
}  // namespace heed::runtime

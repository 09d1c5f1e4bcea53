// Working memory for one call, kept by the calling thread for its next one.
#include "runtime/scratch.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "heed/error.h"

#if defined(__SANITIZE_ADDRESS__)
#define HEED_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HEED_ASAN 1
#endif
#endif
#if defined(HEED_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace heed::runtime {
namespace {

/// Kept memory is a list that lives in the memory itself, as long as leases were ever nested deep.
struct Block {
  Block* next;
  std::size_t capacity;
};

constinit thread_local Block* kept = nullptr;
constinit thread_local bool armed = false;
constinit thread_local bool ended = false;

/// Frees what a thread keeps when it ends. A key of pthread's and no thread_local with a
/// destructor: to register one, glibc allocates, and ends the process if it cannot; a key says so.
/// Destructors of other thread_locals that still use heed run before those of keys. A library that
/// is unloaded frees what the unloading thread keeps; what other living threads keep is lost.
class AtThreadEnd {
 public:
  AtThreadEnd() noexcept : made_(pthread_key_create(&key_, release) == 0) {}
  ~AtThreadEnd() {
    // Other threads are to end without this library; one that is still in a call keeps nothing any
    // more.
    if (made_.exchange(false)) pthread_key_delete(key_);
    release(this);
  }
  AtThreadEnd(const AtThreadEnd&) = delete;
  AtThreadEnd& operator=(const AtThreadEnd&) = delete;

  /// Whether this thread may keep memory: not where nothing would free it.
  [[nodiscard]] bool arm() noexcept {
    if (!armed) armed = made_ && !ended && pthread_setspecific(key_, this) == 0;
    return armed;
  }

 private:
  static void release(void* /*this*/) noexcept {
    armed = false;
    ended = true;
    scratch_release();
  }

  pthread_key_t key_ = 0;
  std::atomic<bool> made_;
};
AtThreadEnd at_thread_end;

// Under AddressSanitizer a lease ends where it was asked to end, even if its block is larger; what
// nobody holds cannot be touched; and what is leased again holds NaN, not the last call's numbers.
void conceal([[maybe_unused]] const void* memory, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(HEED_ASAN)
  __asan_poison_memory_region(memory, bytes);
#endif
}

void reveal([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(HEED_ASAN)
  __asan_unpoison_memory_region(memory, bytes);
#endif
}

void forget([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(HEED_ASAN)
  std::memset(memory, 0xFF, bytes);
#endif
}

void free_block(Block* block, std::size_t capacity) noexcept {
  reveal(block, capacity);
  std::free(block);
}

/// Unlinks the smallest kept block of at least `bytes`; else the largest one; null if none is kept.
Block* take(std::size_t bytes) noexcept {
  Block** best = nullptr;
  for (Block** link = &kept; *link != nullptr; link = &(*link)->next) {
    const std::size_t capacity = (*link)->capacity;
    const std::size_t best_capacity = best == nullptr ? 0 : (*best)->capacity;
    const bool fits = capacity >= bytes;
    const bool best_fits = best_capacity >= bytes;
    const bool better =
        fits ? !best_fits || capacity < best_capacity : !best_fits && capacity > best_capacity;
    if (best == nullptr || better) best = link;
  }
  if (best == nullptr) return nullptr;
  Block* block = *best;
  *best = block->next;
  return block;
}

}  // namespace

ScratchLease::ScratchLease(std::size_t bytes) : data_(nullptr), bytes_(bytes), capacity_(0) {
  if (Block* block = take(bytes); block != nullptr) {
    if (block->capacity >= bytes) {
      capacity_ = block->capacity;
      data_ = reinterpret_cast<std::byte*>(block);
    } else {
      free_block(block, block->capacity);  // too small for this call, so it makes room
    }
  }
  if (data_ == nullptr) {
    if (bytes <= SIZE_MAX - kScratchAlignment) {
      const std::size_t pages = (bytes + kScratchAlignment - 1) / kScratchAlignment;
      capacity_ = std::max<std::size_t>(pages, 1) * kScratchAlignment;
      data_ = static_cast<std::byte*>(std::aligned_alloc(kScratchAlignment, capacity_));
    }
    if (data_ == nullptr) {
      throw Error(ErrorKind::memory,
                  "scratch memory: " + std::to_string(bytes) + " bytes could not be allocated");
    }
  }
  reveal(data_, bytes_);
  forget(data_, bytes_);
  conceal(data_ + bytes_, capacity_ - bytes_);
}

ScratchLease::~ScratchLease() {
  if (capacity_ > kScratchKept - scratch_kept() || !at_thread_end.arm()) {
    free_block(reinterpret_cast<Block*>(data_), capacity_);
    return;
  }
  reveal(data_, sizeof(Block));
  kept = new (data_) Block{.next = kept, .capacity = capacity_};
  conceal(data_ + sizeof(Block), capacity_ - sizeof(Block));
}

std::size_t scratch_kept() noexcept {
  std::size_t bytes = 0;
  for (const Block* block = kept; block != nullptr; block = block->next) bytes += block->capacity;
  return bytes;
}

void scratch_release() noexcept {
  while (kept != nullptr) {
    Block* block = kept;
    kept = block->next;
    free_block(block, block->capacity);
  }
}

}  // namespace heed::runtime

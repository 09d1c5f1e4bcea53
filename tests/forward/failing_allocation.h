// This program's operator new and aligned_alloc, counted, and failing when told to. For one source
// of a program.
#pragma once

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<long> allocations{0}, failing{0};  // failing: counts down, 1 is the one that fails
std::atomic<std::size_t> largest{0};           // request in bytes

void* obtain(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  if (bytes > largest.load()) largest = bytes;
  if (failing.load() > 0 && failing.fetch_sub(1) == 1) return nullptr;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes == 0 ? 1 : bytes);
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}
void* obtain_or_throw(std::size_t bytes, std::size_t alignment) {
  void* const memory = obtain(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
// Inlined, g++ 12 could take it for free() of what another operator new gave.
[[gnu::noinline]] void give_back(void* memory) noexcept { std::free(memory); }
}  // namespace

extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  return obtain(bytes, alignment);
}
void* operator new(std::size_t bytes) { return obtain_or_throw(bytes, 1); }
void* operator new[](std::size_t bytes) { return obtain_or_throw(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t a) {
  return obtain_or_throw(bytes, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t bytes, std::align_val_t a) {
  return obtain_or_throw(bytes, static_cast<std::size_t>(a));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return obtain(bytes, 1); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return obtain(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t a, const std::nothrow_t&) noexcept {
  return obtain(bytes, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t bytes, std::align_val_t a, const std::nothrow_t&) noexcept {
  return obtain(bytes, static_cast<std::size_t>(a));
}
void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete[](void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { give_back(memory); }
void operator delete[](void* memory, std::size_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { give_back(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { give_back(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { give_back(memory); }

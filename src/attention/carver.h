// Scratch memory, cut into pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "heed/error.h"

namespace heed {

/// Hands out pieces of one allocation; throws where the sum leaves std::size_t.
class Carver {
 public:
  static constexpr std::size_t kAlignment = 64;

  Carver(const char* function, std::byte* base) : function_(function), base_(base) {}

  /// count * each elements of T.
  template <typename T>
  T* take(std::int64_t count, std::int64_t each = 1) {
    const std::size_t at = used_;
    std::size_t bytes = 0;
    if (__builtin_mul_overflow(count, each, &bytes) ||
        __builtin_mul_overflow(bytes, sizeof(T), &bytes) ||
        __builtin_add_overflow(bytes, kAlignment - 1, &bytes) ||
        __builtin_add_overflow(used_, bytes / kAlignment * kAlignment, &used_)) {
      throw Error(ErrorKind::memory,
                  std::string(function_) + ": scratch memory exceeds the address space");
    }
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
  }

  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  const char* function_;
  std::byte* base_;
  std::size_t used_ = 0;
};

}  // namespace heed

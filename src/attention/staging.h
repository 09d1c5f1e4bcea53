// Copies between the caller's rows, of any stride and alignment, and dense scratch. Copies only:
// staging changes no bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "attention/problem.h"

namespace heed {

/// True if the rows of a tensor can be used where they are: adjacent elements, aligned.
template <typename Real>
[[nodiscard]] inline bool usable_in_place(const View4& view) {
  const bool adjacent = view.stride[3] == 1;
  return adjacent && reinterpret_cast<std::uintptr_t>(view.data) % alignof(Real) == 0;
}

/// Asks for the cache lines of the `bytes` that lie `ahead` of an address. A hint: there may be nothing.
inline void prefetch_row(const std::byte* from, std::int64_t ahead, std::int64_t bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(from) + static_cast<std::uintptr_t>(ahead);
  for (std::int64_t at = 0; at < bytes; at += 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(first + static_cast<std::uintptr_t>(at)));
  }
}

/// dense[x] = the row's element x.
template <typename Real>
inline void gather_row(const std::byte* row, std::int64_t stride, std::int64_t size, Real* dense) {
  if (stride == 1) {
    if (size > 0) std::memcpy(dense, row, static_cast<std::size_t>(size) * sizeof(Real));
    return;
  }
  const std::int64_t step = stride * static_cast<std::int64_t>(sizeof(Real));
  for (std::int64_t x = 0; x < size; ++x) std::memcpy(dense + x, row + x * step, sizeof(Real));
}

/// The row's element x = dense[x].
template <typename Real>
inline void scatter_row(const Real* dense, std::int64_t size, std::byte* row, std::int64_t stride) {
  if (stride == 1) {
    if (size > 0) std::memcpy(row, dense, static_cast<std::size_t>(size) * sizeof(Real));
    return;
  }
  const std::int64_t step = stride * static_cast<std::int64_t>(sizeof(Real));
  for (std::int64_t x = 0; x < size; ++x) std::memcpy(row + x * step, dense + x, sizeof(Real));
}

}  // namespace heed

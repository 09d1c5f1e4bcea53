// Copies between the caller's rows, of any stride and alignment, and dense scratch. Rows of float16
// and bfloat16 become float32, and back rounded once; else staging changes no bit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "attention/problem.h"
#include "kernels/conversions.h"

namespace heed {

template <typename Real>
inline constexpr DType kDTypeOf = sizeof(Real) == 4 ? DType::f32 : DType::f64;

/// True if the rows of a tensor can be used where they are: of this type, adjacent elements,
/// aligned.
template <typename Real>
[[nodiscard]] inline bool usable_in_place(const View4& view) {
  const bool adjacent = view.dtype == kDTypeOf<Real> && view.stride[3] == 1;
  return adjacent && reinterpret_cast<std::uintptr_t>(view.data) % alignof(Real) == 0;
}

/// Asks for the cache lines of the `bytes` that lie `ahead` of an address. A hint: there may be
/// nothing.
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

/// 16-bit elements that are gathered from a row before they are converted.
inline constexpr std::int64_t kGathered = 64;

/// dense[x] = the row's element x, as a float.
inline void widen_row(const kernels::Conversions& convert, const View4& view, const std::byte* row,
                      std::int64_t size, float* dense) {
  const auto widen = view.dtype == DType::f16 ? convert.from_f16 : convert.from_bf16;
  if (view.stride[3] == 1) return widen(row, size, dense);
  for (std::int64_t first = 0; first < size; first += kGathered) {
    std::uint16_t bits[kGathered];
    const std::int64_t count = std::min(kGathered, size - first);
    gather_row(row + first * view.stride[3] * 2, view.stride[3], count, bits);
    widen(reinterpret_cast<const std::byte*>(bits), count, dense + first);
  }
}

/// The row's element x = dense[x], rounded once.
inline void narrow_row(const kernels::Conversions& convert, const float* dense, std::int64_t size,
                       const View4& view, std::byte* row) {
  const auto narrow = view.dtype == DType::f16 ? convert.to_f16 : convert.to_bf16;
  if (view.stride[3] == 1) return narrow(dense, size, row);
  for (std::int64_t first = 0; first < size; first += kGathered) {
    std::uint16_t bits[kGathered];
    const std::int64_t count = std::min(kGathered, size - first);
    narrow(dense + first, count, reinterpret_cast<std::byte*>(bits));
    scatter_row(bits, count, row + first * view.stride[3] * 2, view.stride[3]);
  }
}

/// dense[x] = element x of the row of `view` that begins at `row`, in Real.
template <typename Real>
inline void gather_row(const kernels::Conversions& convert, const View4& view, const std::byte* row,
                       std::int64_t size, Real* dense) {
  if constexpr (sizeof(Real) == 4) {
    if (size_of(view.dtype) == 2) return widen_row(convert, view, row, size, dense);
  }
  gather_row(row, view.stride[3], size, dense);
}

/// Element x of the row of `view` that begins at `row` = dense[x], in the type of `view`.
template <typename Real>
inline void scatter_row(const kernels::Conversions& convert, const Real* dense, std::int64_t size,
                        const View4& view, std::byte* row) {
  if constexpr (sizeof(Real) == 4) {
    if (size_of(view.dtype) == 2) return narrow_row(convert, dense, size, view, row);
  }
  scatter_row(dense, size, row, view.stride[3]);
}

/// The row's elements as they are, in pairs: a zero beside an odd last one.
inline void gather_pairs(const View4& view, const std::byte* row, std::int64_t size,
                         std::byte* dense) {
  gather_row(row, view.stride[3], size, reinterpret_cast<std::uint16_t*>(dense));
  if (size % 2 != 0) std::memset(dense + 2 * size, 0, 2);
}

}  // namespace heed

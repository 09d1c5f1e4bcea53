// Single elements of any type, read and written at any alignment.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "heed/attention.h"
#include "kernels/half.h"

namespace heed {

template <typename T>
inline T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

using kernels::from_bf16;
using kernels::from_f16;

/// x rounded to Real; a finite x that Real cannot hold becomes the largest that it can, since an
/// infinity would mean something else (a mask, a NaN).
template <typename Real>
inline Real narrow(double x) {
  constexpr double kLargest = std::numeric_limits<Real>::max();
  if (std::isfinite(x)) x = std::clamp(x, -kLargest, kLargest);
  return static_cast<Real>(x);
}

/// An element of a floating type, as narrow() rounds it.
template <typename Real>
inline Real load_real(const std::byte* at, DType dtype) {
  switch (dtype) {
    case DType::f64:
      return narrow<Real>(load<double>(at));
    case DType::f16:
      return static_cast<Real>(from_f16(load<std::uint16_t>(at)));
    case DType::bf16:
      return static_cast<Real>(from_bf16(load<std::uint16_t>(at)));
    default:
      return static_cast<Real>(load<float>(at));
  }
}

/// An element of an integral type: is it anything but 0?
inline bool is_true(const std::byte* at, DType dtype) {
  switch (size_of(dtype)) {
    case 1:
      return load<std::uint8_t>(at) != 0;
    case 2:
      return load<std::uint16_t>(at) != 0;
    case 4:
      return load<std::uint32_t>(at) != 0;
    default:
      return load<std::uint64_t>(at) != 0;
  }
}

/// Entry i of a one-or-each setting, `otherwise` where it is absent.
inline std::int64_t entry(const PerBatch& setting, std::int64_t i, std::int64_t otherwise) {
  if (setting.one) return *setting.one;
  if (!setting.each.present()) return otherwise;
  const auto* at =
      static_cast<const std::byte*>(setting.each.data) +
      i * setting.each.stride[0] * static_cast<std::int64_t>(size_of(setting.each.dtype));
  return setting.each.dtype == DType::i32 ? load<std::int32_t>(at) : load<std::int64_t>(at);
}

inline double entry(const ConstTensorView& each, std::int64_t i) {
  const auto* at = static_cast<const std::byte*>(each.data) +
                   i * each.stride[0] * static_cast<std::int64_t>(size_of(each.dtype));
  return load_real<double>(at, each.dtype);
}

}  // namespace heed

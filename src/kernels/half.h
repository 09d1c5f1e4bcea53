// One element of float16 or bfloat16 and the float that it stands for: what the kernels that
// convert rows are compared with, and what they do where there are no vectors.
#pragma once

#include <bit>
#include <cstdint>

namespace heed::kernels {

/// IEEE binary16 as a float: exact for every pattern, NaN stays NaN.
inline float from_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t rest = bits & 0x7fffu;
  // Shifted into place a finite number is 2^-112 times too small; the product rounds nothing.
  if (rest < 0x7c00u) {
    const float magnitude = std::bit_cast<float>(rest << 13) * 0x1p112f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  return std::bit_cast<float>((rest << 13) | 0x7f800000u | sign);
}

inline float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// The nearest bfloat16, the even one of two; NaN stays NaN, and what is too large becomes
/// infinite.
inline std::uint16_t to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// The nearest float16, likewise, subnormal numbers too.
inline std::uint16_t to_f16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t rest = bits & 0x7fffffffu;
  std::uint32_t half = 0;
  if (rest > 0x7f800000u) {
    half = 0x7e00u | ((rest >> 13) & 0x3ffu);
  } else if (rest >= 0x477ff000u) {  // 65520: half a unit above the largest float16
    half = 0x7c00u;
  } else if (rest >= 0x38800000u) {  // 2^-14, the least normal one
    half = ((rest + 0xfffu + ((rest >> 13) & 1u)) >> 13) - (112u << 10);
  } else {
    // In [0.5, 1) a float's unit is 2^-24, which is that of subnormal float16: the sum rounds.
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest) + 0.5f) - 0x3f000000u;
  }
  return static_cast<std::uint16_t>(sign | half);
}

}  // namespace heed::kernels

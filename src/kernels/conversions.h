// Rows of float16 and bfloat16 to float and back: one table per instruction set.
//
// To float nothing is rounded. Back each element is rounded once, to the nearest, the even one of
// two; subnormal numbers are kept, NaN stays NaN (its sign and payload are free), what is too large
// becomes infinite. Memory of 16-bit elements may have any alignment.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heed::kernels {

struct Conversions {
  int target;  ///< number of the instruction set in heed::Isa
  void (*from_f16)(const std::byte* from, std::int64_t count, float* to) noexcept;
  void (*from_bf16)(const std::byte* from, std::int64_t count, float* to) noexcept;
  void (*to_f16)(const float* from, std::int64_t count, std::byte* to) noexcept;
  void (*to_bf16)(const float* from, std::int64_t count, std::byte* to) noexcept;
};

/// The conversions of an instruction set, or null if they were not compiled.
const Conversions* conversions_for(int target) noexcept;

}  // namespace heed::kernels

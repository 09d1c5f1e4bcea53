// float16 and bfloat16 arrays as float32 and back, for kernels that know float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "heed/tensor.h"

namespace heed::python {

/// float16 or bfloat16.
[[nodiscard]] constexpr bool is_half(DType dtype) noexcept {
  return dtype == DType::f16 || dtype == DType::bf16;
}

/// The float32 that has the same value.
[[nodiscard]] float widened(std::uint16_t bits, DType dtype) noexcept;

/// The nearest value of the narrow type, ties to even. NaN stays NaN.
[[nodiscard]] std::uint16_t rounded(float value, DType dtype) noexcept;

/// A dense float32 copy of a 16-bit tensor, or the room for one.
class Widened {
 public:
  /// A view to read: `narrow` itself where it is not of a 16-bit type, else a copy that this keeps.
  ConstTensorView read(const ConstTensorView& narrow);

  /// A view to write: the same, but nothing is copied until round_into.
  TensorView write(const TensorView& narrow);

  /// Rounds what was written into the narrow tensor; nothing to do if that was written itself.
  void round_into();

 private:
  TensorView make_room(const ConstTensorView& narrow);

  std::unique_ptr<float[]> data_;
  TensorView wide_;
  TensorView narrow_;
};

}  // namespace heed::python

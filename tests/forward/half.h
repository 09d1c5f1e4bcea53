// Problems in float16 and bfloat16: the same as some problem in float32 whose numbers the type
// holds.
#pragma once

#include "forward/support.h"

namespace heed_test {

/// The nearest number of the type, the even one of two; infinite beyond its largest.
double nearest(double x, heed::DType dtype);

/// The bits of a number of the type, which fails the test if it is none; and the number.
std::uint16_t encoded(double x, heed::DType dtype);
double decoded(std::uint16_t bits, heed::DType dtype);

/// Every element rounded to the type.
Tensor<float> nearest(Tensor<float> tensor, heed::DType dtype);

/// The call with q, k and v rounded to the type, still to be run in float32.
Call<float> nearest(Call<float> call, heed::DType dtype);

/// The same, to be run in the type.
Call<float> narrowed(Call<float> call, heed::DType dtype);

/// Memory of 16-bit elements, all of it 0xFF (NaN) at first.
class Halves {
 public:
  Halves(const Shape& shape, Layout layout, heed::DType dtype);

  /// What a tensor holds, which the type must hold too, in the tensor's layout; NaN where it has
  /// slack. The address is odd where `offset` is.
  Halves(const Tensor<float>& tensor, heed::DType dtype, std::size_t offset = 0);

  [[nodiscard]] heed::ConstTensorView view(int rank) const;
  heed::TensorView out(int rank);

  /// The elements as floats. Fails the test if one was never written (unless NaN with all bits set
  /// may come), or something beside them was.
  [[nodiscard]] Tensor<float> written(const char* name, bool ones_may_come = false) const;

  [[nodiscard]] std::size_t hash() const;

 private:
  [[nodiscard]] std::uint16_t bits_at(std::size_t n) const;

  heed::DType dtype_;
  std::size_t offset_ = 0;
  Tensor<float> like_;  // shape and strides
  std::vector<std::byte> bytes_;
};

/// attention_forward of the call in 16 bits; o comes back as floats.
Result<float> run_half(const Call<float>& call, heed::DType dtype, const Ask& ask = {},
                       const heed::Execution& execution = {}, std::size_t offset = 0);

/// Instruction sets that calls of this type can have here: runnable_isas(), and for bfloat16 the
/// one with dot products.
std::vector<heed::Isa> isas_of(heed::DType dtype);

/// Whether the instruction set that is forced now runs the call by dot products of bfloat16.
template <typename T>
bool by_pairs(const Call<T>& call) {
  return call.dtype == heed::DType::bf16 && !call.normalize_qk &&
         heed::instruction_set() == kPaired;
}

}  // namespace heed_test

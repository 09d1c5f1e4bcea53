// Conversions of 16-bit floating-point numbers, element by element: they cost O(T D), attention O(T^2 D).
#include "half.h"

#include <algorithm>
#include <bit>

namespace heed::python {
namespace {

float widened_f16(std::uint16_t bits) noexcept {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) {  // infinity, NaN: exponent of all ones, payload at the upper end
    return std::bit_cast<float>(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
  }
  // As a float32 with exponents 112 too low, which the multiplication puts right; subnormals of
  // float16 are normal in float32, so it is exact.
  const float magnitude = std::bit_cast<float>(rest << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

std::uint16_t rounded_f16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t rest = bits & 0x7fffffffu;
  std::uint32_t result = 0;
  if (rest > 0x7f800000u) {
    result = 0x7e00u | ((rest >> 13) & 0x3ffu);  // NaN, quiet
  } else if (rest >= 0x47800000u) {
    result = 0x7c00u;  // 2^16 and above
  } else if (rest < 0x38800000u) {
    // Below 2^-14: adding 1/2 leaves a multiple of 2^-24, rounded to even, in the lower bits.
    const float shifted = std::bit_cast<float>(rest) + 0.5F;
    result = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5F);
  } else {
    // 13 bits go; a carry may reach the exponent, and infinity, as it should.
    result = (rest - (112u << 23) + 0xfffu + ((rest >> 13) & 1u)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | result);
}

std::uint16_t rounded_bf16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// Calls f(offset in the strided tensor, index in a dense one) for each element.
template <typename F>
void for_each(const ConstTensorView& view, F f) {
  std::array<std::int64_t, kMaxRank> shape{1, 1, 1, 1};
  std::array<std::int64_t, kMaxRank> stride{};
  const auto skipped = static_cast<std::size_t>(kMaxRank - view.rank);
  for (std::size_t axis = skipped; axis < kMaxRank; ++axis) {
    shape[axis] = view.shape[axis - skipped];
    stride[axis] = view.stride[axis - skipped];
  }
  std::int64_t index = 0;
  for (std::int64_t a = 0; a < shape[0]; ++a) {
    for (std::int64_t b = 0; b < shape[1]; ++b) {
      for (std::int64_t c = 0; c < shape[2]; ++c) {
        const std::int64_t row = a * stride[0] + b * stride[1] + c * stride[2];
        for (std::int64_t d = 0; d < shape[3]; ++d) f(row + d * stride[3], index++);
      }
    }
  }
}

}  // namespace

float widened(std::uint16_t bits, DType dtype) noexcept {
  return dtype == DType::f16 ? widened_f16(bits) : std::bit_cast<float>(std::uint32_t{bits} << 16);
}

std::uint16_t rounded(float value, DType dtype) noexcept {
  return dtype == DType::f16 ? rounded_f16(value) : rounded_bf16(value);
}

TensorView Widened::make_room(const ConstTensorView& narrow) {
  std::size_t elements = 1;
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(narrow.rank); ++axis) {
    elements *= static_cast<std::size_t>(narrow.shape[axis]);
  }
  data_ = std::make_unique_for_overwrite<float[]>(std::max<std::size_t>(elements, 1));
  wide_ = {data_.get(), DType::f32, narrow.rank, narrow.shape, {}};
  std::int64_t stride = 1;
  for (auto axis = static_cast<std::size_t>(narrow.rank); axis-- > 0;
       stride *= narrow.shape[axis]) {
    wide_.stride[axis] = stride;
  }
  return wide_;
}

ConstTensorView Widened::read(const ConstTensorView& narrow) {
  if (!is_half(narrow.dtype) || narrow.rank > kMaxRank) return narrow;
  make_room(narrow);
  // memcpy-like access through bytes would allow any alignment; NumPy's 16-bit arrays may have odd ones.
  const auto* from = static_cast<const unsigned char*>(narrow.data);
  for_each(narrow, [&](std::int64_t offset, std::int64_t index) {
    const unsigned char* place = from + 2 * offset;
    const auto bits = static_cast<std::uint16_t>(place[0] | (place[1] << 8));
    data_[static_cast<std::size_t>(index)] = widened(bits, narrow.dtype);
  });
  return wide_;
}

TensorView Widened::write(const TensorView& narrow) {
  if (!is_half(narrow.dtype) || narrow.rank > kMaxRank) return narrow;
  narrow_ = narrow;
  return make_room(narrow);
}

void Widened::round_into() {
  if (!narrow_.present()) return;
  auto* to = static_cast<unsigned char*>(narrow_.data);
  for_each(narrow_, [&](std::int64_t offset, std::int64_t index) {
    const std::uint16_t bits = rounded(data_[static_cast<std::size_t>(index)], narrow_.dtype);
    unsigned char* place = to + 2 * offset;
    place[0] = static_cast<unsigned char>(bits & 0xff);
    place[1] = static_cast<unsigned char>(bits >> 8);
  });
}

}  // namespace heed::python

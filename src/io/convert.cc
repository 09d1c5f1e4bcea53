// Conversion between floating-point types, in integers: the rounding mode and the flush-to-zero
// bits of the caller have no part in it.
#include <bit>
#include <cstring>

#include "heed/error.h"
#include "heed/io.h"
#include "io/tensor.h"

namespace heed {
namespace {

/// A binary format of IEEE 754: sign, `kExponentBits`, `kMantissaBits`, from the top.
template <typename Bits, int kExponentBits, int kMantissaBits>
struct Format {
  using Word = Bits;
  static constexpr int kMantissa = kMantissaBits;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kTop = (1 << kExponentBits) - 1;  // the exponent of infinity and NaN
};
using F16 = Format<std::uint16_t, 5, 10>;
using BF16 = Format<std::uint16_t, 8, 7>;
using F32 = Format<std::uint32_t, 8, 23>;
using F64 = Format<std::uint64_t, 11, 52>;

/// The value as float64 bits. Every format here is part of float64, so nothing rounds.
template <typename From>
std::uint64_t widen(typename From::Word word) noexcept {
  constexpr int kShift = F64::kMantissa - From::kMantissa;
  const std::uint64_t bits = word;
  constexpr std::uint64_t kMask = (std::uint64_t{1} << From::kMantissa) - 1;
  const std::uint64_t sign = bits >> (8 * sizeof(word) - 1) << 63U;
  const auto exponent = static_cast<int>(bits >> From::kMantissa & From::kTop);
  const std::uint64_t mantissa = bits & kMask;
  const auto number = [&](int biased, std::uint64_t fraction) {
    return sign | static_cast<std::uint64_t>(biased) << F64::kMantissa | fraction;
  };
  if constexpr (kShift == 0) return bits;
  if (exponent == From::kTop) return number(F64::kTop, mantissa << kShift);
  if (exponent > 0) return number(exponent - From::kBias + F64::kBias, mantissa << kShift);
  if (mantissa == 0) return sign;
  // Subnormal: mantissa * 2^(1 - bias - M). Its leading one becomes the implicit one.
  const int up = std::countl_zero(mantissa) - (63 - From::kMantissa);
  return number(1 - up - From::kBias + F64::kBias, (mantissa << up & kMask) << kShift);
}

/// The value of float64 bits rounded to the nearest, ties to even.
template <typename To>
typename To::Word narrow(std::uint64_t bits) noexcept {
  using Word = typename To::Word;
  constexpr int kShift = F64::kMantissa - To::kMantissa;
  constexpr std::uint64_t kInfinity = std::uint64_t{To::kTop} << To::kMantissa;
  const std::uint64_t sign = bits >> 63U << (8 * sizeof(Word) - 1);
  const auto exponent = static_cast<int>(bits >> F64::kMantissa & F64::kTop);
  const std::uint64_t mantissa = bits & ((std::uint64_t{1} << F64::kMantissa) - 1);
  if constexpr (kShift == 0) return bits;
  if (exponent == F64::kTop) {
    std::uint64_t payload = mantissa >> kShift;
    if (mantissa != 0 && payload == 0) payload = std::uint64_t{1} << (To::kMantissa - 1);
    return static_cast<Word>(sign | kInfinity | payload);
  }
  // The target's exponent field and mantissa are one integer; cutting off `drop` bits and rounding
  // carries from one into the other as it should, up to infinity. Below the smallest normal number
  // the leading one is explicit and more bits drop.
  const int field = exponent - F64::kBias + To::kBias;
  if (field >= To::kTop) return static_cast<Word>(sign | kInfinity);
  const bool normal = field > 0;
  const int drop = normal ? kShift : kShift + 1 - field;
  // Less than half the smallest subnormal; float64's own subnormals are far below that.
  if (drop > F64::kMantissa + 1) return static_cast<Word>(sign);
  const std::uint64_t wide = normal ? static_cast<std::uint64_t>(field) << F64::kMantissa | mantissa
                                    : std::uint64_t{1} << F64::kMantissa | mantissa;
  const std::uint64_t half = std::uint64_t{1} << (drop - 1);
  const std::uint64_t odd = wide >> drop & 1U;
  return static_cast<Word>(sign | (wide + half - 1 + odd) >> drop);
}

template <typename From, typename To>
void convert_all(const Tensor& from, Tensor& to) {
  const std::size_t count = from.data.size() / sizeof(typename From::Word);
  for (std::size_t i = 0; i < count; ++i) {
    typename From::Word word;
    std::memcpy(&word, from.data.data() + i * sizeof word, sizeof word);
    const auto result = narrow<To>(widen<From>(word));
    std::memcpy(to.data.data() + i * sizeof result, &result, sizeof result);
  }
}

template <typename From>
void convert_from(const Tensor& from, Tensor& to) {
  switch (to.dtype) {
    case DType::f16:
      return convert_all<From, F16>(from, to);
    case DType::bf16:
      return convert_all<From, BF16>(from, to);
    case DType::f32:
      return convert_all<From, F32>(from, to);
    default:
      return convert_all<From, F64>(from, to);
  }
}

}  // namespace

Tensor convert(const Tensor& tensor, DType dtype) {
  if (!is_floating(tensor.dtype) || !is_floating(dtype)) {
    throw Error("convert: from " + std::string(name_of(tensor.dtype)) + " to " +
                std::string(name_of(dtype)) + "; both must be floating-point types");
  }
  io::check_dense("convert", tensor);
  Tensor result = make_tensor(dtype, tensor.shape);
  switch (tensor.dtype) {
    case DType::f16:
      convert_from<F16>(tensor, result);
      break;
    case DType::bf16:
      convert_from<BF16>(tensor, result);
      break;
    case DType::f32:
      convert_from<F32>(tensor, result);
      break;
    default:
      convert_from<F64>(tensor, result);
  }
  return result;
}

}  // namespace heed

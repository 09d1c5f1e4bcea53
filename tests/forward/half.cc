// Problems in float16 and bfloat16.
#include "forward/half.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <string_view>

namespace heed_test {
namespace {

/// A 16-bit floating type: bits of its mantissa, exponent of its least normal number.
struct Format {
  int mantissa, lowest;
};
Format format_of(heed::DType dtype) {
  return dtype == heed::DType::f16 ? Format{10, -14} : Format{7, -126};
}

/// x in units of the last place that it has in the type, and the exponent of that unit.
int unit_of(double x, Format f) {
  const int exponent = static_cast<int>(std::bit_cast<std::uint64_t>(x) >> 52 & 0x7FF) - 1023;
  return std::max(exponent, f.lowest) - f.mantissa;
}

/// The sign and the first bits of the payload; as a last bit 1, where it would be no NaN.
std::uint16_t nan_of(float x, heed::DType dtype) {
  const Format f = format_of(dtype);
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const unsigned special = (1U << 15) - (1U << f.mantissa);
  const unsigned payload = (bits & 0x7FFFFFU) >> (23 - f.mantissa);
  return static_cast<std::uint16_t>((bits >> 16 & 0x8000U) | special | std::max(payload, 1U));
}

}  // namespace

std::uint16_t encoded(double x, heed::DType dtype) {
  const Format f = format_of(dtype);
  const unsigned special = (1U << 15) - (1U << f.mantissa);
  const unsigned sign = std::signbit(x) ? 0x8000U : 0U;
  if (std::isnan(x)) return static_cast<std::uint16_t>(special | 1U);
  if (std::isinf(x)) return static_cast<std::uint16_t>(sign | special);
  if (x == 0) return static_cast<std::uint16_t>(sign);
  const int unit = unit_of(x, f);
  // Of units: the mantissa with its first bit.
  const double count = std::fabs(x) * oracle::power_of_two(-unit);
  if (count != std::floor(count)) ADD_FAILURE() << x << " is no number of the type";
  const auto exponent = static_cast<unsigned>(unit + f.mantissa - f.lowest);
  return static_cast<std::uint16_t>(sign |
                                    ((exponent << f.mantissa) + static_cast<unsigned>(count)));
}

double decoded(std::uint16_t bits, heed::DType dtype) {
  const Format f = format_of(dtype);
  const int most = (1 << (15 - f.mantissa)) - 1;
  const int exponent = (bits & 0x7FFF) >> f.mantissa;
  const int rest = bits & ((1 << f.mantissa) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == most)
    return rest != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  const int count = exponent == 0 ? rest : rest + (1 << f.mantissa);
  return sign * count * oracle::power_of_two(std::max(exponent, 1) - 1 + f.lowest - f.mantissa);
}

double nearest(double x, heed::DType dtype) {
  if (!std::isfinite(x) || x == 0) return x;
  const Format f = format_of(dtype);
  const int unit = unit_of(x, f);
  const double rounded =
      std::nearbyint(x * oracle::power_of_two(-unit)) * oracle::power_of_two(unit);
  const double beyond = oracle::power_of_two(2 - f.lowest);  // one more than the largest exponent
  return std::fabs(rounded) >= beyond ? std::copysign(HUGE_VAL, x) : rounded;
}

Tensor<float> nearest(Tensor<float> tensor, heed::DType dtype) {
  for (float& x : tensor.memory) x = static_cast<float>(nearest(double{x}, dtype));
  return tensor;
}

Call<float> nearest(Call<float> call, heed::DType dtype) {
  for (Tensor<float>* t : {&call.q, &call.k, &call.v}) *t = nearest(std::move(*t), dtype);
  call.words += std::string(", in ") + std::string(heed::name_of(dtype));
  return call;
}

Call<float> narrowed(Call<float> call, heed::DType dtype) {
  call = nearest(std::move(call), dtype);
  call.dtype = dtype;
  return call;
}

Halves::Halves(const Shape& shape, Layout layout, heed::DType dtype)
    : dtype_(dtype), like_(shape, layout) {
  bytes_.assign(2 * like_.memory.size(), std::byte{0xFF});
}

Halves::Halves(const Tensor<float>& tensor, heed::DType dtype, std::size_t offset)
    : dtype_(dtype), offset_(offset), like_(tensor) {
  bytes_.resize(2 * tensor.memory.size() + offset);
  for (std::size_t n = 0; n < tensor.memory.size(); ++n) {
    const float x = tensor.memory[n];
    const std::uint16_t bits = std::isnan(x) ? nan_of(x, dtype) : encoded(double{x}, dtype);
    std::memcpy(bytes_.data() + offset + 2 * n, &bits, sizeof bits);
  }
}

std::uint16_t Halves::bits_at(std::size_t n) const {
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes_.data() + offset_ + 2 * n, sizeof bits);
  return bits;
}

heed::ConstTensorView Halves::view(int rank) const {
  return shown(bytes_.data() + offset_ + 2 * like_.first, dtype_, like_.shape, like_.stride, rank);
}

heed::TensorView Halves::out(int rank) {
  const heed::ConstTensorView v = view(rank);
  return {bytes_.data() + offset_ + 2 * like_.first, v.dtype, v.rank, v.shape, v.stride};
}

std::size_t Halves::hash() const {
  return std::hash<std::string_view>{}(
      {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()});
}

Tensor<float> Halves::written(const char* name, bool ones_may_come) const {
  Tensor<float> result = like_;
  std::vector<bool> element(like_.memory.size());
  std::int64_t missing = 0, stray = 0;
  result.each([&](auto b, auto h, auto i, auto x) {
    const std::size_t n = result.index(b, h, i, x);
    element[n] = true;
    missing += bits_at(n) == 0xFFFF;
    result.memory[n] = static_cast<float>(decoded(bits_at(n), dtype_));
  });
  for (std::size_t n = 0; n < element.size(); ++n) stray += !element[n] && bits_at(n) != 0xFFFF;
  EXPECT_EQ(ones_may_come ? 0 : missing, 0) << "elements of " << name << " were never written";
  EXPECT_EQ(stray, 0) << "elements beside " << name << " were written";
  return result;
}

std::vector<heed::Isa> isas_of(heed::DType dtype) {
  std::vector<heed::Isa> all = runnable_isas();
  for (const heed::InstructionSet& set : heed::instruction_sets()) {
    const bool has = set.compiled && set.supported && set.isa == kPaired;
    if (has && dtype == heed::DType::bf16) all.push_back(set.isa);
  }
  return all;
}

Result<float> run_half(const Call<float>& s, heed::DType dtype, const Ask& ask,
                       const heed::Execution& execution, std::size_t offset) {
  const Dims d = s.dims();
  const Halves q(s.q, dtype, offset), k(s.k, dtype, offset), v(s.v, dtype, offset);
  Halves o({d.batch, d.heads, d.queries, d.value_size}, ask.output, dtype);
  Result<float> r;
  heed::ForwardOutputs outputs{.output = o.out(s.rank), .statistics = ask.statistics};
  if (ask.lse) {
    r.lse = Tensor<float>({d.batch, d.heads, d.queries, 1}, ask.output);
    outputs.lse = r.lse.out(s.rank);
    --outputs.lse.rank;  // without the axis of length 1
  }
  if (ask.weights) {
    r.weights = Tensor<float>({d.batch, d.heads, d.queries, d.keys}, ask.output);
    outputs.weights = r.weights.out(s.rank);
  }
  const auto inputs = [&] { return q.hash() ^ 3 * k.hash() ^ 5 * v.hash(); };
  const std::size_t before = inputs();
  const Told<float> told(s);
  heed::attention_forward(q.view(s.rank), k.view(s.rank), v.view(s.rank), outputs, told.options,
                          execution);
  EXPECT_EQ(inputs(), before) << "q, k or v changed: " << describe(s);
  r.o = o.written("output", ask.ones);
  if (ask.lse) expect_written_exactly(r.lse, "lse", ask.ones);
  if (ask.weights) expect_written_exactly(r.weights, "weights", ask.ones);
  return r;
}

}  // namespace heed_test

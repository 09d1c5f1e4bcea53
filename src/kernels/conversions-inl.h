// Rows of float16 and bfloat16 to float and back.

#if defined(HEED_KERNELS_CONVERSIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CONVERSIONS_INL_H_
#undef HEED_KERNELS_CONVERSIONS_INL_H_
#else
#define HEED_KERNELS_CONVERSIONS_INL_H_
#endif

#include <cstring>

#include "kernels/conversions.h"
#include "kernels/half-inl.h"
#include "kernels/math-inl.h"
#include "kernels/target_number.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

HWY_INLINE void widen_f16(const std::byte* from, float* to) {
  hn::StoreU(load_f16(from), Tag<float>(), to);
}
HWY_INLINE void widen_bf16(const std::byte* from, float* to) {
  hn::StoreU(load_bf16(from), Tag<float>(), to);
}

inline constexpr int kStep = kLanes<float>;

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
template <std::uint16_t (*kNarrow)(float)>
HWY_INLINE void narrow_each(const float* from, std::byte* to) {
  for (int i = 0; i < kStep; ++i) {
    const std::uint16_t bits = kNarrow(from[i]);
    std::memcpy(to + std::ptrdiff_t{2} * i, &bits, 2);
  }
}
HWY_INLINE void narrow_f16(const float* from, std::byte* to) {
  narrow_each<kernels::to_f16>(from, to);
}
HWY_INLINE void narrow_bf16(const float* from, std::byte* to) {
  narrow_each<kernels::to_bf16>(from, to);
}
#else
using Words = hn::Rebind<std::uint32_t, Tag<float> >;

HWY_INLINE void store_halves(hn::Vec<Halves> bits, std::byte* to) {
  hn::StoreU(hn::BitCast(HalfBytes(), bits), HalfBytes(), reinterpret_cast<std::uint8_t*>(to));
}

HWY_INLINE void narrow_f16(const float* from, std::byte* to) {
  const hn::Rebind<hwy::float16_t, Tag<float> > df16;
  store_halves(hn::BitCast(Halves(), hn::DemoteTo(df16, hn::LoadU(Tag<float>(), from))), to);
}
/// Integers: the CPU's own instruction takes subnormal numbers for 0, Highway's function truncates.
HWY_INLINE void narrow_bf16(const float* from, std::byte* to) {
  const Tag<float> d;
  const Words du;
  const hn::Rebind<std::int32_t, Tag<float> > di;
  const auto x = hn::LoadU(d, from);
  const auto bits = hn::BitCast(du, x);
  const auto high = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(high, hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu))));
  const auto is_number = hn::RebindMask(du, hn::Eq(x, x));
  const auto result = hn::IfThenElse(is_number, rounded, hn::Or(high, hn::Set(du, 0x40u)));
  store_halves(hn::DemoteTo(Halves(), hn::BitCast(di, result)), to);
}
#endif

/// A row, some elements at a time; the last ones go through a copy.
template <void (*kStepOf)(const std::byte*, float*)>
void widen_row(const std::byte* from, std::int64_t count, float* to) noexcept {
  std::int64_t i = 0;
  for (; i + kStep <= count; i += kStep) kStepOf(from + 2 * i, to + i);
  if (i == count) return;
  const auto rest = static_cast<std::size_t>(count - i);
  std::byte in[2 * kStep] = {};
  float out[kStep];
  std::memcpy(in, from + 2 * i, 2 * rest);
  kStepOf(in, out);
  std::memcpy(to + i, out, sizeof(float) * rest);
}
template <void (*kStepOf)(const float*, std::byte*)>
void narrow_row(const float* from, std::int64_t count, std::byte* to) noexcept {
  std::int64_t i = 0;
  for (; i + kStep <= count; i += kStep) kStepOf(from + i, to + 2 * i);
  if (i == count) return;
  const auto rest = static_cast<std::size_t>(count - i);
  float in[kStep] = {};
  std::byte out[2 * kStep];
  std::memcpy(in, from + i, sizeof(float) * rest);
  kStepOf(in, out);
  std::memcpy(to + 2 * i, out, 2 * rest);
}

constexpr Conversions kConversions = {target_number(HWY_TARGET), &widen_row<widen_f16>,
                                      &widen_row<widen_bf16>, &narrow_row<narrow_f16>,
                                      &narrow_row<narrow_bf16>};

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target

// A vector of floats from 16-bit elements in memory. Nothing is rounded.

#if defined(HEED_KERNELS_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_HALF_INL_H_
#undef HEED_KERNELS_HALF_INL_H_
#else
#define HEED_KERNELS_HALF_INL_H_
#endif

#include <cstring>

#include "kernels/half.h"
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
template <float (*kWiden)(std::uint16_t)>
HWY_INLINE Vec<float> load_widened(const std::byte* from) {
  std::uint16_t bits[kLanes<float>];
  float numbers[kLanes<float>];
  std::memcpy(bits, from, sizeof bits);
  for (int i = 0; i < kLanes<float>; ++i) numbers[i] = kWiden(bits[i]);
  return hn::LoadU(Tag<float>(), numbers);
}
HWY_INLINE Vec<float> load_f16(const std::byte* from) {
  return load_widened<kernels::from_f16>(from);
}
HWY_INLINE Vec<float> load_bf16(const std::byte* from) {
  return load_widened<kernels::from_bf16>(from);
}
#else
using Halves = hn::Rebind<std::uint16_t, Tag<float> >;
using HalfBytes = hn::Repartition<std::uint8_t, Halves>;

// Bytes, so that an odd address is none that C++ forbids.
HWY_INLINE hn::Vec<Halves> load_halves(const std::byte* from) {
  return hn::BitCast(Halves(), hn::LoadU(HalfBytes(), reinterpret_cast<const std::uint8_t*>(from)));
}
/// The CPU's own conversion, which is exact.
HWY_INLINE Vec<float> load_f16(const std::byte* from) {
  const hn::Rebind<hwy::float16_t, Tag<float> > df16;
  return hn::PromoteTo(Tag<float>(), hn::BitCast(df16, load_halves(from)));
}
HWY_INLINE Vec<float> load_bf16(const std::byte* from) {
  const hn::Rebind<std::uint32_t, Tag<float> > words;
  return hn::BitCast(Tag<float>(), hn::ShiftLeft<16>(hn::PromoteTo(words, load_halves(from))));
}
#endif

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target

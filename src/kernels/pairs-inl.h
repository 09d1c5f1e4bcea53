// What each instruction set calls its arithmetic of bfloat16 pairs. HEED_PAIRS_TARGET is there
// where it has any: the attributes that functions need to use it.

#if defined(HEED_KERNELS_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_PAIRS_INL_H_
#undef HEED_KERNELS_PAIRS_INL_H_
#else
#define HEED_KERNELS_PAIRS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/math-inl.h"

#undef HEED_PAIRS_TARGET
#if HWY_TARGET == HWY_AVX3
#define HEED_PAIRS_TARGET HWY_TARGET_STR ",avx512bf16"
#elif HWY_TARGET == HWY_NEON && HEED_NEON_BF16
// "arch=" is what g++ 12's intrinsics ask for, and takes the place of -march: not below what that
// has.
#if defined(__ARM_FEATURE_DOTPROD) || defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC) || \
    defined(__ARM_FEATURE_SVE)
#define HEED_PAIRS_TARGET HWY_TARGET_STR "+bf16"
#else
#define HEED_PAIRS_TARGET "arch=armv8.2-a+crypto+bf16"
#endif
#endif

#ifdef HEED_PAIRS_TARGET
// Lambdas have these too; HWY_ATTR on one would take them away with Clang.
HWY_PUSH_ATTRIBUTES(HEED_PAIRS_TARGET)
namespace heed::kernels::HWY_NAMESPACE {
namespace paired {

using Floats = Tag<float>;
using Words = hn::Rebind<std::uint32_t, Floats>;
using Halves = hn::Repartition<std::uint16_t, Floats>;
inline constexpr int kLane = kLanes<float>;

#if HWY_TARGET == HWY_AVX3

/// acc + both products of each pair. Each sum is rounded to the nearest.
HWY_INLINE Vec<float> dot(Vec<float> a, Vec<float> b, Vec<float> acc) {
  return Vec<float>{_mm512_dpbf16_ps(acc.raw, (__m512bh)a.raw, (__m512bh)b.raw)};
}

/// Low halves from `low`, high halves from `high`, rounded to the nearest, the even one of two.
HWY_INLINE Vec<float> pair(Vec<float> low, Vec<float> high) {
  alignas(64) static constexpr std::uint16_t kOrder[32] = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(high.raw, low.raw);
  const __m512i order = _mm512_load_si512(kOrder);
  return Vec<float>{_mm512_castsi512_ps(_mm512_permutexvar_epi16(order, both))};
}

/// Blocks of four, those of both vectors by turns, brought to their order: what InterleaveLower and
/// InterleaveUpper of halves leave.
HWY_INLINE void in_order(Vec<float>& low, Vec<float>& high) {
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i second =
      _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  const __m512 a = low.raw;
  low.raw = _mm512_permutex2var_ps(a, first, high.raw);
  high.raw = _mm512_permutex2var_ps(a, second, high.raw);
}

#else  // NEON

/// acc + both products of each pair. Each product and sum is rounded to odd: the lower bits that do
/// not fit set the last one that does. With its extension EBF16 (FPCR.EBF, off unless asked for) it
/// would differ.
HWY_INLINE Vec<float> dot(Vec<float> a, Vec<float> b, Vec<float> acc) {
  return Vec<float>{
      vbfdotq_f32(acc.raw, vreinterpretq_bf16_f32(a.raw), vreinterpretq_bf16_f32(b.raw))};
}

HWY_INLINE Vec<float> pair(Vec<float> low, Vec<float> high) {
  const bfloat16x8_t both = vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(low.raw), high.raw);
  const uint16x8_t halves = vreinterpretq_u16_bf16(both);
  return Vec<float>{vreinterpretq_f32_u16(vzip1q_u16(halves, vextq_u16(halves, halves, 4)))};
}

/// A vector is one block.
HWY_INLINE void in_order(Vec<float>& /*low*/, Vec<float>& /*high*/) {}

#endif

/// The pair at any address, in all lanes.
HWY_INLINE Vec<float> broadcast(const std::byte* at) {
  std::uint32_t word;
  std::memcpy(&word, at, sizeof word);
  return hn::BitCast(Floats(), hn::Set(Words(), word));
}

HWY_INLINE std::uint16_t half_at(const std::byte* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}

/// Two vectors' worth of neighbouring halves.
HWY_INLINE hn::Vec<Halves> load_halves(const std::byte* at) {
  return hn::LoadU(Halves(), reinterpret_cast<const std::uint16_t*>(at));
}

/// A vector's worth of halves, each in the low half of a word.
HWY_INLINE hn::Vec<Words> load_halves_wide(const std::byte* at) {
  const hn::Rebind<std::uint16_t, Floats> d;
  return hn::PromoteTo(Words(), hn::LoadU(d, reinterpret_cast<const std::uint16_t*>(at)));
}

}  // namespace paired
}  // namespace heed::kernels::HWY_NAMESPACE
HWY_POP_ATTRIBUTES
#endif  // HEED_PAIRS_TARGET

#endif  // include guard per target

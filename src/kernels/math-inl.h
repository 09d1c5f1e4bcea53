// Elementary functions over vectors, in a fixed order of operations: part of the numeric contract.

#if defined(HEED_KERNELS_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_MATH_INL_H_
#undef HEED_KERNELS_MATH_INL_H_
#else
#define HEED_KERNELS_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/order.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Where registers are plentiful and wide, tiles are 4 vectors across; else 2.
#if HWY_TARGET == HWY_AVX3
inline constexpr int kHighestVectors = 4;
#else
inline constexpr int kHighestVectors = 2;
#endif

// The fallback targets round a MulAdd twice: there it is std::fma, lane by lane.
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
inline constexpr bool kNative = false;
#else
inline constexpr bool kNative = true;
#endif

template <typename Real>
using Tag = hn::ScalableTag<Real>;
template <typename Real>
using Vec = hn::Vec<Tag<Real>>;

template <typename Real>
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(Tag<Real>()));

template <typename Real>
inline constexpr Real kInf = std::numeric_limits<Real>::infinity();

template <int N>
struct Int {
  static constexpr int value = N;
};
/// f(Int<vectors>()): the number of vectors of a tile, known to the compiler.
template <typename F>
HWY_INLINE void with_vectors(int vectors, const F& f) {
  if constexpr (kHighestVectors >= 4) {
    if (vectors == 4) return f(Int<4>());
    if (vectors == 3) return f(Int<3>());
  }
  if (vectors == 2) return f(Int<2>());
  return f(Int<1>());
}

/// f(lane of a, lane of b, lane of c), lane by lane.
template <typename D, typename V, typename F>
HWY_INLINE V each_lane(D d, V a, V b, V c, F f) {
  hn::TFromD<D> x[hn::MaxLanes(D())], y[hn::MaxLanes(D())], z[hn::MaxLanes(D())];
  hn::StoreU(a, d, x);
  hn::StoreU(b, d, y);
  hn::StoreU(c, d, z);
  for (std::size_t i = 0; i < hn::MaxLanes(D()); ++i) x[i] = f(x[i], y[i], z[i]);
  return hn::LoadU(d, x);
}

/// a * b + c, rounded once.
template <typename D, typename V>
HWY_INLINE V fma([[maybe_unused]] D d, V a, V b, V c) {
  if constexpr (kNative) {
    return hn::MulAdd(a, b, c);
  } else {
    return each_lane(d, a, b, c, [](auto x, auto y, auto z) { return std::fma(x, y, z); });
  }
}

/// max(constant, x), NaN where x is NaN: x86 returns the second operand where one is NaN, NEON (as
/// Highway 1.0.3 uses it) and the fallbacks the number, so there it takes a comparison.
template <typename D, typename V>
HWY_INLINE V max_keep_nan([[maybe_unused]] D d, V constant, V x) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return hn::Max(constant, x);
#else
  return hn::IfThenElse(hn::Gt(constant, x), constant, x);
#endif
}

/// min(constant, x), NaN where x is NaN.
template <typename D, typename V>
HWY_INLINE V min_keep_nan([[maybe_unused]] D d, V constant, V x) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return hn::Min(constant, x);
#else
  return hn::IfThenElse(hn::Lt(constant, x), constant, x);
#endif
}

/// max(m, x) for a running maximum m: may or may not keep a NaN, which reaches the sum anyway.
template <typename V>
HWY_INLINE V running_max(V m, V x) {
  return hn::Max(m, x);
}

// 2^f on |f| <= 1/2 to 0.952 ulp; c0 = 1 exactly, so that 2^0 = 1 (docs/numerics.md).
inline constexpr float kExp2[7] = {1.0f,           0x1.62e43p-1f,   0x1.ebfbdcp-3f, 0x1.c6aee8p-5f,
                                   0x1.3b2d4cp-7f, 0x1.5f3e54p-10f, 0x1.41fbbcp-13f};

/// x[i] = 2^x[i] for x[i] <= 0: at most 0.952 ulp off in (-126, 0], +0 where rint(x) <= -127, NaN
/// stays NaN. Vectors go through each step side by side: a chain has 14 operations, and a scheduler
/// holds too few of them to overlap chains that follow each other.
template <int Count, typename D>
HWY_INLINE void exp2_nonpositive(D d, Vec<float> (&x)[Count]) {
  const hn::RebindToSigned<D> di;
  Vec<float> n[Count], p[Count];
  // Adding 1.5 * 2^23 rounds to an integer n; f = x - n is exact, |f| <= 1/2, and takes x's place.
#pragma GCC unroll 8
  for (int i = 0; i < Count; ++i) x[i] = max_keep_nan(d, hn::Set(d, -127.0f), x[i]);
#pragma GCC unroll 8
  for (int i = 0; i < Count; ++i) n[i] = hn::Add(x[i], hn::Set(d, 12582912.0f));
#pragma GCC unroll 8
  for (int i = 0; i < Count; ++i) x[i] = hn::Sub(x[i], hn::Sub(n[i], hn::Set(d, 12582912.0f)));
#pragma GCC unroll 8
  for (int i = 0; i < Count; ++i) p[i] = fma(d, hn::Set(d, kExp2[6]), x[i], hn::Set(d, kExp2[5]));
#pragma GCC unroll 8
  for (int c = 4; c >= 0; --c) {
#pragma GCC unroll 8
    for (int i = 0; i < Count; ++i) p[i] = fma(d, p[i], x[i], hn::Set(d, kExp2[c]));
  }
  // times 2^n, which is +0 for n = -127. A product never turns a NaN into a number, as an integer
  // added to the exponent would.
#pragma GCC unroll 8
  for (int i = 0; i < Count; ++i) {
    const auto power = hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, n[i])), hn::Set(di, 127 << 23));
    x[i] = hn::Mul(p[i], hn::BitCast(d, power));
  }
}

template <int Count, typename D>
HWY_INLINE void exp2_nonpositive(D d, Vec<double> (&x)[Count]) {
  for (Vec<double>& y : x) {
    y = each_lane(d, y, y, y, [](double z, double, double) { return std::exp2(z); });
  }
}

template <typename D, typename V>
HWY_INLINE V exp2_nonpositive(D d, V x) {
  V one[1] = {x};
  exp2_nonpositive(d, one);
  return one[0];
}

// log2(f) = s P(s^2), s = (f - 1) / (f + 1), f in [sqrt(1/2), sqrt(2)]: relative error 7e-10.
inline constexpr float kLog2[4] = {0x1.715476p+1f, 0x1.ec70e6p-1f, 0x1.27471cp-1f, 0x1.ba18f8p-2f};

/// log2(x) for x = 0, NaN, +inf or normal and positive; exactly 0 at 1.
template <typename D>
HWY_INLINE Vec<float> log2_positive(D d, Vec<float> x) {
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(di, x);
  // Exponent n so that f = x / 2^n lies in [sqrt(1/2), sqrt(2)).
  const auto half_root = hn::Set(di, 0x3F3504F3);
  const auto n = hn::ShiftRight<23>(hn::Sub(bits, half_root));
  const auto f = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(n)));
  const auto one = hn::Set(d, 1.0f);
  const auto s = hn::Div(hn::Sub(f, one), hn::Add(f, one));
  const auto z = hn::Mul(s, s);
  auto p = hn::Set(d, kLog2[3]);
  p = fma(d, p, z, hn::Set(d, kLog2[2]));
  p = fma(d, p, z, hn::Set(d, kLog2[1]));
  p = fma(d, p, z, hn::Set(d, kLog2[0]));
  const auto result = fma(d, p, s, hn::ConvertTo(d, n));
  const auto finite = hn::Lt(x, hn::Set(d, kInf<float>));  // false for NaN and +inf: they are kept
  return hn::IfThenElse(
      finite, hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Set(d, -kInf<float>), result), x);
}

template <typename D>
HWY_INLINE Vec<double> log2_positive(D d, Vec<double> x) {
  return each_lane(d, x, x, x, [](double y, double, double) { return std::log2(y); });
}

// tanh(x) = x + x^3 P(x^2) for |x| < 0.625: relative error 4e-9.
inline constexpr float kTanh[5] = {-0x1.555534p-2f, 0x1.110768p-3f, -0x1.b84448p-5f, 0x1.5256cep-6f,
                                   -0x1.76abf6p-8f};

template <typename D>
HWY_INLINE Vec<float> tanh(D d, Vec<float> x) {
  const auto magnitude = hn::Abs(x);
  // 1 - 2e / (1 + e) in the form (1 - e) / (1 + e), e = exp(-2|x|); loses bits where e is near 1.
  const auto e = exp2_nonpositive(d, hn::Mul(magnitude, hn::Set(d, -2.0f * kLog2e<float>)));
  const auto one = hn::Set(d, 1.0f);
  const auto far = hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), x);
  const auto z = hn::Mul(x, x);
  auto p = hn::Set(d, kTanh[4]);
  p = fma(d, p, z, hn::Set(d, kTanh[3]));
  p = fma(d, p, z, hn::Set(d, kTanh[2]));
  p = fma(d, p, z, hn::Set(d, kTanh[1]));
  p = fma(d, p, z, hn::Set(d, kTanh[0]));
  const auto near = fma(d, hn::Mul(x, z), p, x);
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0.625f)), near, far);
}

template <typename D>
HWY_INLINE Vec<double> tanh(D d, Vec<double> x) {
  return each_lane(d, x, x, x, [](double y, double, double) { return std::tanh(y); });
}

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target

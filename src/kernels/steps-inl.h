// What may happen to a score between the product and the softmax: one small pass for each option.

#if defined(HEED_KERNELS_STEPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_STEPS_INL_H_
#undef HEED_KERNELS_STEPS_INL_H_
#else
#define HEED_KERNELS_STEPS_INL_H_
#endif

#include "kernels/math-inl.h"
#include "kernels/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

/// s = f(s, key, first lane) for each vector of the tile.
template <typename Real, typename F>
HWY_INLINE void each_vector(Real* s, int keys, int vectors, const F& f) {
  const Tag<Real> d;
  for (int j = 0; j < keys; ++j) {
    for (int n = 0; n < vectors; ++n, s += kLanes<Real>) {
      hn::StoreU(f(hn::LoadU(d, s), j, n * kLanes<Real>), d, s);
    }
  }
}

/// x * f, a finite product kept finite where x is: finfo.min must not become -inf, which masks.
template <typename D, typename V>
HWY_INLINE V scale_finite(D d, V x, V f) {
  using Real = hn::TFromD<D>;
  const auto largest = hn::Set(d, std::numeric_limits<Real>::max());
  const auto product = hn::Mul(x, f);
  const auto clamped = max_keep_nan(d, hn::Neg(largest), min_keep_nan(d, largest, product));
  return hn::IfThenElse(hn::Le(hn::Abs(x), largest), clamped, product);
}

template <typename Real>
void scale_keys(Real* s, int keys, int vectors, const Real* f) noexcept {
  const Tag<Real> d;
  each_vector(s, keys, vectors,
              [&](auto t, int j, int) HWY_ATTR { return hn::Mul(t, hn::Set(d, f[j])); });
}

template <typename Real>
void softcap(Real* s, int keys, int vectors, Real cap) noexcept {
  const Tag<Real> d;
  const auto factor = hn::Set(d, cap);
  const auto inverse = hn::Set(d, Real{1} / cap);
  each_vector(s, keys, vectors, [&](auto t, int, int) HWY_ATTR {
    return hn::Mul(factor, tanh(d, hn::Mul(t, inverse)));
  });
}

template <typename Real>
void alibi(Real* s, int keys, int vectors, const Real* slope,
           const std::int32_t* distance) noexcept {
  const Tag<Real> d;
  const hn::Rebind<std::int32_t, Tag<Real>> di;
  each_vector(s, keys, vectors, [&](auto t, int j, int lane) HWY_ATTR {
    const auto steps = hn::Sub(hn::LoadU(di, distance + lane), hn::Set(di, j));
    Vec<Real> far;
    if constexpr (sizeof(Real) == 4) {
      far = hn::ConvertTo(d, hn::Abs(steps));
    } else {
      far = hn::PromoteTo(d, hn::Abs(steps));
    }
    return fma(d, hn::Neg(hn::LoadU(d, slope + lane)), far, t);
  });
}

template <typename Real>
bool add_bias(Real* s, int keys, int vectors, const Real* b, std::uint64_t* visible) noexcept {
  const Tag<Real> d;
  const auto factor = hn::Set(d, kLog2e<Real>);
  std::uint64_t found = 0;
  each_vector(s, keys, vectors, [&](auto t, int j, int lane) HWY_ATTR {
    const auto bias = hn::LoadU(d, b);
    b += kLanes<Real>;
    const auto minus_infinity = hn::Eq(bias, hn::Set(d, -kInf<Real>));
    if (!hn::AllFalse(d, minus_infinity)) {
      std::uint8_t bytes[8] = {};
      hn::StoreMaskBits(d, minus_infinity, bytes);
      std::uint64_t word = 0;
      for (int i = 0; i < 8; ++i) word |= std::uint64_t{bytes[i]} << (8 * i);
      visible[j] &= ~(word << lane);
      found |= word;
    }
    return hn::Add(t, scale_finite(d, bias, factor));
  });
  return found != 0;
}

template <typename Real>
void add(Real* s, int keys, int vectors, const Real* t) noexcept {
  const Tag<Real> d;
  const int width = vectors * kLanes<Real>;
  each_vector(s, keys, vectors, [&](auto x, int j, int lane) HWY_ATTR {
    return hn::Add(x, hn::LoadU(d, t + j * width + lane));
  });
}

template <typename Real>
void scale_scores(Real* s, int keys, int vectors, Real f) noexcept {
  const Tag<Real> d;
  const auto factor = hn::Set(d, f);
  each_vector(s, keys, vectors,
              [&](auto t, int, int) HWY_ATTR { return scale_finite(d, t, factor); });
}

/// Bit j: row[j] is not 0. keys <= 64.
HWY_INLINE std::uint64_t row_bits(const std::uint8_t* row, int keys) {
  std::uint64_t bits = 0;
  int j = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<std::uint8_t, 16> d;
  for (; j + 16 <= keys; j += 16) {
    std::uint8_t bytes[8];
    hn::StoreMaskBits(d, hn::Ne(hn::LoadU(d, row + j), hn::Zero(d)), bytes);
    bits |= (std::uint64_t{bytes[0]} | std::uint64_t{bytes[1]} << 8) << j;
  }
#endif
  for (; j < keys; ++j) bits |= std::uint64_t{row[j] != 0} << j;
  return bits;
}

/// Transposes a 64 x 64 matrix of bits: bit j of word i becomes bit i of word j. Quadrants are
/// exchanged at half the size in each of six rounds.
HWY_INLINE void transpose_bits(std::uint64_t* words) {
  std::uint64_t low = 0x00000000FFFFFFFFu;
  for (int half = 32; half != 0; half >>= 1, low ^= low << half) {
    for (int first = 0; first < 64; first += 2 * half) {
      for (int i = first; i < first + half; ++i) {
        const std::uint64_t exchanged = ((words[i] >> half) ^ words[i + half]) & low;
        words[i] ^= exchanged << half;
        words[i + half] ^= exchanged;
      }
    }
  }
}

template <typename Real>
void key_bits(const std::uint8_t* const* rows, int count, int keys, std::uint64_t* words) noexcept {
  std::uint64_t square[64] = {};
  for (int r = 0; r < count; ++r) {
    square[r] = r > 0 && rows[r] == rows[r - 1] ? square[r - 1] : row_bits(rows[r], keys);
  }
  transpose_bits(square);
  for (int j = 0; j < keys; ++j) words[j] = square[j];
}

template <typename Real>
void mask(Real* s, int keys, int vectors, const std::uint64_t* visible) noexcept {
  const Tag<Real> d;
  const auto hidden = hn::Set(d, -kInf<Real>);
  each_vector(s, keys, vectors, [&](auto t, int j, int lane) HWY_ATTR {
    return hn::IfThenElse(mask_of<Real>(visible[j], lane / kLanes<Real>), t, hidden);
  });
}

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target

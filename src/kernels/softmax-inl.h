// The fold: a row's softmax is a state (m, l, o); blocks of keys, splits and sinks all merge into
// it.

#if defined(HEED_KERNELS_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_SOFTMAX_INL_H_
#undef HEED_KERNELS_SOFTMAX_INL_H_
#else
#define HEED_KERNELS_SOFTMAX_INL_H_
#endif

#include "kernels/kernels.h"
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

/// m, but 0 where m = -inf: (-inf) - (-inf) is never formed.
template <typename D, typename V>
HWY_INLINE V reference_of(D d, V m) {
  using Real = hn::TFromD<D>;
  return hn::IfThenElse(hn::Eq(m, hn::Set(d, -kInf<Real>)), hn::Zero(d), m);
}

// Vectors of scores whose exponentials are computed side by side: eight would spill.
inline constexpr int kSideBySide = 4;

template <typename Real>
void maxima(const Real* s, int keys, int vectors, Real* highest) noexcept {
  const Tag<Real> d;
  const int width = vectors * kLanes<Real>;
  for (int lane = 0; lane < width; lane += kLanes<Real>) {
    auto top = hn::Set(d, -kInf<Real>);
    for (int j = 0; j < keys; ++j) top = running_max(top, hn::LoadU(d, s + j * width + lane));
    hn::StoreU(top, d, highest + lane);
  }
}

/// Distances in base 2 beyond which 2^-x is 0 in any type: nothing larger is multiplied with a 0.
template <typename Real>
inline constexpr Real kFar = Real{1100};

/// A state's sums, moved from the maximum m to a higher one: 2^x shrinks by a = 2^(m - higher), and
/// x = s - m by their distance.
template <typename D, typename V>
HWY_INLINE void move_sums(D d, V m, V l, V higher, V a, V& u, V& squares, V& cubes) {
  const auto empty = hn::Eq(m, hn::Set(d, -kInf<hn::TFromD<D>>));
  const V far = hn::Set(d, kFar<hn::TFromD<D>>);
  const V rise = hn::IfThenElse(empty, hn::Zero(d), min_keep_nan(d, far, hn::Sub(higher, m)));
  u = hn::Mul(a, hn::Sub(u, hn::Mul(rise, l)));
  const V aa = hn::Mul(a, a);
  squares = hn::Mul(aa, squares);
  cubes = hn::Mul(hn::Mul(aa, a), cubes);
}

/// Whether the softmax step counts what the rows look like: the sums of x 2^x, 2^2x and 2^3x.
enum class Counting { none, sums };

/// p = 2^(s - r) in place of s for some keys, added up in their order.
template <Counting kCounting, int Keys, int Vectors, typename Real>
HWY_INLINE void weights_of_keys(Real* HWY_RESTRICT s, const Vec<Real> (&r)[Vectors],
                                Vec<Real> (&sum)[Vectors], Vec<Real> (&sums)[3][Vectors]) {
  const Tag<Real> d;
  constexpr int kL = kLanes<Real>;
  Vec<Real> p[Keys * Vectors], x[Keys * Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Keys * Vectors; ++i) {
    p[i] = hn::Sub(hn::LoadU(d, s + i * kL), r[i % Vectors]);
    // clamped as the exponential does it: 0 * -inf is never formed
    if constexpr (kCounting == Counting::sums) x[i] = max_keep_nan(d, hn::Set(d, Real{-127}), p[i]);
  }
  exp2_nonpositive(d, p);
#pragma GCC unroll 8
  for (int i = 0; i < Keys * Vectors; ++i) {
    hn::StoreU(p[i], d, s + i * kL);
    sum[i % Vectors] = hn::Add(sum[i % Vectors], p[i]);  // equals fma(1, p, sum)
    if constexpr (kCounting == Counting::sums) {
      const auto pp = hn::Mul(p[i], p[i]);
      sums[0][i % Vectors] = fma(d, p[i], x[i], sums[0][i % Vectors]);
      sums[1][i % Vectors] = hn::Add(sums[1][i % Vectors], pp);
      sums[2][i % Vectors] = fma(d, pp, p[i], sums[2][i % Vectors]);
    }
  }
}

template <Counting kCounting, int Vectors, typename Real>
HWY_INLINE void softmax_tile(Real* HWY_RESTRICT s, int keys, const Real* HWY_RESTRICT highest,
                             Real* HWY_RESTRICT m, Real* HWY_RESTRICT l, Real* HWY_RESTRICT a,
                             [[maybe_unused]] RowSums<Real>* counted) {
  const Tag<Real> d;
  constexpr int kL = kLanes<Real>;
  constexpr int kWidth = Vectors * kL;
  Vec<Real> r[Vectors], sum[Vectors], sums[3][Vectors];
  // a = 2^(m - m'), exactly 1 where the maximum stays, 0 where it was -inf
#pragma GCC unroll 4
  for (int n = 0; n < Vectors; ++n) {
    const auto old = hn::LoadU(d, m + n * kL);
    const auto next = running_max(old, hn::LoadU(d, highest + n * kL));  // m'
    hn::StoreU(next, d, m + n * kL);
    r[n] = reference_of(d, next);
    const auto decay = exp2_nonpositive(d, hn::Sub(old, r[n]));
    hn::StoreU(decay, d, a + n * kL);
    sum[n] = sums[0][n] = sums[1][n] = sums[2][n] = hn::Zero(d);
    if constexpr (kCounting == Counting::sums) {
      auto u = hn::LoadU(d, counted->u + n * kL), squares = hn::LoadU(d, counted->squares + n * kL),
           cubes = hn::LoadU(d, counted->cubes + n * kL);
      move_sums(d, old, hn::LoadU(d, l + n * kL), r[n], decay, u, squares, cubes);
      hn::StoreU(u, d, counted->u + n * kL);
      hn::StoreU(squares, d, counted->squares + n * kL);
      hn::StoreU(cubes, d, counted->cubes + n * kL);
    }
  }
  // p_j = 2^(s_j - m'),  l = fma(l, a, chain over j of (1, p_j)), some keys at a time
  constexpr int kKeys = kSideBySide / Vectors;
  int j = 0;
  for (; j + kKeys <= keys; j += kKeys) {
    weights_of_keys<kCounting, kKeys>(s + j * kWidth, r, sum, sums);
  }
  for (; j < keys; ++j) weights_of_keys<kCounting, 1>(s + j * kWidth, r, sum, sums);
#pragma GCC unroll 4
  for (int n = 0; n < Vectors; ++n) {
    const auto decay = hn::LoadU(d, a + n * kL);
    hn::StoreU(fma(d, hn::LoadU(d, l + n * kL), decay, sum[n]), d, l + n * kL);
    if constexpr (kCounting == Counting::sums) {
      Real* const to[3] = {counted->u, counted->squares, counted->cubes};
      for (int i = 0; i < 3; ++i) {
        hn::StoreU(hn::Add(hn::LoadU(d, to[i] + n * kL), sums[i][n]), d, to[i] + n * kL);
      }
    }
  }
}

template <typename Real>
void softmax(Real* s, int keys, int vectors, const Real* highest, Real* m, Real* l,
             Real* a) noexcept {
  with_vectors(vectors, [&](auto n) HWY_ATTR {
    softmax_tile<Counting::none, decltype(n)::value>(s, keys, highest, m, l, a,
                                                     static_cast<RowSums<Real>*>(nullptr));
  });
}

template <typename Real>
void softmax_counted(Real* s, int keys, int vectors, const Real* highest, Real* m, Real* l, Real* a,
                     RowSums<Real>& sums) noexcept {
  with_vectors(vectors, [&](auto n) HWY_ATTR {
    softmax_tile<Counting::sums, decltype(n)::value>(s, keys, highest, m, l, a, &sums);
  });
}

template <typename Real>
void merge(Real* m, Real* l, Real* o, const Real* m2, const Real* l2, const Real* o2,
           std::int64_t size, int vectors) noexcept {
  const Tag<Real> d;
  const int width = vectors * kLanes<Real>;
  for (int lane = 0; lane < width; lane += kLanes<Real>) {
    const auto m1 = hn::LoadU(d, m + lane);
    const auto other = hn::LoadU(d, m2 + lane);
    const auto highest = running_max(m1, other);
    const auto r = reference_of(d, highest);
    const auto w = exp2_nonpositive(d, hn::Sub(m1, r));
    const auto z = exp2_nonpositive(d, hn::Sub(other, r));
    hn::StoreU(highest, d, m + lane);
    const auto sum = hn::Mul(hn::LoadU(d, l2 + lane), z);
    hn::StoreU(fma(d, hn::LoadU(d, l + lane), w, sum), d, l + lane);
    for (std::int64_t x = 0; x < size; ++x) {
      Real* const at = o + x * width + lane;
      const auto added =
          o2 == nullptr ? hn::Zero(d) : hn::Mul(hn::LoadU(d, o2 + x * width + lane), z);
      hn::StoreU(fma(d, hn::LoadU(d, at), w, added), d, at);
    }
  }
}

template <typename Real>
void finish(const Real* m, const Real* l, int vectors, Real* inverse, Real* lse) noexcept {
  const Tag<Real> d;
  const int width = vectors * kLanes<Real>;
  for (int lane = 0; lane < width; lane += kLanes<Real>) {
    const auto sum = hn::LoadU(d, l + lane);
    const auto none = hn::Eq(sum, hn::Zero(d));
    const auto one = hn::Set(d, Real{1});
    hn::StoreU(hn::IfThenElse(none, hn::Zero(d), hn::Div(one, sum)), d, inverse + lane);
    const auto base2 = hn::Add(hn::LoadU(d, m + lane), log2_positive(d, sum));
    const auto natural = hn::Mul(base2, hn::Set(d, kLn2<Real>));
    hn::StoreU(hn::IfThenElse(none, hn::Set(d, -kInf<Real>), natural), d, lse + lane);
  }
}

/// 2^min(s - r, 0) * factor, +0 where s = -inf: r of a rounded lse may lie below s. NaN stays.
template <typename D, typename V, int Count>
HWY_INLINE void weights_of(D d, V r, V factor, V (&s)[Count]) {
  using Real = hn::TFromD<D>;
  V p[Count];
#pragma GCC unroll 4
  for (int i = 0; i < Count; ++i) p[i] = min_keep_nan(d, hn::Zero(d), hn::Sub(s[i], r));
  exp2_nonpositive(d, p);
#pragma GCC unroll 4
  for (int i = 0; i < Count; ++i) {
    const auto hidden = hn::Eq(s[i], hn::Set(d, -kInf<Real>));
    s[i] = hn::IfThenElse(hidden, hn::Zero(d), hn::Mul(p[i], factor));
  }
}

template <typename Real>
void weights(Real* s, int keys, int vectors, const Real* m, const Real* inverse) noexcept {
  const Tag<Real> d;
  const int width = vectors * kLanes<Real>;
  for (int lane = 0; lane < width; lane += kLanes<Real>) {
    const auto r = reference_of(d, hn::LoadU(d, m + lane));
    const auto factor = hn::LoadU(d, inverse + lane);
    for (int j = 0; j < keys; ++j) {
      Vec<Real> p[1] = {hn::LoadU(d, s + j * width + lane)};
      weights_of(d, r, factor, p);
      hn::StoreU(p[0], d, s + j * width + lane);
    }
  }
}

template <typename Real>
void row_weights(Real* s, std::int64_t keys, Real m, Real inverse) noexcept {
  const Tag<Real> d;
  constexpr int kL = kLanes<Real>;
  constexpr int kStep = kSideBySide * kL;
  const auto r = reference_of(d, hn::Set(d, m));
  const auto factor = hn::Set(d, inverse);
  const auto step = [&](Real* at) HWY_ATTR {
    Vec<Real> p[kSideBySide];
#pragma GCC unroll 4
    for (int i = 0; i < kSideBySide; ++i) p[i] = hn::LoadU(d, at + i * kL);
    weights_of(d, r, factor, p);
#pragma GCC unroll 4
    for (int i = 0; i < kSideBySide; ++i) hn::StoreU(p[i], d, at + i * kL);
  };
  std::int64_t j = 0;
  for (; j + kStep <= keys; j += kStep) step(s + j);
  if (j == keys) return;
  Real rest[kStep] = {};
  for (std::int64_t i = j; i < keys; ++i) rest[i - j] = s[i];
  step(rest);
  for (std::int64_t i = j; i < keys; ++i) s[i] = rest[i - j];
}

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target

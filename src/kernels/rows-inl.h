// Between rows in memory and tiles with queries in lanes: packing, unpacking, norms.

#if defined(HEED_KERNELS_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_ROWS_INL_H_
#undef HEED_KERNELS_ROWS_INL_H_
#else
#define HEED_KERNELS_ROWS_INL_H_
#endif

#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
/// Four vectors of four, transposed in place. (References, since a struct of vectors would get a
/// constructor outside of the target's region.)
template <typename V>
HWY_INLINE void transpose(V& a, V& b, V& c, V& d) {
  const hn::FixedTag<float, 4> tag;
  const V ab = hn::InterleaveLower(tag, a, b);  // a0 b0 a1 b1
  const V AB = hn::InterleaveUpper(tag, a, b);  // a2 b2 a3 b3
  const V cd = hn::InterleaveLower(tag, c, d);
  const V CD = hn::InterleaveUpper(tag, c, d);
  a = hn::ConcatLowerLower(tag, cd, ab);
  b = hn::ConcatUpperUpper(tag, cd, ab);
  c = hn::ConcatLowerLower(tag, CD, AB);
  d = hn::ConcatUpperUpper(tag, CD, AB);
}
#endif

template <typename Real>
void pack(const Real* const* rows, int count, std::int64_t size, int vectors, Real* q) noexcept {
  const int width = vectors * kLanes<Real>;
  int r = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(Real) == 4) {
    const hn::FixedTag<float, 4> d;
    for (; r + 4 <= count; r += 4) {
      std::int64_t x = 0;
      for (; x + 4 <= size; x += 4) {
        auto t0 = hn::LoadU(d, rows[r] + x);
        auto t1 = hn::LoadU(d, rows[r + 1] + x);
        auto t2 = hn::LoadU(d, rows[r + 2] + x);
        auto t3 = hn::LoadU(d, rows[r + 3] + x);
        transpose(t0, t1, t2, t3);
        Real* const at = q + x * width + r;
        hn::StoreU(t0, d, at);
        hn::StoreU(t1, d, at + width);
        hn::StoreU(t2, d, at + 2 * width);
        hn::StoreU(t3, d, at + 3 * width);
      }
      for (; x < size; ++x) {
        for (int i = 0; i < 4; ++i) q[x * width + r + i] = rows[r + i][x];
      }
    }
  }
#endif
  for (; r < count; ++r) {
    for (std::int64_t x = 0; x < size; ++x) q[x * width + r] = rows[r][x];
  }
  if (count == width) return;
  for (std::int64_t x = 0; x < size; ++x) {
    for (r = count; r < width; ++r) q[x * width + r] = 0;
  }
}

template <typename Real>
void unpack(const Real* o, const Real* f, int count, std::int64_t size, int vectors,
            Real* const* rows) noexcept {
  const int width = vectors * kLanes<Real>;
  int r = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(Real) == 4) {
    const hn::FixedTag<float, 4> d;
    for (; r + 4 <= count; r += 4) {
      const auto factor = hn::LoadU(d, f + r);
      std::int64_t x = 0;
      for (; x + 4 <= size; x += 4) {
        const Real* const at = o + x * width + r;
        auto t0 = fma(d, hn::LoadU(d, at), factor, hn::Zero(d));
        auto t1 = fma(d, hn::LoadU(d, at + width), factor, hn::Zero(d));
        auto t2 = fma(d, hn::LoadU(d, at + 2 * width), factor, hn::Zero(d));
        auto t3 = fma(d, hn::LoadU(d, at + 3 * width), factor, hn::Zero(d));
        transpose(t0, t1, t2, t3);
        hn::StoreU(t0, d, rows[r] + x);
        hn::StoreU(t1, d, rows[r + 1] + x);
        hn::StoreU(t2, d, rows[r + 2] + x);
        hn::StoreU(t3, d, rows[r + 3] + x);
      }
      for (; x < size; ++x) {
        for (int i = 0; i < 4; ++i) rows[r + i][x] = o[x * width + r + i] * f[r + i] + Real{0};
      }
    }
  }
#endif
  for (; r < count; ++r) {
    // The product plus 0 is fma(o, f, +0): a rounded product keeps its bits, -0 becomes +0.
    for (std::int64_t x = 0; x < size; ++x) rows[r][x] = o[x * width + r] * f[r] + Real{0};
  }
}

template <typename Real>
void reciprocal_norms(const Real* q, std::int64_t size, int vectors, Real* f) noexcept {
  const Tag<Real> d;
  const int width = vectors * kLanes<Real>;
  for (int lane = 0; lane < width; lane += kLanes<Real>) {
    auto sum = hn::Zero(d);
    for (std::int64_t x = 0; x < size; ++x) {
      const auto element = hn::LoadU(d, q + x * width + lane);
      sum = fma(d, element, element, sum);
    }
    const auto inverse = hn::Div(hn::Set(d, Real{1}), hn::Sqrt(sum));
    hn::StoreU(hn::IfThenElse(hn::Eq(sum, hn::Zero(d)), hn::Zero(d), inverse), d, f + lane);
  }
}

template <typename Real>
void scale_rows(Real* q, std::int64_t size, int vectors, const Real* f) noexcept {
  const Tag<Real> d;
  const int width = vectors * kLanes<Real>;
  for (int lane = 0; lane < width; lane += kLanes<Real>) {
    const auto factor = hn::LoadU(d, f + lane);
    for (std::int64_t x = 0; x < size; ++x) {
      Real* const at = q + x * width + lane;
      hn::StoreU(hn::Mul(hn::LoadU(d, at), factor), d, at);
    }
  }
}

template <typename Real>
bool all_finite(const Real* v, std::int64_t v_stride, int keys, std::int64_t size) noexcept {
  const Tag<Real> d;
  auto sum = hn::Zero(d);  // of 0 * v: NaN as soon as one v is NaN or infinite
  Real rest = 0;
  for (int j = 0; j < keys; ++j, v += v_stride) {
    std::int64_t x = 0;
    for (; x + kLanes<Real> <= size; x += kLanes<Real>) {
      sum = hn::Add(sum, hn::Mul(hn::LoadU(d, v + x), hn::Zero(d)));
    }
    for (; x < size; ++x) rest += v[x] * Real{0};
  }
  return hn::AllTrue(d, hn::Eq(sum, hn::Zero(d))) && rest == 0;
}

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target

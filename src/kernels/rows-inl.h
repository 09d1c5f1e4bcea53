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
/// Four vectors of four, transposed.
struct Square {
  hn::Vec<hn::FixedTag<float, 4>> row[4];
};
HWY_INLINE Square transpose(const Square& s) {
  const hn::FixedTag<float, 4> d;
  const auto ab = hn::InterleaveLower(d, s.row[0], s.row[1]);  // a0 b0 a1 b1
  const auto AB = hn::InterleaveUpper(d, s.row[0], s.row[1]);  // a2 b2 a3 b3
  const auto cd = hn::InterleaveLower(d, s.row[2], s.row[3]);
  const auto CD = hn::InterleaveUpper(d, s.row[2], s.row[3]);
  return {{hn::ConcatLowerLower(d, cd, ab), hn::ConcatUpperUpper(d, cd, ab),
           hn::ConcatLowerLower(d, CD, AB), hn::ConcatUpperUpper(d, CD, AB)}};
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
        const Square t =
            transpose({{hn::LoadU(d, rows[r] + x), hn::LoadU(d, rows[r + 1] + x),
                        hn::LoadU(d, rows[r + 2] + x), hn::LoadU(d, rows[r + 3] + x)}});
        for (int i = 0; i < 4; ++i) hn::StoreU(t.row[i], d, q + (x + i) * width + r);
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
        Square t;
        for (int i = 0; i < 4; ++i) {
          t.row[i] = fma(d, hn::LoadU(d, o + (x + i) * width + r), factor, hn::Zero(d));
        }
        t = transpose(t);
        for (int i = 0; i < 4; ++i) hn::StoreU(t.row[i], d, rows[r + i] + x);
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

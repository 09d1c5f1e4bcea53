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
/// Four vectors, each block of 4 x 4 transposed. (References, since a struct of vectors would get a
/// constructor outside of the target's region.)
template <typename V>
HWY_INLINE void transpose_in_blocks(V& a, V& b, V& c, V& d) {
  const Tag<float> tag;
  const hn::RepartitionToWide<Tag<float>> pairs;
  const auto ab = hn::BitCast(pairs, hn::InterleaveLower(tag, a, b));  // a0 b0 a1 b1
  const auto AB = hn::BitCast(pairs, hn::InterleaveUpper(tag, a, b));  // a2 b2 a3 b3
  const auto cd = hn::BitCast(pairs, hn::InterleaveLower(tag, c, d));
  const auto CD = hn::BitCast(pairs, hn::InterleaveUpper(tag, c, d));
  a = hn::BitCast(tag, hn::InterleaveLower(pairs, ab, cd));
  b = hn::BitCast(tag, hn::InterleaveUpper(pairs, ab, cd));
  c = hn::BitCast(tag, hn::InterleaveLower(pairs, AB, CD));
  d = hn::BitCast(tag, hn::InterleaveUpper(pairs, AB, CD));
}

/// A square of as many vectors as one has lanes, transposed in registers.
HWY_INLINE void transpose(Vec<float> (&t)[kLanes<float>]) {
  const Tag<float> d;
  constexpr int kBlocks = kLanes<float> / 4;
#pragma GCC unroll 4
  for (int g = 0; g < kBlocks; ++g) {
    const int first = 4 * g;
    transpose_in_blocks(t[first], t[first + 1], t[first + 2], t[first + 3]);
  }
  // Now t[4 g + i] holds coordinates i, 4 + i, .. of rows 4 g to 4 g + 3, one block each.
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    if constexpr (kBlocks == 2) {
      const auto a = t[i], b = t[4 + i];
      t[i] = hn::ConcatLowerLower(d, b, a);
      t[4 + i] = hn::ConcatUpperUpper(d, b, a);
    } else if constexpr (kBlocks == 4) {
      const auto a = t[i], b = t[4 + i], c = t[8 + i], e = t[12 + i];
      const auto even_ab = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a);  // a0 b0 a2 b2
      const auto odd_ab = hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a));   // a1 b1 a3 b3
      const auto even_ce = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(e), c);
      const auto odd_ce = hn::OddEvenBlocks(e, hn::SwapAdjacentBlocks(c));
      t[i] = hn::ConcatLowerLower(d, even_ce, even_ab);
      t[4 + i] = hn::ConcatLowerLower(d, odd_ce, odd_ab);
      t[8 + i] = hn::ConcatUpperUpper(d, even_ce, even_ab);
      t[12 + i] = hn::ConcatUpperUpper(d, odd_ce, odd_ab);
    }
  }
}

/// Calls at(x) so that squares from x on cover [0, size), size >= one square: the last one overlaps
/// the one before where size is no multiple.
template <typename F>
HWY_INLINE void cover_with_squares(std::int64_t size, const F& at) {
  constexpr int kL = kLanes<float>;
  for (std::int64_t x = 0; x + kL <= size; x += kL) at(x);
  if (size % kL != 0) at(size - kL);
}

/// One vector of rows into a packed tile: q[x][r] = rows[r][x] for r < count, which may be less
/// than 0, and 0 for the rest. rows[count - 1] is a row in any case.
template <int Width>
HWY_INLINE void pack_squares(const float* const* rows, int count, std::int64_t size, float* q) {
  const Tag<float> d;
  constexpr int kL = kLanes<float>;
  const float* row[kL];
  for (int i = 0; i < kL; ++i) row[i] = rows[i < count ? i : count - 1];
  const auto used = hn::FirstN(d, static_cast<std::size_t>(count < 0 ? 0 : count));
  cover_with_squares(size, [&](std::int64_t x) HWY_ATTR {
    Vec<float> t[kL];
#pragma GCC unroll 16
    for (int i = 0; i < kL; ++i) t[i] = hn::LoadU(d, row[i] + x);
    transpose(t);
#pragma GCC unroll 16
    for (int i = 0; i < kL; ++i) {
      hn::StoreU(count < kL ? hn::IfThenElseZero(used, t[i]) : t[i], d, q + (x + i) * Width);
    }
  });
}

/// One vector of rows out of a tile: rows[r][x] = fma(o[x][r], f[r], +0) for r < count.
template <int Width>
HWY_INLINE void unpack_squares(const float* o, const float* f, int count, std::int64_t size,
                               float* const* rows) {
  const Tag<float> d;
  constexpr int kL = kLanes<float>;
  const auto factor = hn::LoadU(d, f);
  cover_with_squares(size, [&](std::int64_t x) HWY_ATTR {
    Vec<float> t[kL];
#pragma GCC unroll 16
    for (int i = 0; i < kL; ++i) {
      t[i] = fma(d, hn::LoadU(d, o + (x + i) * Width), factor, hn::Zero(d));
    }
    transpose(t);
#pragma GCC unroll 16
    for (int i = 0; i < kL; ++i) {
      if (i < count) hn::StoreU(t[i], d, rows[i] + x);
    }
  });
}
#endif

template <typename Real>
void pack(const Real* const* rows, int count, std::int64_t size, int vectors, Real* q) noexcept {
  const int width = vectors * kLanes<Real>;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(Real) == 4) {
    if (size >= kLanes<Real>) {
      return with_vectors(vectors, [&](auto n) HWY_ATTR {
        constexpr int kWidth = decltype(n)::value * kLanes<Real>;
        for (int r = 0; r < kWidth; r += kLanes<Real>) {
          pack_squares<kWidth>(rows + r, count - r, size, q + r);
        }
      });
    }
  }
#endif
  for (std::int64_t x = 0; x < size; ++x) {
    for (int r = 0; r < width; ++r) q[x * width + r] = r < count ? rows[r][x] : Real{0};
  }
}

template <typename Real>
void unpack(const Real* o, const Real* f, int count, std::int64_t size, int vectors,
            Real* const* rows) noexcept {
  const int width = vectors * kLanes<Real>;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(Real) == 4) {
    if (size >= kLanes<Real>) {
      return with_vectors(vectors, [&](auto n) HWY_ATTR {
        constexpr int kWidth = decltype(n)::value * kLanes<Real>;
        for (int r = 0; r < count; r += kLanes<Real>) {
          unpack_squares<kWidth>(o + r, f + r, count - r, size, rows + r);
        }
      });
    }
  }
#endif
  for (int r = 0; r < count; ++r) {
    for (std::int64_t x = 0; x < size; ++x) rows[r][x] = std::fma(o[x * width + r], f[r], Real{0});
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

// The two products for tiles of few rows, as in decoding, where memory is what takes time: keys in lanes
// for the scores, value coordinates in lanes for the output. Each element is the chain that it is in
// products-inl.h, so the bits are the same.

#if defined(HEED_KERNELS_FEW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_FEW_INL_H_
#undef HEED_KERNELS_FEW_INL_H_
#else
#define HEED_KERNELS_FEW_INL_H_
#endif

#include "kernels/kernels.h"
#include "kernels/math-inl.h"
#include "kernels/products-inl.h"
#include "kernels/rows-inl.h"
#include "kernels/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

/// f(Int<rows>()), 1 <= rows <= kFewRows.
template <typename F>
HWY_INLINE void with_rows(int rows, const F& f) {
  static_assert(kFewRows == 4);
  if (rows == 4) return f(Int<4>());
  if (rows == 3) return f(Int<3>());
  if (rows == 2) return f(Int<2>());
  return f(Int<1>());
}

#if HWY_TARGET != HWY_SCALAR
/// Rows that are read next. A word of each of their cache lines is loaded in the order of addresses, which
/// is what the hardware looks ahead for: prefetch instructions leave it asleep. A few lines with each step
/// of the products, since a load that waits keeps what comes after it from retiring.
struct NextRows {
  const float* row;
  std::int64_t stride, size;
  int count;
  std::int64_t x = 0;

  HWY_INLINE void touch(int lines) {
    for (; lines > 0 && count > 0; --lines) {
      asm volatile("" ::"r"(*reinterpret_cast<const std::uint32_t*>(row + x)));
      x += 16;
      if (x < size) continue;
      x = 0;
      row += stride;
      --count;
    }
  }
};

/// s[j][r] for one vector of keys, of which `count` are there: their rows, transposed in registers, meet
/// the broadcast queries, one chain for each lane and row.
template <int Rows>
HWY_NOINLINE void scores_of_keys(const float* const* k, int count, const float* q,
                                 std::int64_t size, std::int64_t width, const float* c, float* s,
                                 NextRows next) {
  const Tag<float> d;
  constexpr int kL = kLanes<float>;
  Vec<float> total[Rows], acc[Rows];
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) total[r] = hn::Zero(d);  // g++ for arm64 sees no first round
  for (std::int64_t first = 0; first < size; first += kChainSize) {
    const std::int64_t end = size - first > kChainSize ? first + kChainSize : size;
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) acc[r] = hn::Zero(d);
    for (std::int64_t x = first; x < end; x += kL) {
      Vec<float> t[kL];
#pragma GCC unroll 16
      for (int i = 0; i < kL; ++i) t[i] = hn::LoadU(d, k[i] + x);
      transpose(t);
      next.touch(kL * kL / 16);
#pragma GCC unroll 16
      for (int i = 0; i < kL; ++i) {
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) {
          acc[r] = fma(d, t[i], hn::Set(d, q[(x + i) * width + r]), acc[r]);
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) total[r] = first == 0 ? acc[r] : hn::Add(total[r], acc[r]);
  }
  for (int r = 0; r < Rows; ++r) {
    float scores[kL];
    hn::StoreU(hn::Mul(total[r], hn::Set(d, c[r])), d, scores);
    for (int j = 0; j < count; ++j) s[j * width + r] = scores[j];
  }
}
#endif

template <typename Real>
void scores_few(const Real* k, std::int64_t k_stride, int keys, const Real* q, int rows,
                std::int64_t size, int vectors, const Real* c, Real* s, Real* highest) noexcept {
  const int width = vectors * kLanes<Real>;
  for (int i = 0; i < keys * width; ++i) s[i] = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(Real) == 4) {
    constexpr int kL = kLanes<float>;
    for (int j = 0; j < keys; j += kL) {
      const int count = keys - j < kL ? keys - j : kL;
      const float* row[kL];
      for (int i = 0; i < kL; ++i) row[i] = k + (j + (i < count ? i : count - 1)) * k_stride;
      const int after = keys - j - kL;
      const int left = after < kL ? after : kL;
      const NextRows next{k + (j + kL) * k_stride, k_stride, size, left};
      with_rows(rows, [&](auto n) HWY_ATTR {
        scores_of_keys<decltype(n)::value>(row, count, q, size, width, c, s + j * width, next);
      });
    }
    return maxima(s, keys, vectors, highest);
  }
#endif
  for (int j = 0; j < keys; ++j) {
    for (int r = 0; r < rows; ++r) {
      Real total = 0;
      for (std::int64_t first = 0; first < size; first += kChainSize) {
        Real acc = 0;
        for (std::int64_t x = first; x < size && x < first + kChainSize; ++x) {
          acc = std::fma(k[j * k_stride + x], q[x * width + r], acc);
        }
        total = first == 0 ? acc : total + acc;
      }
      s[j * width + r] = total * c[r];
    }
  }
  maxima(s, keys, vectors, highest);
}

/// Columns x .. of o: o[r][x] = fma(o[r][x], a[r], chain over j of p[j][r] v[j][x]).
template <int Rows, int Vectors, typename Real>
HWY_NOINLINE void columns_of_rows(const Real* v, std::int64_t v_stride, int keys, const Real* p,
                                  std::int64_t width, const Real* a, Real* o, std::int64_t size) {
  const Tag<Real> d;
  Vec<Real> acc[Rows][Vectors];
  begin_chain<Rows, Vectors, Real>(acc);
  carry_chain<0>(p, 1, width, keys, v, v_stride, acc);
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) {
    const auto decay = a == nullptr ? hn::Zero(d) : hn::Set(d, a[r]);
#pragma GCC unroll 8
    for (int n = 0; n < Vectors; ++n) {
      Real* const at = o + r * size + n * kLanes<Real>;
      const auto old = a == nullptr ? hn::Zero(d) : hn::LoadU(d, at);
      hn::StoreU(fma(d, old, decay, acc[r][n]), d, at);
    }
  }
}

template <typename Real>
void values_few(const Real* v, std::int64_t v_stride, int keys, const Real* p, int rows,
                std::int64_t size, int vectors, const Real* a, Real* o) noexcept {
  constexpr int kL = kLanes<Real>;
  const int width = vectors * kL;
  with_rows(rows, [&](auto n) HWY_ATTR {
    constexpr int kRows = decltype(n)::value;
    constexpr int kMost = kHighestVectors == 4 && kRows <= 2 ? 8 : kHighestVectors == 4 ? 4 : 2;
    constexpr std::int64_t kStep = kMost * kL;
    std::int64_t x = 0;
    for (; x + kStep <= size; x += kStep) {
      columns_of_rows<kRows, kMost>(v + x, v_stride, keys, p, width, a, o + x, size);
    }
    for (; x < size; x += kL) {
      columns_of_rows<kRows, 1>(v + x, v_stride, keys, p, width, a, o + x, size);
    }
  });
}

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target

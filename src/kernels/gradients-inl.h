// What the backward pass adds: the gradient of a score, and products that sum over query rows.

#if defined(HEED_KERNELS_GRADIENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_GRADIENTS_INL_H_
#undef HEED_KERNELS_GRADIENTS_INL_H_
#else
#define HEED_KERNELS_GRADIENTS_INL_H_
#endif

#include "kernels/kernels.h"
#include "kernels/math-inl.h"
#include "kernels/products-inl.h"
#include "kernels/softmax-inl.h"
#include "kernels/steps-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

template <typename Real>
void dots(const Real* a, const Real* b, std::int64_t size, int vectors, Real* f) noexcept {
  const Tag<Real> d;
  const int width = vectors * kLanes<Real>;
  for (int lane = 0; lane < width; lane += kLanes<Real>) {
    auto sum = hn::Zero(d);
    for (std::int64_t x = 0; x < size; ++x) {
      const std::int64_t at = x * width + lane;
      sum = fma(d, hn::LoadU(d, a + at), hn::LoadU(d, b + at), sum);
    }
    hn::StoreU(sum, d, f + lane);
  }
}

/// Whether the gradient of the score is wanted beside the weight.
enum class Wanted { weight, both };

/// Count vectors from s and dp on, whose lanes repeat every Vectors of them.
template <Wanted kWanted, int Count, int Vectors, typename Real>
HWY_INLINE void gradients_of_keys(Real* HWY_RESTRICT s, Real* HWY_RESTRICT dp,
                                  const Real* HWY_RESTRICT minus_lse,
                                  const Real* HWY_RESTRICT row_d) {
  const Tag<Real> d;
  constexpr int kL = kLanes<Real>;
  const auto hidden = hn::Set(d, -kInf<Real>);
  Vec<Real> p[Count];
#pragma GCC unroll 8
  for (int i = 0; i < Count; ++i) {
    const auto lse = hn::LoadU(d, minus_lse + i % Vectors * kL);
    const auto e = fma(d, lse, hn::Set(d, kLog2e<Real>), hn::LoadU(d, s + i * kL));
    p[i] = min_keep_nan(d, hn::Zero(d), e);
  }
  exp2_nonpositive(d, p);
#pragma GCC unroll 8
  for (int i = 0; i < Count; ++i) {
    // A hidden place is selected, not multiplied by 0: what is hidden may be NaN.
    const auto masked = hn::Eq(hn::LoadU(d, s + i * kL), hidden);
    p[i] = hn::IfThenZeroElse(masked, p[i]);
    hn::StoreU(p[i], d, s + i * kL);
    if constexpr (kWanted == Wanted::both) {
      const auto apart = hn::Sub(hn::LoadU(d, dp + i * kL), hn::LoadU(d, row_d + i % Vectors * kL));
      hn::StoreU(hn::IfThenZeroElse(masked, hn::Mul(p[i], apart)), d, dp + i * kL);
    }
  }
}

template <Wanted kWanted, int Vectors, typename Real>
HWY_INLINE void gradients_of_tile(Real* s, Real* dp, int keys, const Real* minus_lse,
                                  const Real* row_d) {
  constexpr int kWidth = Vectors * kLanes<Real>;
  constexpr int kKeys = kSideBySide / Vectors;
  int j = 0;
  for (; j + kKeys <= keys; j += kKeys) {
    gradients_of_keys<kWanted, kKeys * Vectors, Vectors>(
        s + j * kWidth, kWanted == Wanted::both ? dp + j * kWidth : nullptr, minus_lse, row_d);
  }
  for (; j < keys; ++j) {
    gradients_of_keys<kWanted, Vectors, Vectors>(
        s + j * kWidth, kWanted == Wanted::both ? dp + j * kWidth : nullptr, minus_lse, row_d);
  }
}

template <typename Real>
void score_gradients(Real* s, Real* dp, int keys, int vectors, const Real* minus_lse,
                     const Real* d) noexcept {
  with_vectors(vectors, [&](auto n) HWY_ATTR {
    constexpr int kVectors = decltype(n)::value;
    if (dp == nullptr) {
      gradients_of_tile<Wanted::weight, kVectors>(s, dp, keys, minus_lse, d);
    } else {
      gradients_of_tile<Wanted::both, kVectors>(s, dp, keys, minus_lse, d);
    }
  });
}

template <typename Real>
void softcap_gradient(Real* ds, int keys, int vectors, const Real* t, Real cap) noexcept {
  const Tag<Real> d;
  const auto one = hn::Set(d, Real{1});
  const auto inverse = hn::Set(d, Real{1} / cap);
  const int width = vectors * kLanes<Real>;
  each_vector(ds, keys, vectors, [&](auto g, int j, int lane) HWY_ATTR {
    const auto tau = hn::Mul(hn::LoadU(d, t + j * width + lane), inverse);
    // (1 - tau)(1 + tau) keeps the digits that 1 - tau^2 loses near 1.
    const auto slope = hn::Mul(hn::Sub(one, tau), hn::Add(one, tau));
    return hn::IfThenElse(hn::Eq(g, hn::Zero(d)), hn::Zero(d), hn::Mul(g, slope));
  });
}

template <typename Real>
void times(Real* ds, int keys, int vectors, const Real* f) noexcept {
  const Tag<Real> d;
  const int width = vectors * kLanes<Real>;
  each_vector(ds, keys, vectors, [&](auto g, int j, int lane) HWY_ATTR {
    const auto product = hn::Mul(g, hn::LoadU(d, f + j * width + lane));
    return hn::IfThenElse(hn::Eq(g, hn::Zero(d)), hn::Zero(d), product);
  });
}

/// Height keys x Vectors vectors of columns, in registers over the rows of all tiles.
template <int Height, int Vectors, typename Real>
HWY_NOINLINE void outer_rows(const WeightedRows<Real>* tiles, int tile_count, std::int64_t key,
                             std::int64_t x, std::int64_t row_stride, Real* out,
                             std::int64_t out_stride) {
  const Tag<Real> d;
  Vec<Real> acc[Height][Vectors];
  begin_chain<Height, Vectors, Real>(acc);
  for (int t = 0; t < tile_count; ++t) {
    const WeightedRows<Real>& tile = tiles[t];
    const Real* p = tile.p + key * tile.width;
    const Real* rows = tile.rows + x;
    carry_chain<0>(p, tile.width, 1, tile.count, rows, row_stride, acc);
  }
#pragma GCC unroll 16
  for (int i = 0; i < Height; ++i) {
#pragma GCC unroll 4
    for (int n = 0; n < Vectors; ++n) {
      Real* const at = out + i * out_stride + n * kLanes<Real>;
      hn::StoreU(hn::Add(hn::LoadU(d, at), acc[i][n]), d, at);
    }
  }
}

template <int Vectors, typename Real>
struct OuterStep {
  const WeightedRows<Real>* tiles;
  int tile_count;
  std::int64_t row_stride, size, x;
  Real* out;
  template <int Height>
  HWY_INLINE void run(std::int64_t key) const {
    outer_rows<Height, Vectors>(tiles, tile_count, key, x, row_stride, out + key * size + x, size);
  }
};

template <typename Real>
void add_outer(const WeightedRows<Real>* tiles, int tile_count, int keys, std::int64_t row_stride,
               std::int64_t size, Real* out) noexcept {
  for (std::int64_t x = 0; x < size;) {
    const auto left = static_cast<int>((size - x) / kLanes<Real>);
    const int vectors = left < kHighestVectors ? left : kHighestVectors;
    with_vectors(vectors, [&](auto n) HWY_ATTR {
      constexpr int kVectors = decltype(n)::value;
      cover<kHeight<kVectors>>(
          keys, OuterStep<kVectors, Real>{tiles, tile_count, row_stride, size, x, out});
    });
    x += vectors * kLanes<Real>;
  }
}

/// Rare (a NaN or infinity beside a row that does not see every key), hence plain.
template <typename Real>
void add_outer_visible(const WeightedRows<Real>* tiles, int tile_count, int keys,
                       std::int64_t row_stride, std::int64_t size, Real* out) noexcept {
  const Tag<Real> d;
  for (int j = 0; j < keys; ++j) {
    for (std::int64_t x = 0; x < size; x += kLanes<Real>) {
      auto acc = hn::Zero(d);
      for (int t = 0; t < tile_count; ++t) {
        const WeightedRows<Real>& tile = tiles[t];
        for (int r = 0; r < tile.count; ++r) {
          if ((tile.visible[j] >> r & 1) == 0) continue;
          const auto p = hn::Set(d, tile.p[j * tile.width + r]);
          acc = fma(d, p, hn::LoadU(d, tile.rows + r * row_stride + x), acc);
        }
      }
      Real* const at = out + j * size + x;
      hn::StoreU(hn::Add(hn::LoadU(d, at), acc), d, at);
    }
  }
}

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target

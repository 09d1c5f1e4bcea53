// The two matrix products of attention over register tiles: where nearly all time goes.

#if defined(HEED_KERNELS_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_PRODUCTS_INL_H_
#undef HEED_KERNELS_PRODUCTS_INL_H_
#else
#define HEED_KERNELS_PRODUCTS_INL_H_
#endif

#include "kernels/kernels.h"
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

// A register tile is Height broadcast elements x Vectors query vectors: its accumulators, the query
// vectors and one broadcast must fit the registers, and two FMA pipes of latency 4 want 8 chains.
//   32 registers, 4 vectors: 6 x 4 + 4 + 1 = 29       16 registers, 2 vectors: 6 x 2 + 2 + 1 = 15
// Fewer vectors take a height that divides usual head sizes and blocks, since a leftover of few
// chains waits for itself; 16 x 1 would need more row pointers than there are registers.
template <int Vectors>
inline constexpr int kHeight = Vectors == kHighestVectors ? 6 : 8;

/// acc = 0, where a chain begins.
template <int Height, int Vectors, typename Real>
HWY_INLINE void begin_chain(Vec<Real> (&acc)[Height][Vectors]) {
#pragma GCC unroll 16
  for (int i = 0; i < Height; ++i) {
#pragma GCC unroll 8
    for (int n = 0; n < Vectors; ++n) acc[i][n] = hn::Zero(Tag<Real>());
  }
}

/// Carries the chains acc[i][n], n >= First, on over the next `count` of x:
/// acc[i][n] = fma(rows[i][x] broadcast, q[x][n], acc[i][n]); rows of q lie `pitch` apart.
template <int First, int Height, int Vectors, typename Real>
HWY_INLINE void carry_chain(const Real* HWY_RESTRICT& rows, std::int64_t row_stride,
                            std::int64_t step, std::int64_t count, const Real* HWY_RESTRICT& q,
                            std::int64_t pitch, Vec<Real> (&acc)[Height][Vectors]) {
  const Tag<Real> d;
  for (std::int64_t x = 0; x < count; ++x) {
    Vec<Real> qs[Vectors];
#pragma GCC unroll 8
    for (int n = First; n < Vectors; ++n) qs[n] = hn::LoadU(d, q + n * kLanes<Real>);
#pragma GCC unroll 16
    for (int i = 0; i < Height; ++i) {
      const auto b = hn::Set(d, rows[i * row_stride]);
#pragma GCC unroll 8
      for (int n = First; n < Vectors; ++n) acc[i][n] = fma(d, b, qs[n], acc[i][n]);
    }
    rows += step;
    q += pitch;
  }
}

/// acc[i][n] = chain over x of (rows[i][x] broadcast, q[x][n]), x up to seen[n], which ascend.
template <int First, int Height, int Vectors, typename Real>
HWY_INLINE void stair_chain(const Real* HWY_RESTRICT& rows, std::int64_t row_stride,
                            std::int64_t step, const KeysSeen& seen, const Real* HWY_RESTRICT& q,
                            Vec<Real> (&acc)[Height][Vectors]) {
  if constexpr (First < Vectors) {
    int before = 0;
    if constexpr (First > 0) before = seen[First - 1];
    carry_chain<First>(rows, row_stride, step, seen[First] - before, q, Vectors * kLanes<Real>,
                       acc);
    stair_chain<First + 1>(rows, row_stride, step, seen, q, acc);
  }
}

/// Asks for the cache lines of some bytes. Addresses, not pointers: what lies past the end of a
/// tensor is asked for too, and never read.
HWY_INLINE void prefetch(std::uintptr_t first, std::int64_t bytes) {
  for (std::int64_t at = 0; at < bytes; at += 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(first + static_cast<std::uintptr_t>(at)));
  }
}
template <typename Real>
HWY_INLINE void prefetch_rows(const Real* rows, std::int64_t stride, std::int64_t size,
                              std::int64_t first, int count) {
  constexpr std::int64_t kSize = sizeof(Real);
  for (std::int64_t i = first; i < first + count; ++i) {
    const auto offset =
        static_cast<std::uintptr_t>(i) * static_cast<std::uintptr_t>(stride * kSize);
    prefetch(reinterpret_cast<std::uintptr_t>(rows) + offset, size * kSize);
  }
}

/// The part of `ahead` that belongs to Height of `keys` keys.
template <int Height, typename Real>
HWY_INLINE void prefetch_ahead(const Ahead<Real>& ahead, const Real* k, std::int64_t k_stride,
                               std::int64_t size, std::int64_t key, std::int64_t keys) {
  if (ahead.v != nullptr) {
    prefetch_rows(k, k_stride, size, key + std::int64_t{2} * Height, Height);
    prefetch_rows(ahead.v, ahead.v_stride, ahead.v_size, key, Height);
  }
  if (ahead.rows == nullptr) return;
  const std::int64_t end = (key + Height) * ahead.row_count / keys;
  for (std::int64_t r = key * ahead.row_count / keys; r < end; ++r) {
    prefetch(reinterpret_cast<std::uintptr_t>(ahead.rows[r]), ahead.row_bytes);
  }
}

/// A chain's place among those of a long head: see kChainSize.
enum class Chain { first, later };

/// s[j][r] = chain over x of k[j][x] q[x][r], added to what s has unless this chain is the `first`.
template <int Height, int Vectors, typename Real>
HWY_NOINLINE void add_chain(const Real* k, std::int64_t k_stride, const Real* q, std::int64_t size,
                            std::int64_t pitch, Chain place, Real* s) {
  const Tag<Real> d;
  Vec<Real> acc[Height][Vectors];
  begin_chain<Height, Vectors, Real>(acc);
  carry_chain<0>(k, k_stride, 1, size, q, pitch, acc);
  for (int i = 0; i < Height; ++i) {
    for (int n = 0; n < Vectors; ++n) {
      Real* const at = s + i * pitch + n * kLanes<Real>;
      hn::StoreU(place == Chain::first ? acc[i][n] : hn::Add(hn::LoadU(d, at), acc[i][n]), d, at);
    }
  }
}

/// s[j][r] = c[r] * (chain over x of k[j][x] q[x][r]) for Height keys, added before the factor to
/// what s has unless this chain is the `first`; highest[r] takes the scores in while they are in
/// registers, which saves a pass over s (1 % at D = 64). Rows of q and s lie `pitch` apart.
template <int Height, int Vectors, Chain kPlace, typename Real>
HWY_NOINLINE void score_rows(const Real* k, std::int64_t k_stride, const Real* q, std::int64_t size,
                             std::int64_t pitch, const Real* c, Real* s, Real* highest) {
  const Tag<Real> d;
  Vec<Real> acc[Height][Vectors];
  begin_chain<Height, Vectors, Real>(acc);
  carry_chain<0>(k, k_stride, 1, size, q, pitch, acc);
#pragma GCC unroll 4
  for (int n = 0; n < Vectors; ++n) {
    const auto factor = hn::LoadU(d, c + n * kLanes<Real>);
    auto top = hn::LoadU(d, highest + n * kLanes<Real>);
#pragma GCC unroll 16
    for (int i = 0; i < Height; ++i) {
      Real* const at = s + i * pitch + n * kLanes<Real>;
      if constexpr (kPlace == Chain::later) acc[i][n] = hn::Add(hn::LoadU(d, at), acc[i][n]);
      const auto score = hn::Mul(acc[i][n], factor);
      top = running_max(top, score);
      hn::StoreU(score, d, at);
    }
    hn::StoreU(top, d, highest + n * kLanes<Real>);
  }
}

/// The scores of Height keys, by chains of kChainSize.
template <int Height, int Vectors, typename Real>
HWY_INLINE void score_chains(const Real* k, std::int64_t k_stride, const Real* q, std::int64_t size,
                             std::int64_t pitch, const Real* c, Real* s, Real* highest) {
  if (size <= kChainSize) {
    score_rows<Height, Vectors, Chain::first>(k, k_stride, q, size, pitch, c, s, highest);
    return;
  }
  // What there is of longer heads waits in s; in one function with the above, the accumulators
  // would be spilled (2.5 % of the products at D = 64).
  std::int64_t x = 0;
  for (; size - x > kChainSize; x += kChainSize) {
    add_chain<Height, Vectors>(k + x, k_stride, q + x * pitch, kChainSize, pitch,
                               x == 0 ? Chain::first : Chain::later, s);
  }
  score_rows<Height, Vectors, Chain::later>(k + x, k_stride, q + x * pitch, size - x, pitch, c, s,
                                            highest);
}

/// o[x][r] = fma(o[x][r], a[r], chain over j of v[j][x] p[j][r]) for Height coordinates x; a null:
/// o is not read, as if it were 0.
template <int Height, int Vectors, typename Real>
HWY_NOINLINE void value_rows(const Real* v, std::int64_t v_stride, const KeysSeen& seen,
                             const Real* p, const Real* a, Real* o) {
  const Tag<Real> d;
  constexpr int kWidth = Vectors * kLanes<Real>;
  Vec<Real> acc[Height][Vectors];
  begin_chain<Height, Vectors, Real>(acc);
  stair_chain<0>(v, 1, v_stride, seen, p, acc);
#pragma GCC unroll 4
  for (int n = 0; n < Vectors; ++n) {
    const auto decay = a == nullptr ? hn::Zero(d) : hn::LoadU(d, a + n * kLanes<Real>);
#pragma GCC unroll 16
    for (int i = 0; i < Height; ++i) {
      Real* const at = o + i * kWidth + n * kLanes<Real>;
      const auto old = a == nullptr ? hn::Zero(d) : hn::LoadU(d, at);
      hn::StoreU(fma(d, old, decay, acc[i][n]), d, at);
    }
  }
}

/// Calls step.run<h>(first) with heights that cover [0, count): as many full ones as fit, then one
/// of exactly what is left.
template <int Height, typename Step>
HWY_INLINE void cover_rest(std::int64_t first, std::int64_t rest, const Step& step) {
  if constexpr (Height > 0) {
    if (rest == Height) {
      step.template run<Height>(first);
    } else {
      cover_rest<Height - 1>(first, rest, step);
    }
  }
}
template <int Height, typename Step>
HWY_INLINE void cover(std::int64_t count, const Step& step) {
  std::int64_t first = 0;
  for (; first + Height <= count; first += Height) step.template run<Height>(first);
  cover_rest<Height - 1>(first, count - first, step);
}

template <int Vectors, typename Real>
struct ScoreStep {
  const Real* k;
  std::int64_t k_stride;
  const Real* q;
  std::int64_t size;
  const Real* c;
  Real* s;
  Real* highest;
  int keys;
  const KeysSeen& seen;
  const Ahead<Real>& ahead;
  template <int Height>
  HWY_INLINE void run(std::int64_t key) const {
    prefetch_ahead<Height>(ahead, k, k_stride, size, key, keys);
    from<Height, 0>(key);
  }

  /// The vectors from the first one on that sees some of the keys.
  template <int Height, int First>
  HWY_INLINE void from(std::int64_t key) const {
    if constexpr (First + 1 < Vectors) {
      if (seen[First] <= key) return from<Height, First + 1>(key);
    }
    constexpr int kPitch = Vectors * kLanes<Real>;
    constexpr int kLane = First * kLanes<Real>;
    score_chains<Height, Vectors - First>(k + key * k_stride, k_stride, q + kLane, size, kPitch,
                                          c + kLane, s + key * kPitch + kLane, highest + kLane);
  }
};

template <int Vectors, typename Real>
struct ValueStep {
  const Real* v;
  std::int64_t v_stride;
  const KeysSeen& seen;
  const Real* p;
  const Real* a;
  Real* o;
  template <int Height>
  HWY_INLINE void run(std::int64_t x) const {
    value_rows<Height, Vectors>(v + x, v_stride, seen, p, a, o + x * (Vectors * kLanes<Real>));
  }
};

template <typename Real>
void scores(const Real* k, std::int64_t k_stride, int keys, const KeysSeen& seen, const Real* q,
            std::int64_t size, int vectors, const Real* c, Real* s, Real* highest,
            const Ahead<Real>& ahead) noexcept {
  for (int r = 0; r < vectors * kLanes<Real>; ++r) highest[r] = -kInf<Real>;
  with_vectors(vectors, [&](auto n) HWY_ATTR {
    constexpr int kVectors = decltype(n)::value;
    cover<kHeight<kVectors>>(
        keys, ScoreStep<kVectors, Real>{k, k_stride, q, size, c, s, highest, keys, seen, ahead});
  });
}

template <typename Real>
void values(const Real* v, std::int64_t v_stride, const KeysSeen& seen, const Real* p,
            std::int64_t size, int vectors, const Real* a, Real* o) noexcept {
  with_vectors(vectors, [&](auto n) HWY_ATTR {
    constexpr int kVectors = decltype(n)::value;
    cover<kHeight<kVectors>>(size, ValueStep<kVectors, Real>{v, v_stride, seen, p, a, o});
  });
}

/// Lanes of the 64-bit word that belong to vector n, as a mask.
template <typename Real>
HWY_INLINE auto mask_of(std::uint64_t word, int n) {
  const Tag<Real> d;
  const std::uint64_t shifted = word >> (n * kLanes<Real>);
  std::uint8_t bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<std::uint8_t>(shifted >> (8 * i));
  return hn::LoadMaskBits(d, bytes);
}

/// values() with each key's step selected: what a row may not see never enters its chain. Rare (a
/// masked NaN or infinity in V), hence plain: one coordinate at a time.
template <typename Real>
void values_visible(const Real* v, std::int64_t v_stride, int keys, const Real* p,
                    std::int64_t size, int vectors, const Real* a, const std::uint64_t* visible,
                    Real* o) noexcept {
  const Tag<Real> d;
  const int width = vectors * kLanes<Real>;
  for (int n = 0; n < vectors; ++n) {
    const int lane = n * kLanes<Real>;
    const auto decay = a == nullptr ? hn::Zero(d) : hn::LoadU(d, a + lane);
    for (std::int64_t x = 0; x < size; ++x) {
      auto acc = hn::Zero(d);
      for (int j = 0; j < keys; ++j) {
        const auto next =
            fma(d, hn::Set(d, v[j * v_stride + x]), hn::LoadU(d, p + j * width + lane), acc);
        acc = hn::IfThenElse(mask_of<Real>(visible[j], n), next, acc);
      }
      Real* const at = o + x * width + lane;
      const auto old = a == nullptr ? hn::Zero(d) : hn::LoadU(d, at);
      hn::StoreU(fma(d, old, decay, acc), d, at);
    }
  }
}

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target

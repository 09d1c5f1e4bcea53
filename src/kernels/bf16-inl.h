// The kernels over pairs of bfloat16.

#if defined(HEED_KERNELS_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_BF16_INL_H_
#undef HEED_KERNELS_BF16_INL_H_
#else
#define HEED_KERNELS_BF16_INL_H_
#endif

#include "kernels/bf16.h"
#include "kernels/math-inl.h"
#include "kernels/pairs-inl.h"
#include "kernels/products-inl.h"
#include "kernels/softmax-inl.h"

#ifdef HEED_PAIRS_TARGET
// What needs the extension is compiled with it, and so is all that it is inlined into: hence no
// lambda and no function template of another file around it.
HWY_PUSH_ATTRIBUTES(HEED_PAIRS_TARGET)
namespace heed::kernels::HWY_NAMESPACE {
namespace paired {

/// acc[i][n] = dot(rows[i][x] broadcast, q[x][n], acc[i][n]) over the next `count` of x, n >=
/// First.
template <int First, int Height, int Vectors>
HWY_INLINE void carry(const std::byte*& rows, std::int64_t row_step, std::int64_t step,
                      std::int64_t count, const float*& q, std::int64_t pitch,
                      Vec<float> (&acc)[Height][Vectors]) {
  for (std::int64_t x = 0; x < count; ++x) {
    Vec<float> qs[Vectors];
#pragma GCC unroll 8
    for (int n = First; n < Vectors; ++n) qs[n] = hn::LoadU(Floats(), q + n * kLane);
#pragma GCC unroll 16
    for (int i = 0; i < Height; ++i) {
      const auto b = broadcast(rows + i * row_step);
#pragma GCC unroll 8
      for (int n = First; n < Vectors; ++n) acc[i][n] = dot(b, qs[n], acc[i][n]);
    }
    rows += step;
    q += pitch;
  }
}

template <int Height, int Vectors>
HWY_INLINE void begin(Vec<float> (&acc)[Height][Vectors]) {
#pragma GCC unroll 16
  for (int i = 0; i < Height; ++i) {
#pragma GCC unroll 8
    for (int n = 0; n < Vectors; ++n) acc[i][n] = hn::Zero(Floats());
  }
}

/// s = dot products over one chain of coordinates, added to what s has unless it is the `first`.
template <int Height, int Vectors>
HWY_NOINLINE void add_chain(const std::byte* k, std::int64_t k_step, const float* q,
                            std::int64_t pitch, Chain place, float* s) {
  const Floats d;
  Vec<float> acc[Height][Vectors];
  begin(acc);
  carry<0>(k, k_step, 4, kChainSize / 2, q, pitch, acc);
  for (int i = 0; i < Height; ++i) {
    for (int n = 0; n < Vectors; ++n) {
      float* const at = s + i * pitch + n * kLane;
      hn::StoreU(place == Chain::first ? acc[i][n] : hn::Add(hn::LoadU(d, at), acc[i][n]), d, at);
    }
  }
}

/// The scores of Height keys by their last chain, added to what s has unless it is the only one.
template <int Height, int Vectors, Chain kPlace>
HWY_NOINLINE void score_rows(const std::byte* k, std::int64_t k_step, const float* q,
                             std::int64_t pairs, std::int64_t pitch, const float* c, float* s,
                             float* highest) {
  const Floats d;
  Vec<float> acc[Height][Vectors];
  begin(acc);
  carry<0>(k, k_step, 4, pairs, q, pitch, acc);
#pragma GCC unroll 4
  for (int n = 0; n < Vectors; ++n) {
    const auto factor = hn::LoadU(d, c + n * kLane);
    auto top = hn::LoadU(d, highest + n * kLane);
#pragma GCC unroll 16
    for (int i = 0; i < Height; ++i) {
      float* const at = s + i * pitch + n * kLane;
      if constexpr (kPlace == Chain::later) acc[i][n] = hn::Add(hn::LoadU(d, at), acc[i][n]);
      const auto score = hn::Mul(acc[i][n], factor);
      top = running_max(top, score);
      hn::StoreU(score, d, at);
    }
    hn::StoreU(top, d, highest + n * kLane);
  }
}

/// Height keys from `key` on, for the vectors from First on that see some of them.
template <int Height, int Vectors, int First>
void score_keys(const std::byte* k, std::int64_t k_step, int key, const KeysSeen& seen,
                const float* q, std::int64_t size, const float* c, float* s, float* highest) {
  if constexpr (First + 1 < Vectors) {
    if (seen[First] <= key) {
      return score_keys<Height, Vectors, First + 1>(k, k_step, key, seen, q, size, c, s, highest);
    }
  }
  constexpr std::int64_t kPitch = Vectors * kLane;
  constexpr std::int64_t kChain = kChainSize / 2;
  std::int64_t pairs = (size + 1) / 2;
  const std::byte* row = k + key * k_step;
  q += First * kLane;
  c += First * kLane;
  s += key * kPitch + First * kLane;
  highest += First * kLane;
  if (pairs <= kChain) {
    return score_rows<Height, Vectors - First, Chain::first>(row, k_step, q, pairs, kPitch, c, s,
                                                             highest);
  }
  Chain place = Chain::first;
  for (; pairs > kChain; pairs -= kChain, row += 4 * kChain, q += kChain * kPitch) {
    add_chain<Height, Vectors - First>(row, k_step, q, kPitch, place, s);
    place = Chain::later;
  }
  score_rows<Height, Vectors - First, Chain::later>(row, k_step, q, pairs, kPitch, c, s, highest);
}

template <int Height, int Vectors>
void score_rest(const std::byte* k, std::int64_t k_step, int key, int rest, const KeysSeen& seen,
                const float* q, std::int64_t size, const float* c, float* s, float* highest) {
  if constexpr (Height > 0) {
    if (rest == Height) {
      return score_keys<Height, Vectors, 0>(k, k_step, key, seen, q, size, c, s, highest);
    }
    score_rest<Height - 1, Vectors>(k, k_step, key, rest, seen, q, size, c, s, highest);
  }
}

template <int Vectors>
void scores_of(const std::byte* k, std::int64_t k_step, int keys, const KeysSeen& seen,
               const float* q, std::int64_t size, const float* c, float* s, float* highest) {
  constexpr int kH = kHeight<Vectors>;
  for (int r = 0; r < Vectors * kLane; ++r) highest[r] = -kInf<float>;
  int key = 0;
  for (; key + kH <= keys; key += kH) {
    score_keys<kH, Vectors, 0>(k, k_step, key, seen, q, size, c, s, highest);
  }
  score_rest<kH - 1, Vectors>(k, k_step, key, keys - key, seen, q, size, c, s, highest);
}

void scores(const std::byte* k, std::int64_t k_step, int keys, const KeysSeen& seen, const float* q,
            std::int64_t size, int vectors, const float* c, float* s, float* highest) noexcept {
  switch (vectors) {
    case 4:
      return scores_of<4>(k, k_step, keys, seen, q, size, c, s, highest);
    case 3:
      return scores_of<3>(k, k_step, keys, seen, q, size, c, s, highest);
    case 2:
      return scores_of<2>(k, k_step, keys, seen, q, size, c, s, highest);
    default:
      return scores_of<1>(k, k_step, keys, seen, q, size, c, s, highest);
  }
}

/// p = 2^(s - r) of Keys keys, one or the two of a pair, for Vectors vectors that lie `pitch` apart
/// from key to key: added up in the order of keys, then rounded to a pair.
template <int Keys, int Vectors>
HWY_INLINE void weigh_pair(const float* s, std::int64_t pitch, const Vec<float>* r, Vec<float>* sum,
                           float* pairs) {
  const Floats d;
  Vec<float> p[Keys * Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Keys * Vectors; ++i) {
    p[i] = hn::Sub(hn::LoadU(d, s + i / Vectors * pitch + i % Vectors * kLane), r[i % Vectors]);
  }
  exp2_nonpositive(d, p);
#pragma GCC unroll 8
  for (int i = 0; i < Keys * Vectors; ++i) sum[i % Vectors] = hn::Add(sum[i % Vectors], p[i]);
#pragma GCC unroll 4
  for (int n = 0; n < Vectors; ++n) {
    const auto high = Keys == 2 ? p[(Keys - 1) * Vectors + n] : hn::Zero(d);
    hn::StoreU(pair(p[n], high), d, pairs + n * kLane);
  }
}

template <int Vectors>
void softmax_of(float* s, int keys, const float* highest, float* m, float* l, float* a) {
  const Floats d;
  constexpr std::int64_t kPitch = Vectors * kLane;
  constexpr int kBeside =
      Vectors % 2 == 0 ? 2 : 1;  // vectors whose weights are computed side by side
  Vec<float> r[Vectors], sum[Vectors];
#pragma GCC unroll 4
  for (int n = 0; n < Vectors; ++n) {
    const auto old = hn::LoadU(d, m + n * kLane);
    const auto next = running_max(old, hn::LoadU(d, highest + n * kLane));
    hn::StoreU(next, d, m + n * kLane);
    r[n] = reference_of(d, next);
    hn::StoreU(exp2_nonpositive(d, hn::Sub(old, r[n])), d, a + n * kLane);
    sum[n] = hn::Zero(d);
  }
  int j = 0;
  for (; j + 2 <= keys; j += 2) {
#pragma GCC unroll 4
    for (int n = 0; n < Vectors; n += kBeside) {
      weigh_pair<2, kBeside>(s + j * kPitch + n * kLane, kPitch, r + n, sum + n,
                             s + j / 2 * kPitch + n * kLane);
    }
  }
  if (j < keys) {
#pragma GCC unroll 4
    for (int n = 0; n < Vectors; n += kBeside) {
      weigh_pair<1, kBeside>(s + j * kPitch + n * kLane, kPitch, r + n, sum + n,
                             s + j / 2 * kPitch + n * kLane);
    }
  }
#pragma GCC unroll 4
  for (int n = 0; n < Vectors; ++n) {
    const auto decay = hn::LoadU(d, a + n * kLane);
    hn::StoreU(fma(d, hn::LoadU(d, l + n * kLane), decay, sum[n]), d, l + n * kLane);
  }
}

void softmax(float* s, int keys, int vectors, const float* highest, float* m, float* l,
             float* a) noexcept {
  switch (vectors) {
    case 4:
      return softmax_of<4>(s, keys, highest, m, l, a);
    case 3:
      return softmax_of<3>(s, keys, highest, m, l, a);
    case 2:
      return softmax_of<2>(s, keys, highest, m, l, a);
    default:
      return softmax_of<1>(s, keys, highest, m, l, a);
  }
}

void pairs(float* p, int keys, int vectors) noexcept {
  const Floats d;
  const std::int64_t pitch = std::int64_t{kLane} * vectors;
  for (int j = 0; j < keys; j += 2) {
    for (std::int64_t lane = 0; lane < pitch; lane += kLane) {
      const auto low = hn::LoadU(d, p + j * pitch + lane);
      const auto high = j + 1 < keys ? hn::LoadU(d, p + (j + 1) * pitch + lane) : hn::Zero(d);
      hn::StoreU(pair(low, high), d, p + j / 2 * pitch + lane);
    }
  }
}

void interleave(const std::byte* rows, std::int64_t step, int keys, std::int64_t size,
                float* v) noexcept {
  for (int j = 0; j < keys; j += 2, v += size) {
    const std::byte* const low = rows + j * step;
    const std::byte* const high = j + 1 < keys ? low + step : nullptr;
    std::int64_t x = 0;
    for (; x + kLane <= size; x += kLane) {
      auto words = load_halves_wide(low + 2 * x);
      if (high != nullptr) {
        words = hn::Or(words, hn::ShiftLeft<16>(load_halves_wide(high + 2 * x)));
      }
      hn::StoreU(hn::BitCast(Floats(), words), Floats(), v + x);
    }
    for (; x < size; ++x) {
      std::uint32_t word = half_at(low + 2 * x);
      if (high != nullptr) word |= static_cast<std::uint32_t>(half_at(high + 2 * x)) << 16;
      std::memcpy(v + x, &word, sizeof word);
    }
  }
}

bool all_finite(const float* words, std::int64_t count) noexcept {
  constexpr std::uint16_t kExponent = 0x7F80;
  const Halves d;
  const auto exponent = hn::Set(d, kExponent);
  std::int64_t i = 0;
  for (; i + kLane <= count; i += kLane) {
    const auto both = load_halves(reinterpret_cast<const std::byte*>(words + i));
    if (!hn::AllFalse(d, hn::Eq(hn::And(both, exponent), exponent))) return false;
  }
  for (; i < count; ++i) {
    const auto* const at = reinterpret_cast<const std::byte*>(words + i);
    for (const std::byte* half : {at, at + 2}) {
      if ((half_at(half) & kExponent) == kExponent) return false;
    }
  }
  return true;
}

/// o[x][r] of Height coordinates, x up to seen[n] keys, which ascend from vector to vector.
template <int First, int Height, int Vectors>
HWY_INLINE void carry_stairs(const std::byte*& v, std::int64_t step, const KeysSeen& seen,
                             const float*& p, Vec<float> (&acc)[Height][Vectors]) {
  if constexpr (First < Vectors) {
    int before = 0;
    if constexpr (First > 0) before = (seen[First - 1] + 1) / 2;
    carry<First>(v, 4, step, (seen[First] + 1) / 2 - before, p, Vectors * kLane, acc);
    carry_stairs<First + 1>(v, step, seen, p, acc);
  }
}

template <int Height, int Vectors>
HWY_NOINLINE void value_rows(const std::byte* v, std::int64_t step, const KeysSeen& seen,
                             const float* p, const float* a, float* o) {
  const Floats d;
  constexpr int kWidth = Vectors * kLane;
  Vec<float> acc[Height][Vectors];
  begin(acc);
  carry_stairs<0>(v, step, seen, p, acc);
#pragma GCC unroll 4
  for (int n = 0; n < Vectors; ++n) {
    const auto decay = a == nullptr ? hn::Zero(d) : hn::LoadU(d, a + n * kLane);
#pragma GCC unroll 16
    for (int i = 0; i < Height; ++i) {
      float* const at = o + i * kWidth + n * kLane;
      const auto old = a == nullptr ? hn::Zero(d) : hn::LoadU(d, at);
      hn::StoreU(fma(d, old, decay, acc[i][n]), d, at);
    }
  }
}

template <int Height, int Vectors>
void value_rest(const std::byte* v, std::int64_t step, int rest, const KeysSeen& seen,
                const float* p, const float* a, float* o) {
  if constexpr (Height > 0) {
    if (rest == Height) return value_rows<Height, Vectors>(v, step, seen, p, a, o);
    value_rest<Height - 1, Vectors>(v, step, rest, seen, p, a, o);
  }
}

template <int Vectors>
void values_of(const float* v, const KeysSeen& seen, const float* p, std::int64_t size,
               const float* a, float* o) {
  constexpr int kH = kHeight<Vectors>;
  constexpr int kWidth = Vectors * kLane;
  const auto* const words = reinterpret_cast<const std::byte*>(v);
  std::int64_t x = 0;
  for (; x + kH <= size; x += kH) {
    value_rows<kH, Vectors>(words + 4 * x, 4 * size, seen, p, a, o + x * kWidth);
  }
  value_rest<kH - 1, Vectors>(words + 4 * x, 4 * size, static_cast<int>(size - x), seen, p, a,
                              o + x * kWidth);
}

void values(const float* v, const KeysSeen& seen, const float* p, std::int64_t size, int vectors,
            const float* a, float* o) noexcept {
  switch (vectors) {
    case 4:
      return values_of<4>(v, seen, p, size, a, o);
    case 3:
      return values_of<3>(v, seen, p, size, a, o);
    case 2:
      return values_of<2>(v, seen, p, size, a, o);
    default:
      return values_of<1>(v, seen, p, size, a, o);
  }
}

/// Rare (a masked NaN or infinity in V), hence plain: one coordinate at a time. The same dot
/// products, so that what is masked changes no bit: a weight of 0 meets a 0.
void values_visible(const float* v, int keys, const float* p, std::int64_t size, int vectors,
                    const float* a, const std::uint64_t* visible, float* o) noexcept {
  const Floats d;
  const Words du;
  const std::int64_t width = std::int64_t{kLane} * vectors;
  for (int n = 0; n < vectors; ++n) {
    const int lane = n * kLane;
    const auto decay = a == nullptr ? hn::Zero(d) : hn::LoadU(d, a + lane);
    for (std::int64_t x = 0; x < size; ++x) {
      auto acc = hn::Zero(d);
      for (int j = 0; j < keys; j += 2) {
        const auto low = mask_of<float>(visible[j], n);
        const auto high = mask_of<float>(j + 1 < keys ? visible[j + 1] : 0, n);
        const auto words =
            hn::Or(hn::IfThenElseZero(hn::RebindMask(du, low), hn::Set(du, 0xFFFFU)),
                   hn::IfThenElseZero(hn::RebindMask(du, high), hn::Set(du, ~0xFFFFU)));
        const auto* const at = reinterpret_cast<const std::byte*>(v + j / 2 * size + x);
        const auto seen = hn::And(hn::BitCast(d, words), broadcast(at));
        acc = dot(seen, hn::LoadU(d, p + j / 2 * width + lane), acc);
      }
      float* const at = o + x * width + lane;
      const auto old = a == nullptr ? hn::Zero(d) : hn::LoadU(d, at);
      hn::StoreU(fma(d, old, decay, acc), d, at);
    }
  }
}

}  // namespace paired
}  // namespace heed::kernels::HWY_NAMESPACE
HWY_POP_ATTRIBUTES
#endif  // HEED_PAIRS_TARGET

#endif  // include guard per target

// The kernels over pairs of bfloat16, for CPUs that have their dot product: AVX512-BF16, Arm's
// BFDOT.
//
// A pair is two neighbours in one 32-bit word, the first in its low half: coordinates 2 x and 2 x +
// 1 of a row of q or k, keys 2 j and 2 j + 1 of p and v. A dot product adds both products of each
// pair to a float; it takes subnormal numbers for 0, and rounds its sums as the CPU does
// (pairs-inl.h): the bits are the same on every CPU with the same instruction. Where the last pair
// lacks its second element, that is 0.
//
// Letters and tiles are those of kernels.h; words of pairs lie in memory of floats, as their bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace heed::kernels {

/// Real is Real; of double there are none.
template <typename Real>
struct Bf16Kernels {
  /// s[j][r] = c[r] * (chains over pairs of coordinates of k[j] q[r]), not for keys past `seen` of
  /// r's vector; highest[r] as in scores(). q is [(size + 1) / 2][width]; rows of k, of bfloat16,
  /// lie `k_step` bytes apart and have size + size % 2 elements.
  void (*scores)(const std::byte* k, std::int64_t k_step, int keys, const KeysSeen& seen,
                 const Real* q, std::int64_t size, int vectors, const Real* c, Real* s,
                 Real* highest) noexcept;
  /// The same for a tile of one vector, r < rows <= kFewRows, 0 for other r, highest being the
  /// largest; size is a multiple of twice the lanes. `next`: rows that are read a block later, as
  /// far apart; null: none.
  void (*scores_few)(const std::byte* k, std::int64_t k_step, int keys, const Real* q, int rows,
                     std::int64_t size, const Real* c, Real* s, Real* highest,
                     const std::byte* next) noexcept;
  /// The same for one row, q being [size / 2] pairs: a chain for each lane of a vector of pairs,
  /// added up by halves.
  void (*scores_by_key)(const std::byte* k, std::int64_t k_step, int keys, const Real* q,
                        std::int64_t size, Real c, Real* s, Real* highest) noexcept;
  /// softmax() of kernels.h, which adds up weights before they are rounded; then pairs() of them.
  void (*softmax)(Real* s, int keys, int vectors, const Real* highest, Real* m, Real* l,
                  Real* a) noexcept;
  /// Rounds p of neighbouring keys to pairs, [(keys + 1) / 2][width], at the beginning of p's
  /// place.
  void (*pairs)(Real* p, int keys, int vectors) noexcept;
  /// v[j / 2][x] = the pair of rows j and j + 1. Rows of bfloat16 lie `step` bytes apart.
  void (*interleave)(const std::byte* rows, std::int64_t step, int keys, std::int64_t size,
                     Real* v) noexcept;
  /// True if no element of the words is NaN or infinite.
  bool (*all_finite)(const Real* words, std::int64_t count) noexcept;
  /// o[x][r] = fma(o[x][r], a[r], chain over pairs of keys of v[j][x] p[j][r]) as in values(); v is
  /// [(keys + 1) / 2][size].
  void (*values)(const Real* v, const KeysSeen& seen, const Real* p, std::int64_t size, int vectors,
                 const Real* a, Real* o) noexcept;
  /// The same for a tile of one vector, r < rows <= kFewRows, o being rows: o[r][x]. v are rows of
  /// bfloat16 `v_step` bytes apart; size is a multiple of twice the lanes; `next` as in scores_few.
  void (*values_few)(const std::byte* v, std::int64_t v_step, int keys, const Real* p, int rows,
                     std::int64_t size, const Real* a, Real* o, const std::byte* next) noexcept;
  /// As values, v taken as 0 where a row may not see the key: there it may be NaN. Keys from `keys`
  /// on are hidden from all rows.
  void (*values_visible)(const Real* v, int keys, const Real* p, std::int64_t size, int vectors,
                         const Real* a, const std::uint64_t* visible, Real* o) noexcept;
};

/// The kernels, or null for an instruction set without them.
template <typename Real>
const Bf16Kernels<Real>* bf16_kernels_for(int target) noexcept;

template <>
const Bf16Kernels<float>* bf16_kernels_for<float>(int target) noexcept;
template <>
inline const Bf16Kernels<double>* bf16_kernels_for<double>(int /*target*/) noexcept {
  return nullptr;
}

}  // namespace heed::kernels

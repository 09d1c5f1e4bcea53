// The kernels over pairs of bfloat16, for CPUs that have their dot product: AVX512-BF16.
//
// A pair is two neighbours in one 32-bit word, the first in its low half: coordinates 2 x and 2 x + 1 of a
// row of q or k, keys 2 j and 2 j + 1 of p and v. A dot product adds both products of each pair to a float;
// it takes subnormal numbers for 0. Where the last pair lacks its second element, that is 0.
//
// Letters and tiles are those of kernels.h; words of pairs lie in memory of floats, as their bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace heed::kernels {

struct Bf16Kernels {
  /// s[j][r] = c[r] * (chains over pairs of coordinates of k[j] q[r]), not for keys past `seen` of r's
  /// vector; highest[r] as in scores(). q is [(size + 1) / 2][width]; rows of k, of bfloat16, lie
  /// `k_step` bytes apart and have size + size % 2 elements.
  void (*scores)(const std::byte* k, std::int64_t k_step, int keys, const KeysSeen& seen,
                 const float* q, std::int64_t size, int vectors, const float* c, float* s,
                 float* highest) noexcept;
  /// softmax() of kernels.h, which adds up weights before they are rounded; then pairs() of them.
  void (*softmax)(float* s, int keys, int vectors, const float* highest, float* m, float* l,
                  float* a) noexcept;
  /// Rounds p of neighbouring keys to pairs, [(keys + 1) / 2][width], at the beginning of p's place.
  void (*pairs)(float* p, int keys, int vectors) noexcept;
  /// v[j / 2][x] = the pair of rows j and j + 1. Rows of bfloat16 lie `step` bytes apart.
  void (*interleave)(const std::byte* rows, std::int64_t step, int keys, std::int64_t size,
                     float* v) noexcept;
  /// True if no element of the words is NaN or infinite.
  bool (*all_finite)(const float* words, std::int64_t count) noexcept;
  /// o[x][r] = fma(o[x][r], a[r], chain over pairs of keys of v[j][x] p[j][r]) as in values(); v is
  /// [(keys + 1) / 2][size].
  void (*values)(const float* v, const KeysSeen& seen, const float* p, std::int64_t size,
                 int vectors, const float* a, float* o) noexcept;
  /// The same, v taken as 0 where a row may not see the key: there it may be NaN. Keys from `keys` on
  /// are hidden from all rows.
  void (*values_visible)(const float* v, int keys, const float* p, std::int64_t size, int vectors,
                         const float* a, const std::uint64_t* visible, float* o) noexcept;
};

/// The kernels, or null for an instruction set without them.
const Bf16Kernels* bf16_kernels_for(int target) noexcept;

}  // namespace heed::kernels

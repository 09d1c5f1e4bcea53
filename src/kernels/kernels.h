// The kernels' interface: one table of functions per instruction set and element type.
//
// Lanes are queries. A tile has `width` = vectors * lanes() query rows (unused ones hold zeros) and
// up to kBlockKeys keys; in memory a tile of scores is [key][row], packed queries and output tiles
// are [coordinate][row]. Every element of a result is one fixed chain of operations, so nothing
// here depends on which rows or how many share a tile.
//
// Letters: q packed queries, s scores (base 2), p weights before normalisation, o output tile,
// m running maximum, l running sum; D, Dv head sizes. Rows of k and v have last stride 1.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/order.h"
#include "kernels/targets.h"

namespace heed::kernels {

/// Bit r of word j: row r of the tile may see key j of the tile.
using VisibleWords = std::uint64_t[kMostBlockKeys];

/// Vectors of a tile at the most.
inline constexpr int kMostVectors = 4;

/// How many keys of a block, from its first on, some row of each vector may see, where that
/// ascends: the staircase of a causal mask. Scores beyond are not computed, and their weights are
/// known to be 0.
using KeysSeen = int[kMostVectors];

/// What will be read next: its cache lines are asked for while scores are computed, a few with each
/// group of keys. Hints, on which no result depends; null: none.
template <typename Real>
struct Ahead {
  const Real* v = nullptr;  ///< values of the same keys, whose own next rows are asked for too
  std::int64_t v_stride = 0;
  std::int64_t v_size = 0;
  const std::byte* const* rows = nullptr;  ///< of the tile: of a bias
  int row_count = 0;
  std::int64_t row_bytes = 0;
};

/// What rows in memory are made of: Real, or 16-bit elements that are widened where they are
/// loaded.
enum class Element { own, f16, bf16 };

/// What is counted of each row beside its state (m, l): over the keys so far, x = s - m.
template <typename Real>
struct RowSums {
  Real u[kMaxTileRows];           ///< sum of x 2^x
  Real squares[kMaxTileRows];     ///< sum of 2^2x
  Real cubes[kMaxTileRows];       ///< sum of 2^3x
  Real count[kMaxTileRows];       ///< scores that are not -inf
  Real mean[kMaxTileRows];        ///< of those, base 2
  Real deviations[kMaxTileRows];  ///< sum of (s - mean)^2
};

/// Statistics of each row, in natural units (heed/inspect.h says what each is).
template <typename Real>
struct RowNumbers {
  Real max_score[kMaxTileRows], max_weight[kMaxTileRows], entropy[kMaxTileRows];
  Real score_mean[kMaxTileRows], score_variance[kMaxTileRows];
  Real sum_squared_weights[kMaxTileRows], sum_cubed_weights[kMaxTileRows];
  Real jacobian_norm[kMaxTileRows];
};

/// What decides which weights of a tile's rows are dropped.
struct Draws {
  std::uint64_t seed;
  std::uint32_t drop_below;           ///< of the 65536 values of a draw; 0: no dropout
  std::int64_t first_key;             ///< what key 0 is in the whole problem, modulo 2^35
  std::uint32_t query[kMaxTileRows];  ///< in the whole problem, as is head
  std::uint32_t head[kMaxTileRows];   ///< batch entry * query heads + query head
};

/// Some rows of a tile as the products over rows see them: weights of keys in the tile's layout,
/// and vectors of numbers beside each row.
template <typename Real>
struct WeightedRows {
  const Real* p;                 ///< [key][width]
  const Real* rows;              ///< row r begins at rows + r * row stride
  const std::uint64_t* visible;  ///< one word per key, read by add_outer_visible only
  int width, count;
};

// X(name, result, parameters): a kernel that is not in this list cannot be called. All see a tile
// of `vectors` query vectors; the tests run the list on every instruction set.
#define HEED_KERNELS(X)                                                                            \
  /* q[x][r] = rows[r][x] for x < size, r < count; 0 for count <= r < width */                     \
  X(pack, void, (const Real* const* rows, int count, std::int64_t size, int vectors, Real* q))     \
  /* f[r] = 1 / |q_r|, 0 for a row of zeros; one chain of squares per row */                       \
  X(reciprocal_norms, void, (const Real* q, std::int64_t size, int vectors, Real* f))              \
  /* q[x][r] *= f[r] */                                                                            \
  X(scale_rows, void, (Real * q, std::int64_t size, int vectors, const Real* f))                   \
  /* s[j][r] = c[r] * (chains over x of k[j][x] q[x][r]), not for keys past `seen` of r's */       \
  /* vector; highest[r] is at least the largest of these, and that where all see all keys */       \
  X(scores, void,                                                                                  \
    (const Real* k, std::int64_t k_stride, int keys, const KeysSeen& seen, const Real* q,          \
     std::int64_t size, int vectors, const Real* c, Real* s, Real* highest,                        \
     const Ahead<Real>& ahead))                                                                    \
  /* the same for a tile of one vector, r < rows <= kFewRows, 0 for other r, highest being the */  \
  /* largest; rows of k lie k_step bytes apart, size is a multiple of the lanes. `next`: rows */   \
  /* that are read a block later, as far apart; null: none */                                      \
  X(scores_few, void,                                                                              \
    (const std::byte* k, std::int64_t k_step, Element element, int keys, const Real* q, int rows,  \
     std::int64_t size, const Real* c, Real* s, Real* highest, const std::byte* next))             \
  /* the same for one row, q being [size], a multiple of kKeyChains, in kKeyChains chains */       \
  X(scores_by_key, void,                                                                           \
    (const std::byte* k, std::int64_t k_step, Element element, int keys, const Real* q,            \
     std::int64_t size, Real c, Real* s, Real* highest))                                           \
  /* s[j][r] *= f[j] */                                                                            \
  X(scale_keys, void, (Real * s, int keys, int vectors, const Real* f))                            \
  /* s = cap * tanh(s / cap) */                                                                    \
  X(softcap, void, (Real * s, int keys, int vectors, Real cap))                                    \
  /* s[j][r] = fma(-slope[r], |distance[r] - j|, s[j][r]); distance + j exact in int32 */          \
  X(alibi, void,                                                                                   \
    (Real * s, int keys, int vectors, const Real* slope, const std::int32_t* distance))            \
  /* s += b log2(e), finite b staying finite; clears the bits of -inf; true if there was one */    \
  X(add_bias, bool, (Real * s, int keys, int vectors, const Real* b, std::uint64_t* visible))      \
  /* s += t */                                                                                     \
  X(add, void, (Real * s, int keys, int vectors, const Real* t))                                   \
  /* s *= f, finite s staying finite */                                                            \
  X(scale_scores, void, (Real * s, int keys, int vectors, Real f))                                 \
  /* bit r of words[j]: rows[r][j] is not 0, r < count; 0 for the rest; keys <= 64 */              \
  X(key_bits, void, (const std::uint8_t* const* rows, int count, int keys, std::uint64_t* words))  \
  /* s = -inf where the bit of visible is clear */                                                 \
  X(mask, void, (Real * s, int keys, int vectors, const std::uint64_t* visible))                   \
  /* highest[r] = max over j of s[j][r], again after a step has changed s */                       \
  X(maxima, void, (const Real* s, int keys, int vectors, Real* highest))                           \
  /* m' = max(m, highest);  a = 2^(m - m');  p = 2^(s - m') in place of s; */                      \
  /* l = fma(l, a, sum of p) */                                                                    \
  X(softmax, void,                                                                                 \
    (Real * s, int keys, int vectors, const Real* highest, Real* m, Real* l, Real* a))             \
  /* the same for a tile of one vector and its first kFewRows rows; other p are any numbers */     \
  X(softmax_few, void, (Real * s, int keys, const Real* highest, Real* m, Real* l, Real* a))       \
  /* the same, and the sums of x 2^x, 2^2x and 2^3x */                                             \
  X(softmax_counted, void,                                                                         \
    (Real * s, int keys, int vectors, const Real* highest, Real* m, Real* l, Real* a,              \
     RowSums<Real>& sums))                                                                         \
  /* before the softmax step: the block joins count, mean and deviations; seen[r] = keys of the */ \
  /* block that r may see (visible null: all); first[r] = the lowest j with s[j][r] = */           \
  /* highest[r] */                                                                                 \
  X(observe, void,                                                                                 \
    (const Real* s, int keys, int vectors, const std::uint64_t* visible, const Real* highest,      \
     RowSums<Real>& sums, Real* seen, Real* first))                                                \
  /* sums = those of both states; m, l, m2, l2 as they were before their merge */                  \
  X(merge_sums, void,                                                                              \
    (const Real* m, const Real* l, RowSums<Real>& sums, const Real* m2, const Real* l2,            \
     const RowSums<Real>& sums2, int vectors))                                                     \
  /* the numbers of rows whose keys have (m, l), and keys and sink together (total_m, total_l) */  \
  X(finish_sums, void,                                                                             \
    (const Real* m, const Real* l, const RowSums<Real>& sums, const Real* total_m,                 \
     const Real* total_l, int vectors, RowNumbers<Real>& out))                                     \
  /* bit r of words[j]: row r keeps the weight of key first + j */                                 \
  X(kept, void,                                                                                    \
    (const Draws& draws, std::int64_t first, int keys, int vectors, std::uint64_t* words))         \
  /* s *= f where the bit of kept is set, +0 where it is clear */                                  \
  X(drop, void, (Real * s, int keys, int vectors, const std::uint64_t* kept, Real f))              \
  /* o[x][r] = fma(o[x][r], a[r], chain over j of v[j][x] p[j][r]), j up to `seen` of r's */       \
  /* vector: beyond p is 0 and v finite; a null: o is taken as 0 */                                \
  X(values, void,                                                                                  \
    (const Real* v, std::int64_t v_stride, const KeysSeen& seen, const Real* p, std::int64_t size, \
     int vectors, const Real* a, Real* o))                                                         \
  /* the same for a tile of one vector, r < rows <= kFewRows and all keys, o being rows: */        \
  /* o[r][x]; rows of v lie v_step bytes apart, size is a multiple of the lanes; `next` as in */   \
  /* scores_few */                                                                                 \
  X(values_few, void,                                                                              \
    (const std::byte* v, std::int64_t v_step, Element element, int keys, const Real* p, int rows,  \
     std::int64_t size, const Real* a, Real* o, const std::byte* next))                            \
  /* as values, a key's step left out for the rows that may not see it: there v may be NaN */      \
  X(values_visible, void,                                                                          \
    (const Real* v, std::int64_t v_stride, int keys, const Real* p, std::int64_t size,             \
     int vectors, const Real* a, const std::uint64_t* visible, Real* o))                           \
  /* true if no element of the rows is NaN or infinite */                                          \
  X(all_finite, bool, (const Real* v, std::int64_t v_stride, int keys, std::int64_t size))         \
  /* (m, l, o) = merge of (m, l, o) and (m2, l2, o2); o2 null: zeros */                            \
  X(merge, void,                                                                                   \
    (Real * m, Real * l, Real * o, const Real* m2, const Real* l2, const Real* o2,                 \
     std::int64_t size, int vectors))                                                              \
  /* inverse = 1 / l, 0 for l = 0;  lse = ln2 (m + log2 l), -inf for l = 0 */                      \
  X(finish, void, (const Real* m, const Real* l, int vectors, Real* inverse, Real* lse))           \
  /* p = 2^min(s - m, 0) * inverse, +0 where s = -inf, in place of s */                            \
  X(weights, void, (Real * s, int keys, int vectors, const Real* m, const Real* inverse))          \
  /* the same for one row, keys in lanes, for j < keys */                                          \
  X(row_weights, void, (Real * s, std::int64_t keys, Real m, Real inverse))                        \
  /* rows[r][x] = fma(o[x][r], f[r], +0) for r < count */                                          \
  X(unpack, void,                                                                                  \
    (const Real* o, const Real* f, int count, std::int64_t size, int vectors, Real* const* rows))  \
  /* f[r] = chain over x of a[x][r] b[x][r] */                                                     \
  X(dots, void, (const Real* a, const Real* b, std::int64_t size, int vectors, Real* f))           \
  /* e = fma(-lse, log2(e), s), at most 0:  p = 2^e in place of s, dp = p (dp - d); +0 both */     \
  /* where s = -inf; dp null: p alone */                                                           \
  X(score_gradients, void,                                                                         \
    (Real * s, Real * dp, int keys, int vectors, const Real* minus_lse, const Real* d))            \
  /* ds *= 1 - (t / cap)^2, t being the capped score; ds = 0 stays, whatever t is */               \
  X(softcap_gradient, void, (Real * ds, int keys, int vectors, const Real* t, Real cap))           \
  /* ds *= f; ds = 0 stays, whatever f is */                                                       \
  X(times, void, (Real * ds, int keys, int vectors, const Real* f))                                \
  /* out[j][x] += one chain over the rows r of all tiles of p[j][r] rows[r][x]; size is a */       \
  /* multiple of the lanes */                                                                      \
  X(add_outer, void,                                                                               \
    (const WeightedRows<Real>* tiles, int tile_count, int keys, std::int64_t row_stride,           \
     std::int64_t size, Real* out))                                                                \
  /* the same, a row's step left out for keys that it may not see: there it may be NaN */          \
  X(add_outer_visible, void,                                                                       \
    (const WeightedRows<Real>* tiles, int tile_count, int keys, std::int64_t row_stride,           \
     std::int64_t size, Real* out))

using KeyBits = void (*)(const std::uint8_t* const* rows, int count, int keys,
                         std::uint64_t* words) noexcept;

template <typename Real>
struct Kernels {
  int target;           ///< number of the instruction set in heed::Isa
  int lanes;            ///< query rows of a vector
  int highest_vectors;  ///< vectors of a full tile
// NOLINTNEXTLINE(bugprone-macro-parentheses): parts of a declaration, not of an expression
#define HEED_DECLARE(name, result, parameters) result(*name) parameters noexcept;
  HEED_KERNELS(HEED_DECLARE)
#undef HEED_DECLARE
};

/// The kernels of an instruction set, or null if they were not compiled.
template <typename Real>
const Kernels<Real>* kernels_for(int target) noexcept;

template <>
const Kernels<float>* kernels_for<float>(int target) noexcept;
template <>
const Kernels<double>* kernels_for<double>(int target) noexcept;

}  // namespace heed::kernels

// The one order of what happens to a score, from product to mask.
#pragma once

#include "attention/plan.h"

namespace heed {

/// The scores of a tile against a range of keys, as they lie in scratch.s: [key][row], base 2, -inf
/// where hidden.
template <typename Real>
struct ScoredBlock {
  KeyRange range;            ///< empty: no row of the tile sees one of the keys
  Sight sight = Sight::all;  ///< all: `visible` is not filled
  kernels::VisibleWords visible;
  kernels::KeysSeen seen;  ///< by intervals; scores beyond are not computed, but masked
  Real highest[kernels::kMaxTileRows];  ///< of each row

  [[nodiscard]] int keys() const { return static_cast<int>(range.end - range.begin); }
};

/// Rows in memory, of adjacent elements, `step` bytes apart.
struct PlacedRows {
  const std::byte* at = nullptr;
  std::int64_t step = 0;
  kernels::Element element = kernels::Element::own;
  const std::byte* next = nullptr;  ///< rows of the next block, which lie alike

  [[nodiscard]] const std::byte* row(std::int64_t n) const { return at + n * step; }
};

/// Rows of keys from some key on.
template <typename Real>
struct KeyRows {
  const Real* k = nullptr;  ///< null: `placed` alone
  std::int64_t stride = 0;
  PlacedRows placed;           ///< for tiles of few rows, and where products are of bfloat16
  const Real* norm = nullptr;  ///< 1 / |k_j|, with normalize_qk
};

/// Computes the scores of a tile against the keys of block.range, in base 2, into scratch.s:
///
///     t = c * (q . k)  [ * 1/|k| ],  softcap,  ALiBi,  + bias,  score_mod,  -inf where masked
///
/// `rows` begin with key range.begin. What the block says of sight on entry
/// is narrowed by a bias or score_mod of -inf.
template <typename Real>
void ordered_scores(const Problem& p, const Plan<Real>& plan, const Scratch<Real>& scratch,
                    const Tile<Real>& tile, const KeyRows<Real>& rows,
                    const kernels::Ahead<Real>& ahead, ScoredBlock<Real>* block);

/// The tile's part of a bias, whatever its type and strides, to scratch.b: [key][row].
template <typename Real>
void pack_bias(const View4& bias, const kernels::Kernels<Real>& kernels,
               const Scratch<Real>& scratch, const Tile<Real>& tile, KeyRange range);

/// s = f'(s) for the scores that a pass left in scratch.unmodified, f being options.score_mod.
template <typename Real>
void score_mod_derivative(const Problem& p, const Plan<Real>& plan, const Tile<Real>& tile,
                          KeyRange range, Real* s);

}  // namespace heed

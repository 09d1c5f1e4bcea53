// One task of the forward-mode derivative: some query rows against all keys of their KV head.
#pragma once

#include "attention/jvp_problem.h"
#include "attention/score_tiles.h"

namespace heed {

/// What a tile has beside its scores.
template <typename Real>
struct MovingTile {
  static constexpr int kRows = kernels::kMaxTileRows;

  Real minus_lse[kRows];  ///< -inf for a row without keys, so that its weights are 0
  Real scale[kRows];
  Real lse[kRows];  ///< sum of P S'
  Real* q;          ///< tangent of q, with normalize_qk of q / |q|: packed, [D][width]
};

/// A worker's memory.
template <typename Real>
struct JvpScratch {
  Scratch<Real> scores;
  MovingTile<Real>* tiles;
  Real* ds;    ///< S' of a block, then P S': [kBlockKeys][width]
  Real* part;  ///< the second of its products
  Real* k;     ///< tangents of staged keys, [kBlockKeys][D]
  Real* v;     ///< of staged values, [kBlockKeys][Dv]
  std::size_t bytes;
};

template <typename Real>
[[nodiscard]] JvpScratch<Real> carve_jvp(const JvpProblem& p, const Plan<Real>& plan,
                                         std::byte* base);

/// Sums over keys, in the order that fixes the bits (docs/numerics.md):
///
///     for each block of 96 keys, ascending, for each tile
///       P, S';   lse' += sum of P S';   O' += sum of (P S') v + sum of P v'
///     O' = O' - lse' O
///
/// Blocks that no row of a tile may see are neither read nor computed.
template <typename Real>
class TangentRows {
 public:
  TangentRows(const JvpProblem& problem, const Plan<Real>& plan, std::byte* memory);

  void run(std::int64_t task);

 private:
  /// Tangents of a range of keys and values, in place or staged.
  struct Moving {
    const Real* k = nullptr;
    const Real* v = nullptr;
    std::int64_t k_stride = 0, v_stride = 0;
    bool loaded = false;
    bool values_finite = false;  ///< of v and its tangent
  };

  void assign(Tile<Real>& tile, MovingTile<Real>& moving, std::int64_t b, std::int64_t kv_head,
              std::int64_t first, int count);
  void load_row(const TileRows& rows, int r, Real* dense) const;
  void load(const Tile<Real>& tile, const Keys<Real>& keys, Moving& moving) const;
  void fold(Tile<Real>& tile, MovingTile<Real>& own, Keys<Real>& keys, Moving& moving);
  void move_scores(const Tile<Real>& tile, const MovingTile<Real>& own, const Keys<Real>& keys,
                   const Moving& moving, const ScoredBlock<Real>& block);
  void add_values(Tile<Real>& tile, const ScoredBlock<Real>& block, const Real* v,
                  std::int64_t stride, const Real* p, bool finite);
  void finish(const Tile<Real>& tile, const MovingTile<Real>& own);

  const JvpProblem& j_;
  const Problem& p_;
  const Plan<Real>& plan_;
  const kernels::Kernels<Real>& kernels_;
  JvpScratch<Real> scratch_;
  ScoreTiles<Real> tiles_;
};

}  // namespace heed

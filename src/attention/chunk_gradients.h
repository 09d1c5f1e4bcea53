// What a chunk of keys gives: the gradients of its own k and v, and its part of dQ.
#pragma once

#include "attention/backward_plan.h"
#include "attention/row_tiles.h"
#include "attention/score_tiles.h"

namespace heed {

/// One worker's passes over chunks of 768 keys, in the order that fixes the bits
/// (docs/numerics.md):
///
///     for some tiles of query rows, ascending
///       for each block of 96 keys of the chunk, ascending
///         for each chain of 64 rows
///           for each tile of it: P, dS;   dQ += dS K
///           dV += P' dO,  dK += dS' (scale Q)
///       slot += dQ of the tiles
///
/// Blocks that no row of a tile may see are neither read nor computed.
template <typename Real>
class ChunkGradients {
 public:
  ChunkGradients(const BackwardProblem& problem, const BackwardPlan<Real>& plan,
                 const SharedScratch<Real>& shared, const BackwardScratch<Real>& scratch);

  /// The chunk's gradients; its part of dQ is added to the slot.
  void run(Group group, std::int64_t chunk, Real* slot);

 private:
  void load_rows(std::int64_t first_tile);
  void fold_block(Keys<Real>& keys);
  void fold_chain(Keys<Real>& keys, RowTile<Real>* tiles, int count);
  bool score(Keys<Real>& keys, RowTile<Real>& tile);
  void reverse_options(RowTile<Real>& tile, Real* ds);
  void add_dbias(const RowTile<Real>& tile, const Real* ds);
  Real* sums_of(RowTile<Real>& tile, std::int64_t column) const;
  void add_dalibi(RowTile<Real>& tile, const Real* ds);
  void add_squares(RowTile<Real>& tile, const Real* ds);
  void add_dq(Keys<Real>& keys, RowTile<Real>& tile);
  enum class Product { dk, dv };
  void add_outer(const Keys<Real>& keys, KeyRange seen, RowTile<Real>* tiles, int count,
                 Product product, Real* out);
  void clear_beside(RowTile<Real>& tile, const Keys<Real>& keys, KeyRange seen) const;
  void fill_words(RowTile<Real>& tile, KeyRange seen) const;
  [[nodiscard]] bool rows_finite(typename RowTile<Real>::Finite& known, const Real* rows,
                                 std::int64_t size, int count) const;
  void add_to_slot(std::int64_t first_tile, Real* slot);
  void write_keys();
  [[nodiscard]] bool keys_finite(Keys<Real>& keys);

  const BackwardProblem& b_;
  const Problem& p_;
  const BackwardPlan<Real>& plan_;
  const kernels::Kernels<Real>& kernels_;
  const SharedScratch<Real>& shared_;
  BackwardScratch<Real> scratch_;
  ScoreTiles<Real> tiles_;
  RowTiles<Real> row_tiles_;
  Group group_{};
  KeyRange chunk_;
  KeyRange some_;  ///< what the loaded tiles may see of it
  int count_ = 0;  ///< tiles that are loaded
};

}  // namespace heed

// One task of the forward pass: some query rows against all keys of their KV head.
#pragma once

#include "attention/parts.h"
#include "attention/score_tiles.h"

namespace heed {

/// The fold over keys, in the order that fixes the bits (docs/numerics.md):
///
///     for each split of 768 keys, ascending
///       (m, l, o) = (-inf, 0, 0) for each tile
///       for each block of 96 keys of it, ascending (of 192, where products are of bfloat16)
///         for each tile: scores, softmax step, values: fold the block into (m, l, o)
///       merge (m, l, o) into the tile's run
///     merge the sink; output = o / l, lse = ln2 (m + log2 l)
///
/// Blocks that no row of a tile may see are neither read nor computed.
template <typename Real>
class Superblock {
 public:
  Superblock(const Problem& problem, const Plan<Real>& plan, std::byte* scratch);

  void run(std::int64_t task);

  /// The same in two steps: states of some splits of a task, each to its slot, and then their
  /// merge.
  void fold_part(const Parts& parts, std::int64_t part, Real* slots);
  void merge_parts(const Parts& parts, std::int64_t task, const Real* slots);

 private:
  /// Where a slot has the state of a tile: 1 if the split has folded a block, else 0; m, l, o.
  struct State {
    const Real* touched;
    const Real* m;
    const Real* l;
    const Real* o;
  };
  [[nodiscard]] static State state_at(const Parts& parts, const Real* slot, int tile) {
    const Real* const at = slot + tile * parts.tile;
    return {at, at + 1, at + 1 + parts.width, at + 1 + 2 * parts.width};
  }
  void fold_blocks(KeyRange split);
  void close_split(Tile<Real>& tile);
  void assign_tiles(const TaskRows& rows);
  void fold_split(KeyRange split);
  void fold_block(Tile<Real>& tile, Keys<Real>& keys);
  void weigh(Tile<Real>& tile, const ScoredBlock<Real>& block, const std::uint64_t* kept,
             Real* decay);
  void add_values(Tile<Real>& tile, const ScoredBlock<Real>& block, Keys<Real>& keys,
                  const Real* a);
  void add_few(Tile<Real>& tile, const ScoredBlock<Real>& block, Keys<Real>& keys, const Real* a);
  void merge_split(Tile<Real>& tile);
  void finish(Tile<Real>& tile);
  void observe(Tile<Real>& tile, const ScoredBlock<Real>& block);
  void write_statistics(const Tile<Real>& tile, const Real* keys_m, const Real* keys_l);
  void store_scores(Tile<Real>& tile, KeyRange range, const std::uint64_t* kept);
  void write_weights(Tile<Real>& tile, const Real* inverse);
  void fill_weights(const TileRows& rows, KeyRange range, Real number);
  [[nodiscard]] std::byte* weight_at(const TileRows& rows, int r, std::int64_t key) const;
  [[nodiscard]] bool values_finite(const TileRows& rows, Keys<Real>& keys) const;

  const Problem& p_;
  const Plan<Real>& plan_;
  const kernels::Kernels<Real>& kernels_;
  Scratch<Real> scratch_;
  ScoreTiles<Real> tiles_;
  int count_ = 0;  ///< tiles of this task
  KeyRange some_;  ///< what some tile of this task may see
};

}  // namespace heed

// Tiles of query rows and their scores against blocks of keys: what every pass over scores begins
// with.
#pragma once

#include "attention/plan.h"
#include "attention/score_order.h"

namespace heed {

/// K and V rows of a range of keys; found when a tile sees one of them.
template <typename Real>
struct Keys {
  KeyRange range;
  bool with_values = true;
  bool dense = true;  ///< k and v are wanted in any case, not only where a tile cannot do without
  bool found = false;
  PlacedRows k_rows = {},
             v_rows = {};   ///< where they can be read, or copies; null: there are none yet
  const Real* k = nullptr;  ///< rows of Real, in place or staged; null: not yet
  const Real* v = nullptr;  ///< likewise; where products are of bfloat16, pairs
  std::int64_t k_stride = 0, v_stride = 0;
  const Real* norm = nullptr;  ///< 1 / |k_j|, with normalize_qk
  enum class Finite { unknown, yes, no } finite = Finite::unknown;  ///< of v
};

/// One worker's tiles over the keys of one (batch entry, KV head).
template <typename Real>
class ScoreTiles {
 public:
  ScoreTiles(const Problem& problem, const Plan<Real>& plan, const Scratch<Real>& scratch)
      : p_(problem), plan_(plan), kernels_(*plan.kernels), scratch_(scratch) {}

  /// Rows first .. first + count - 1 of those that share the KV head, packed, with their constants.
  void assign(Tile<Real>& tile, std::int64_t b, std::int64_t kv_head, std::int64_t first,
              int count) const;

  /// Makes keys.v, or for tiles of few rows keys.v_rows.
  void load_values(const TileRows& rows, Keys<Real>& keys) const;
  void place_values(const TileRows& rows, Keys<Real>& keys) const;

  /// Scores of the tile against its part of the keys.
  void score(const Tile<Real>& tile, Keys<Real>& keys, ScoredBlock<Real>* block) const;

  /// use(block) for each block of keys that some row of the tile sees, ascending. For passes that
  /// come back to the scores and need no values.
  template <typename Use>
  void each_block(const Tile<Real>& tile, const Use& use) const {
    ScoredBlock<Real> block;
    for (std::int64_t first = tile.rows.some.begin / kernels::kBlockKeys * kernels::kBlockKeys;
         first < tile.rows.some.end; first += kernels::kBlockKeys) {
      Keys<Real> keys{.range = intersection({first, first + kernels::kBlockKeys}, tile.rows.some),
                      .with_values = false,
                      .dense = false};
      score(tile, keys, &block);
      if (!block.range.empty()) use(block);
    }
  }

 private:
  void load_queries(Tile<Real>& tile) const;
  void pack_queries(Tile<Real>& tile, const Real* const* rows, std::int64_t size) const;
  void load_constants(Tile<Real>& tile) const;
  void load_draws(Tile<Real>& tile) const;
  void find(const TileRows& rows, Keys<Real>& keys) const;
  void load_keys(const TileRows& rows, Keys<Real>& keys) const;
  void pair_keys(const TileRows& rows, Keys<Real>& keys) const;
  void pair_values(const TileRows& rows, Keys<Real>& keys) const;
  const Real* dense_rows(const TileRows& rows, KeyRange range, const View4& view,
                         const PlacedRows& placed, std::int64_t size, Real* copy,
                         std::int64_t* stride) const;

  const Problem& p_;
  const Plan<Real>& plan_;
  const kernels::Kernels<Real>& kernels_;
  const Scratch<Real>& scratch_;
};

}  // namespace heed

// Everything about a call that is decided once: kernels, tile and task sizes, scratch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/problem.h"
#include "attention/visibility.h"
#include "heed/runtime.h"
#include "kernels/bf16.h"
#include "kernels/conversions.h"
#include "kernels/kernels.h"

namespace heed {

/// Copies of K and V rows are shared by this many tiles at least, or not made for speed alone.
inline constexpr int kTilesWorthStaging = 4;

/// Rows whose distance in bytes is a multiple of this collide in a first-level cache.
inline constexpr std::int64_t kCollidingStride = 2048;

/// The query rows of a task: some of those that share a KV head of a batch entry.
struct TaskRows {
  std::int64_t batch, kv_head, begin, end;
};

/// The tasks of a batch entry, where entries differ.
struct EntryTasks {
  std::int64_t first_task, batch, row_blocks;
};

/// Sizes of tiles follow from the shape and the instruction set, those of tasks and scratch from
/// the number of workers too; no result depends on any of it.
template <typename Real>
struct Plan {
  const kernels::Kernels<Real>* kernels = nullptr;
  const kernels::Conversions* convert = nullptr;     ///< of rows of 16-bit elements
  const kernels::Bf16Kernels<Real>* bf16 = nullptr;  ///< where products are those of bfloat16
  int block_keys = kernels::kBlockKeys;              ///< that are folded at a time
  Isa isa = Isa::scalar;
  Real c = 0;                   ///< scale * log2(e), where there is one scale
  bool small = false;           ///< not worth a second worker
  int most_workers = 1;         ///< that are worth waking
  int workers = 1;              ///< of them, those that can get a task
  std::int64_t task_rows = 0;   ///< query rows of a task; a task has one KV head of one batch entry
  std::int64_t row_blocks = 0;  ///< tasks of one KV head, of the longest batch entry
  std::int64_t tasks = 0;
  std::vector<EntryTasks>
      entries;    ///< where batch entries differ: those with the longest tasks first
  int tiles = 0;  ///< tiles of a full task
  bool stage_q = false, stage_k = false, stage_v = false, stage_output = false,
       stage_weights = false;
  bool few = false;         ///< tiles of few rows have products of their own
  bool key_by_key = false;  ///< the scores of entries with one row are in DecodeOrder::key_by_key
  int tile_step = 0;        ///< rows of a tile: tile_rows(), or kFewRows where that is faster
  std::size_t scratch_bytes = 0;  ///< of one worker

  /// Rows that fill all vectors of a tile.
  [[nodiscard]] int tile_rows() const { return kernels->lanes * kernels->highest_vectors; }
  /// Tasks of one KV head follow each other, those with the most visible keys first under causal
  /// masks, so that work ends evenly.
  [[nodiscard]] TaskRows rows_of_task(const Problem& p, std::int64_t task) const;
};

/// What bfloat16 is multiplied with: as float32 in any case, or where the CPU has dot products of
/// bfloat16 with those. The choice follows from type, options and instruction set, never from
/// sizes.
enum class Products { wide, native };

/// `workers`: that there are; a call with little work leaves them asleep.
template <typename Real>
[[nodiscard]] Plan<Real> make_plan(const Problem& p, int workers,
                                   Products products = Products::wide,
                                   DecodeOrder order = DecodeOrder::of_prefill);

/// What statistics of a tile's rows are made of.
template <typename Real>
struct Counted {
  static constexpr int kRows = kernels::kMaxTileRows;

  kernels::RowSums<Real> sums, run_sums;    ///< of the split, and of all splits before
  std::int64_t key[kRows], run_key[kRows];  ///< of the largest score, as m and run_m go
  std::int64_t visible[kRows];              ///< keys that the row may see
};

/// One tile of queries: its rows, their constants and their state.
template <typename Real>
struct Tile {
  static constexpr int kRows = kernels::kMaxTileRows;

  TileRows rows;
  int vectors = 0;
  bool few = false;         ///< has at most kFewRows rows, and products of its own
  bool key_by_key = false;  ///< scores in DecodeOrder::key_by_key; q is a row, not packed
  std::int64_t position[kRows];
  Real c[kRows];                     ///< scale * log2(e)
  Real slope[kRows];                 ///< ALiBi, base 2
  Real sink[kRows];                  ///< base 2
  kernels::Draws draws;              ///< with dropout
  Real norm[kRows];                  ///< 1 / |q_i|, with normalize_qk
  Real m[kRows], l[kRows];           ///< of the split
  Real run_m[kRows], run_l[kRows];   ///< of all splits before
  bool touched = false;              ///< the split has folded a block into (m, l, o)
  bool run_touched = false;          ///< some split before has
  std::int64_t stored = 0;           ///< keys whose scores lie where weights will be
  Counted<Real>* counted = nullptr;  ///< where statistics are asked for
  Real* q = nullptr;                 ///< [D][width]; of pairs: [(D + 1) / 2][width]
  Real* o = nullptr;                 ///< [Dv][width], of the split
  Real* rows_o = nullptr;            ///< where `few`, in place of o: [kFewRows][Dv]
  Real* run_o = nullptr;             ///< [Dv][width]
};

/// A worker's memory, carved from one allocation.
template <typename Real>
struct Scratch {
  Tile<Real>* tiles;
  Real* s;           ///< scores, then weights: [block keys][width]
  Real* b;           ///< bias of the tile or scores that are kept, [block keys][width]
  Real* k;           ///< staged keys, [block keys][D]; of pairs: [(D + 1) / 2]
  Real* v;           ///< staged values, [block keys][Dv]; of pairs of keys: [block keys / 2][Dv]
  Real* rows;        ///< staged rows of q, bias, output or weights: [kMaxTileRows][longest]
  Real* packed_k;    ///< keys with keys in lanes, for their norms: [D][width]
  Real* key_norm;    ///< 1 / |k_j| of a block
  Real* capped;      ///< scores after softcap, and before score_mod in natural units: where not
  Real* unmodified;  ///< null, they are left here as in s, for the backward pass
  std::int64_t row_length;  ///< elements of one staged row
  std::size_t bytes;        ///< of it all
};

/// The scratch laid out from `base` on; with base = null only its size is of use.
template <typename Real>
[[nodiscard]] Scratch<Real> carve(const Problem& p, const Plan<Real>& plan, std::byte* base);

}  // namespace heed

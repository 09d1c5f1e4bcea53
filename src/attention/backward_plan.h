// Everything about a backward call that is decided once: who does what, and in which memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/backward_problem.h"
#include "attention/plan.h"
#include "attention/score_order.h"

namespace heed {

/// Query rows whose products with P and dS form one chain of dK and dV; fixed, since it decides
/// bits. Instruction sets with narrower tiles take several.
inline constexpr std::int64_t kChainRows = kernels::kMaxTileRows;

/// One (batch entry, KV head).
struct Group {
  std::int64_t batch, kv_head;
};

/// Keys come in chunks of kSplitKeys. A chunk owns the gradients of its keys and sums them over all
/// rows; what its keys give to dQ goes to a slot, and the slots of a KV head are added up chunk by
/// chunk. So bits depend on the shape only, whether one task takes all chunks of a KV head or each
/// chunk is a task of its own.
template <typename Real>
struct BackwardPlan {
  Plan<Real> scores;          ///< of the same call forward: kernels, constants, staging
  std::int64_t padded_d = 0;  ///< D and Dv in whole vectors, for rows with columns in lanes
  std::int64_t padded_dv = 0;
  int chain_tiles = 0;           ///< tiles of kChainRows rows
  int tiles = 0;                 ///< of the rows that share a visit to a block of keys
  std::int64_t group_tiles = 0;  ///< of all rows of a KV head, of the longest batch entry
  std::int64_t tile_slot = 0;    ///< elements of a tile's slot: dQ, and the sums that rows have
  std::int64_t alibi_sums = -1;  ///< where they begin, in tiles' rows of width; -1: there are none
  std::int64_t norm_sums = -1;   ///< likewise, the sums of squares for ds_norms
  std::int64_t chunks = 0;       ///< of the keys, likewise

  // Where batch entries differ, those with the most work come first, and chunks are tasks for the
  // first `heavy` families only: others would be done long before.
  std::vector<std::int64_t> order;  ///< batch entries; empty: as they are
  std::vector<std::int64_t>
      tiles_before;  ///< of rows, in the slots before an entry's in this order

  // dbias that is summed over batch entries or KV heads belongs to no single one: those that share
  // it take turns. `families` of KV heads share nothing; the `members` of each come one after
  // another.
  std::int64_t families = 0, members = 0;
  std::int64_t heavy =
      0;  ///< families whose chunks are tasks; else all chunks of a KV head are one
  std::int64_t slot_tiles = 0;  ///< of a chunk of each of them
  std::int64_t wave = 0;        ///< chunks that have slots at the same time, where they are tasks
  int workers = 1;
  bool small = false;
  std::size_t scratch_bytes = 0;  ///< of one worker

  [[nodiscard]] int tile_rows() const { return scores.tile_rows(); }
  /// The group of a family's member.
  [[nodiscard]] Group group_of(const BackwardProblem& p, std::int64_t family,
                               std::int64_t member) const;
  /// Tiles of rows that the slots of the families before have.
  [[nodiscard]] std::int64_t slot_of(const BackwardProblem& p, std::int64_t family) const;
  /// Tiles of all rows of a KV head of a batch entry, and the chunks of its keys.
  [[nodiscard]] std::int64_t tiles_of(const Problem& p, std::int64_t b) const {
    return (p.rows_of(b) + tile_rows() - 1) / tile_rows();
  }
  [[nodiscard]] static std::int64_t chunks_of(const Problem& p, std::int64_t b) {
    return (p.keys_of(b) + kernels::kSplitKeys - 1) / kernels::kSplitKeys;
  }
};

template <typename Real>
[[nodiscard]] BackwardPlan<Real> make_backward_plan(const BackwardProblem& p, int workers);

/// One tile of query rows with all that its gradients take.
template <typename Real>
struct RowTile {
  static constexpr int kRows = kernels::kMaxTileRows;

  Tile<Real> tile;
  ScoredBlock<Real> block;  ///< the keys at hand
  Real minus_lse[kRows];    ///< -inf for a row without keys, so that its weights are 0
  Real d[kRows];            ///< D_i
  Real* d_output;           ///< packed, [Dv][width]
  Real* dq;             ///< [D][width], then [width] for each sum: what the chunk has given so far
  Real* q_rows;         ///< scale * q (of length 1 with normalize_qk), [row][padded D]
  Real* d_output_rows;  ///< [row][padded Dv]
  Real* s;              ///< [kBlockKeys][width]: scores, then weights
  Real* ds;             ///< [kBlockKeys][width]: dP, then dS
  bool active;          ///< sees some key of the chunk
  bool touched;         ///< dq holds something
  enum class Finite { unknown, yes, no } finite_q, finite_d_output;
  kernels::VisibleWords visible;  ///< for keys that the tiles of a chain share
};

/// A worker's memory.
template <typename Real>
struct BackwardScratch {
  Scratch<Real> scores;
  RowTile<Real>* tiles;
  Real* slot;      ///< of a whole KV head, where chunks are no tasks
  Real* dk;        ///< [kSplitKeys][padded D]
  Real* dv;        ///< [kSplitKeys][padded Dv]
  Real* packed_o;  ///< [Dv][width]
  std::size_t bytes;
};

template <typename Real>
[[nodiscard]] BackwardScratch<Real> carve_backward(const BackwardProblem& p,
                                                   const BackwardPlan<Real>& plan, std::byte* base);

/// Memory that all workers share.
template <typename Real>
struct SharedScratch {
  Real* slots;  ///< [wave][family], where chunks are tasks
  Real* runs;   ///< [family]: the sum of the waves before
  Real* scale_rows;
  Real* alibi_rows;
  Real* sink_rows;  ///< [B, H, Tq] each: what each row gives to the gradient
  double* dbias;    ///< of dbias' shape, where it is a sum
  std::array<std::int64_t, 4> dbias_stride;
  std::int64_t dbias_count;
  std::size_t bytes;
};

template <typename Real>
[[nodiscard]] SharedScratch<Real> carve_shared(const BackwardProblem& p,
                                               const BackwardPlan<Real>& plan, std::byte* base);

}  // namespace heed

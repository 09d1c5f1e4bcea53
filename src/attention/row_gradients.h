// What each query row gives: its dQ, and its part of the gradients of scale, slopes and sinks.
#pragma once

#include "attention/backward_plan.h"
#include "attention/score_tiles.h"

namespace heed {

/// One worker's passes over tiles of rows whose slots are complete.
template <typename Real>
class RowGradients {
 public:
  RowGradients(const BackwardProblem& problem, const BackwardPlan<Real>& plan,
               const SharedScratch<Real>& shared, const BackwardScratch<Real>& scratch);

  /// dq and ds_norms of a tile of the group's rows from its slot, which is spent; numbers of rows
  /// into shared memory.
  void finish(Group group, std::int64_t tile, Real* slot);

 private:
  void write_dq(RowTile<Real>& tile, Real* slot);
  void write_norms(const TileRows& rows, const Real* squares) const;
  void write_sink_rows(RowTile<Real>& tile);

  const BackwardProblem& b_;
  const Problem& p_;
  const BackwardPlan<Real>& plan_;
  const kernels::Kernels<Real>& kernels_;
  const SharedScratch<Real>& shared_;
  BackwardScratch<Real> scratch_;
  ScoreTiles<Real> tiles_;
};

/// dscale, dalibi and dsinks from what the rows gave, and dbias where it is a sum.
template <typename Real>
void write_sums(const BackwardProblem& p, const SharedScratch<Real>& shared);

/// dbias, or the sums it will come from, = 0.
template <typename Real>
void clear_dbias(const BackwardProblem& p, const SharedScratch<Real>& shared);

}  // namespace heed

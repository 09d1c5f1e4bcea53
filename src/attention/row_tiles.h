// Tiles of query rows with what their gradients take: D, lse, and rows of dO and q.
#pragma once

#include "attention/backward_plan.h"
#include "attention/score_tiles.h"

namespace heed {

/// One worker's way of filling them.
template <typename Real>
class RowTiles {
 public:
  RowTiles(const BackwardProblem& problem, const BackwardPlan<Real>& plan,
           const BackwardScratch<Real>& scratch, const ScoreTiles<Real>& tiles)
      : b_(problem),
        p_(problem.forward),
        plan_(plan),
        kernels_(*plan.scores.kernels),
        scratch_(scratch),
        tiles_(tiles) {}

  /// Rows first .. first + count - 1 of the group against a chunk of keys; returns what of it they
  /// may see. A tile that sees none of it is not active, and holds nothing.
  KeyRange assign(RowTile<Real>& tile, Group group, std::int64_t first, int count,
                  KeyRange chunk) const;

 private:
  void load_row(RowTile<Real>& tile, int r) const;
  void load_numbers(RowTile<Real>& tile) const;

  const BackwardProblem& b_;
  const Problem& p_;
  const BackwardPlan<Real>& plan_;
  const kernels::Kernels<Real>& kernels_;
  const BackwardScratch<Real>& scratch_;
  const ScoreTiles<Real>& tiles_;
};

/// f[r] = a_r . b_r, and 0 where b_r is a row of zeros: it meets no NaN of a row that gives
/// nothing.
template <typename Real>
void dots_of_rows(const kernels::Kernels<Real>& kernels, const Real* a, const Real* b,
                  std::int64_t size, int vectors, Real* f);

/// The scale of query head h.
template <typename Real>
[[nodiscard]] Real scale_of(const Problem& p, std::int64_t h);

}  // namespace heed

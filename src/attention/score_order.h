// The one order of what happens to a score, from product to mask.
#pragma once

#include "attention/plan.h"

namespace heed {

/// Computes the scores of a tile against the keys of a range, in base 2, into scratch.s:
///
///     t = c * (q . k)  [ * 1/|k| ],  softcap,  ALiBi,  + bias,  score_mod,  -inf where masked
///
/// `k` points to the row of key range.begin. What `visible` says on entry (sight) is narrowed by a
/// bias or score_mod of -inf. Returns what is visible in the end;
/// highest[r] is the largest score of row r.
template <typename Real>
Sight ordered_scores(const Problem& p, const Plan<Real>& plan, const Scratch<Real>& scratch,
                     const Tile<Real>& tile, KeyRange range, const Real* k, std::int64_t k_stride,
                     const Real* key_norm, const kernels::Ahead<Real>& ahead, Sight sight,
                     std::uint64_t* visible, Real* highest);

}  // namespace heed

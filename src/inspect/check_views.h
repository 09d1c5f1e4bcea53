// What is asked of the weights, checked and resolved.
#pragma once

#include "attention/check.h"
#include "heed/inspect.h"

namespace heed::inspect {

/// Half-open range of rows or keys that a cell of a map holds.
struct CellRange {
  std::int64_t begin = 0, end = 0;
};

/// Cells along one axis of a map: index i lies in cell floor(i * cells / count).
struct Cells {
  std::int64_t count = 0;  ///< rows or keys
  std::int64_t cells = 0;

  [[nodiscard]] std::int64_t of(std::int64_t i) const {
    return static_cast<std::int64_t>(static_cast<__int128>(i) * cells / count);
  }
  [[nodiscard]] CellRange range(std::int64_t cell) const { return {first(cell), first(cell + 1)}; }

 private:
  [[nodiscard]] std::int64_t first(std::int64_t cell) const {
    return static_cast<std::int64_t>((static_cast<__int128>(cell) * count + cells - 1) / cells);
  }
};

/// WeightViews with nothing left to decide; an absent view is not `present`.
struct Wanted {
  View4 lse;
  View4 rows, row_weights, row_scores;  ///< rows: along axis 2
  View4 top_keys, top_weights, top_mass;
  View4 column_sums, mean_map, lift_map, distance_mass, score_histogram;
  std::int64_t row_count = 0;  ///< chosen rows
  std::int64_t top = 0;        ///< K
  Cells row_cells, key_cells;
  std::int64_t distances = 0;
  std::int64_t bins = 0;
  double score_low = 0, score_high = 0;

  [[nodiscard]] bool maps() const { return mean_map.present || lift_map.present; }
  [[nodiscard]] bool largest() const {
    return top_keys.present || top_weights.present || top_mass.present;
  }
  /// Something of every row, or of all rows together.
  [[nodiscard]] bool all_rows() const {
    return largest() || column_sums.present || maps() || distance_mass.present ||
           score_histogram.present;
  }
};

/// Checks a call of inspect_weights; throws heed::Error in its name. Fills in the problem.
[[nodiscard]] Wanted check_views(const Attended& attended, const WeightViews& views,
                                 const AttentionOptions& options, Problem* problem);

}  // namespace heed::inspect

// What weights add up to, over the rows of one head.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/score_tiles.h"
#include "inspect/check_views.h"

namespace heed::inspect {

/// Sums over some rows of a head, in the order of rows; as one array of doubles, so that those of
/// several slabs of rows add up element by element. Null: not wanted.
struct Sums {
  double* columns = nullptr;     ///< [Tk]
  double* cell_mass = nullptr;   ///< [R * C] sum of p
  double* cell_lift = nullptr;   ///< [R * C] sum of (visible keys of the row) * p
  double* cell_pairs = nullptr;  ///< [R * C] visible pairs
  double* distances = nullptr;   ///< [N]
  double* histogram = nullptr;   ///< [bins + 2]
};

/// How many doubles the sums take.
[[nodiscard]] std::size_t sums_size(const Wanted& wanted, const Problem& p);

/// The sums, laid out from `base` on.
[[nodiscard]] Sums sums_at(const Wanted& wanted, const Problem& p, double* base);

/// Writes the results of head (b, h).
void write_sums(const Wanted& wanted, const Problem& p, std::int64_t b, std::int64_t h,
                const Sums& sums);

/// What is gathered of the rows of one tile while its blocks go by; numbers per row first, so that
/// sums over rows do not depend on how wide a tile is.
struct RowBuffers {
  double* mass = nullptr;            ///< [rows][C] sum of p
  double* pairs = nullptr;           ///< [rows][C] visible keys
  double* visible = nullptr;         ///< [rows]
  std::int64_t* top_keys = nullptr;  ///< [rows][K]
  double* top_weights = nullptr;     ///< [rows][K]
};

/// Bytes of the buffers for `rows` rows.
[[nodiscard]] std::size_t row_buffers_size(const Wanted& wanted, std::int64_t rows);
[[nodiscard]] RowBuffers row_buffers_at(const Wanted& wanted, std::int64_t rows, std::byte* base);

/// Follows the tiles of a head.
template <typename Real>
class Gatherer {
 public:
  Gatherer(const Problem& p, const Wanted& wanted, const Sums& sums, const RowBuffers& rows)
      : p_(p), wanted_(wanted), sums_(sums), rows_(rows) {}

  void begin(int rows);
  /// The block's scores, base 2, [key][row], `width` rows apart.
  void scores(const Tile<Real>& tile, const ScoredBlock<Real>& block, const Real* s, int width);
  /// The block's weights, likewise.
  void weights(const Tile<Real>& tile, const ScoredBlock<Real>& block, const Real* p, int width);
  void end(const Tile<Real>& tile);

 private:
  void add_row_cells(const Tile<Real>& tile, const ScoredBlock<Real>& block, const Real* p,
                     int width);
  void add_distances(const Tile<Real>& tile, const ScoredBlock<Real>& block, const Real* p,
                     int width);
  void insert_top(const Tile<Real>& tile, const ScoredBlock<Real>& block, const Real* p, int width);

  const Problem& p_;
  const Wanted& wanted_;
  Sums sums_;
  RowBuffers rows_;
};

}  // namespace heed::inspect

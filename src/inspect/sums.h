// What weights add up to, over the rows of one head.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "attention/score_tiles.h"
#include "inspect/check_views.h"

namespace heed::inspect {

/// Sums over some rows of a head, a slab. Null: not wanted. Of the maps a slab has only those rows
/// of cells that its own rows lie in; neighbours may share one, and all slabs of a head together
/// take little more than one map.
struct Sums {
  double* columns = nullptr;    ///< [Tk]
  double* distances = nullptr;  ///< [N]
  double* histogram = nullptr;  ///< [bins + 2]
  double* cell_mass = nullptr;  ///< [map_rows * C] sum of p; for the mean
  double* cell_lift =
      nullptr;  ///< [map_rows * C] sum of (visible keys of the row) * p; for the lift
  double* cell_pairs = nullptr;  ///< [map_rows * C] visible pairs; for the lift
  CellRange map_rows{};          ///< rows of cells that the slab's rows lie in
};

/// Rows of a head are summed in at most so many slabs, added up in their order: a number that
/// follows from nothing but the head's rows, so that sums are the same for any number of threads,
/// and enough for a few of them to share a head.
inline constexpr std::int64_t kSlabs = 8;

/// The slabs of a head, one after the other: which rows each holds, and where its sums are.
class Slabs {
 public:
  /// For a problem with `rows` query rows in a slab.
  Slabs(const Wanted& wanted, const Problem& p, std::int64_t rows);

  [[nodiscard]] std::int64_t count() const { return count_; }
  /// Doubles that the sums of a head take.
  [[nodiscard]] std::size_t size() const { return size_; }
  /// The sums of a slab of a head whose sums begin at `base`.
  [[nodiscard]] Sums at(std::int64_t slab, double* base) const;
  /// Adds up the slabs in their order, and writes the results of head (b, h).
  void write(std::int64_t b, std::int64_t h, double* base) const;

 private:
  [[nodiscard]] Sums lay_out(std::int64_t slab, double* base, std::size_t* used) const;
  void write_maps(std::int64_t b, std::int64_t h, const std::array<Sums, kSlabs>& parts) const;

  const Wanted& wanted_;
  const Problem& p_;
  std::int64_t rows_, count_;
  std::array<std::size_t, kSlabs> begins_{};  ///< of each slab's sums
  std::size_t size_ = 0;
};

/// What is gathered of the rows of one tile while its blocks go by; numbers per row first, so that
/// sums over rows do not depend on how wide a tile is.
struct RowBuffers {
  double* mass = nullptr;            ///< [rows][C] sum of p
  double* pairs = nullptr;           ///< [rows][C] visible keys
  double* visible = nullptr;         ///< [rows]
  double* beyond = nullptr;          ///< [rows][2] mass of the outermost distances
  double* edges = nullptr;           ///< [bins + 1] of the histogram, base 2: of every row
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
  Gatherer(const Problem& p, const Wanted& wanted, const Sums& sums, const RowBuffers& rows);

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

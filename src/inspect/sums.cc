// What weights add up to, over the rows of one head.
#include "inspect/sums.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/element.h"

namespace heed::inspect {
namespace {

void store(const View4& view, double number, std::int64_t b, std::int64_t h, std::int64_t i,
           std::int64_t j = 0) {
  if (view.dtype == DType::f32) {
    const auto narrow = static_cast<float>(number);
    std::memcpy(view.at(b, h, i, j), &narrow, sizeof narrow);
  } else {
    std::memcpy(view.at(b, h, i, j), &number, sizeof number);
  }
}

void store(const View4& view, std::int64_t number, std::int64_t b, std::int64_t h, std::int64_t i,
           std::int64_t j = 0) {
  std::memcpy(view.at(b, h, i, j), &number, sizeof number);
}

template <typename Real>
bool sees(const ScoredBlock<Real>& block, int key, int row) {
  return block.sight == Sight::all || (block.visible[key] >> row & 1) != 0;
}

/// Arrays that follow each other, each `count` elements where it is wanted.
template <typename T>
class Layout {
 public:
  explicit Layout(T* base) : base_(base) {}
  T* take(bool wanted, std::int64_t count) {
    if (!wanted) return nullptr;
    T* const at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += static_cast<std::size_t>(count);
    return at;
  }
  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  T* base_;
  std::size_t used_ = 0;
};

RowBuffers lay_out(const Wanted& wanted, std::int64_t rows, std::byte* base, std::size_t* bytes) {
  static_assert(sizeof(double) == sizeof(std::int64_t));
  Layout<double> layout(reinterpret_cast<double*>(base));
  RowBuffers buffers;
  buffers.mass = layout.take(wanted.maps(), rows * wanted.key_cells.cells);
  buffers.pairs = layout.take(wanted.lift_map.present, rows * wanted.key_cells.cells);
  buffers.visible = layout.take(wanted.lift_map.present, rows);
  buffers.beyond = layout.take(wanted.distance_mass.present, rows * 2);
  buffers.edges = layout.take(wanted.score_histogram.present, wanted.bins + 1);
  buffers.top_weights = layout.take(wanted.largest(), rows * wanted.top);
  buffers.top_keys =
      reinterpret_cast<std::int64_t*>(layout.take(wanted.largest(), rows * wanted.top));
  *bytes = layout.used() * sizeof(double);
  return buffers;
}

}  // namespace

Slabs::Slabs(const Wanted& wanted, const Problem& p, std::int64_t rows)
    : wanted_(wanted), p_(p), rows_(rows), count_((p.queries + rows - 1) / rows) {
  for (std::int64_t slab = 0; slab < count_; ++slab) {
    begins_[static_cast<std::size_t>(slab)] = size_;
    std::size_t used = 0;
    (void)lay_out(slab, nullptr, &used);
    size_ += used;
  }
}

Sums Slabs::lay_out(std::int64_t slab, double* base, std::size_t* used) const {
  Layout<double> layout(base);
  Sums sums;
  if (wanted_.maps()) {
    const std::int64_t last = std::min((slab + 1) * rows_, p_.queries) - 1;
    sums.map_rows = {wanted_.row_cells.of(slab * rows_), wanted_.row_cells.of(last) + 1};
  }
  const std::int64_t cells = (sums.map_rows.end - sums.map_rows.begin) * wanted_.key_cells.cells;
  sums.columns = layout.take(wanted_.column_sums.present, p_.keys);
  sums.distances = layout.take(wanted_.distance_mass.present, wanted_.distances);
  sums.histogram = layout.take(wanted_.score_histogram.present, wanted_.bins + 2);
  sums.cell_mass = layout.take(wanted_.mean_map.present, cells);
  sums.cell_lift = layout.take(wanted_.lift_map.present, cells);
  sums.cell_pairs = layout.take(wanted_.lift_map.present, cells);
  *used = layout.used();
  return sums;
}

Sums Slabs::at(std::int64_t slab, double* base) const {
  std::size_t used = 0;
  return lay_out(slab, base + begins_[static_cast<std::size_t>(slab)], &used);
}

void Slabs::write(std::int64_t b, std::int64_t h, double* base) const {
  std::array<Sums, kSlabs> parts{};
  const auto count = static_cast<std::size_t>(count_);
  for (std::size_t n = 0; n < count; ++n) parts[n] = at(static_cast<std::int64_t>(n), base);
  const auto total = [&](double* Sums::*numbers, std::int64_t i) {
    double sum = 0;
    for (std::size_t n = 0; n < count; ++n) sum += (parts[n].*numbers)[i];
    return sum;
  };
  for (std::int64_t j = 0; wanted_.column_sums.present && j < p_.keys; ++j) {
    store(wanted_.column_sums, total(&Sums::columns, j), b, h, j);
  }
  for (std::int64_t d = 0; wanted_.distance_mass.present && d < wanted_.distances; ++d) {
    store(wanted_.distance_mass, total(&Sums::distances, d), b, h, d);
  }
  for (std::int64_t n = 0; wanted_.score_histogram.present && n < wanted_.bins + 2; ++n) {
    store(wanted_.score_histogram, static_cast<std::int64_t>(total(&Sums::histogram, n)), b, h, n);
  }
  if (wanted_.maps()) write_maps(b, h, parts);
}

void Slabs::write_maps(std::int64_t b, std::int64_t h,
                       const std::array<Sums, kSlabs>& parts) const {
  const std::int64_t columns = wanted_.key_cells.cells;
  for (std::int64_t r = 0; r < wanted_.row_cells.cells; ++r) {
    const CellRange rows = wanted_.row_cells.range(r);
    const std::int64_t first = rows.begin / rows_;
    const std::int64_t last = (rows.end - 1) / rows_;
    for (std::int64_t c = 0; c < columns; ++c) {
      double mass = 0;
      double lift = 0;
      double seen = 0;
      for (std::int64_t slab = first; slab <= last; ++slab) {
        const Sums& sums = parts[static_cast<std::size_t>(slab)];
        const std::int64_t cell = (r - sums.map_rows.begin) * columns + c;
        if (sums.cell_mass != nullptr) mass += sums.cell_mass[cell];
        if (sums.cell_lift != nullptr) lift += sums.cell_lift[cell];
        if (sums.cell_pairs != nullptr) seen += sums.cell_pairs[cell];
      }
      const CellRange keys = wanted_.key_cells.range(c);
      const double pairs =
          static_cast<double>(rows.end - rows.begin) * static_cast<double>(keys.end - keys.begin);
      if (wanted_.mean_map.present) store(wanted_.mean_map, mass / pairs, b, h, r, c);
      if (!wanted_.lift_map.present) continue;
      const double none = std::numeric_limits<double>::quiet_NaN();
      store(wanted_.lift_map, seen == 0 ? none : std::log2(lift / seen), b, h, r, c);
    }
  }
}

std::size_t row_buffers_size(const Wanted& wanted, std::int64_t rows) {
  std::size_t bytes = 0;
  lay_out(wanted, rows, nullptr, &bytes);
  return bytes;
}

RowBuffers row_buffers_at(const Wanted& wanted, std::int64_t rows, std::byte* base) {
  std::size_t bytes = 0;
  return lay_out(wanted, rows, base, &bytes);
}

template <typename Real>
Gatherer<Real>::Gatherer(const Problem& p, const Wanted& wanted, const Sums& sums,
                         const RowBuffers& rows)
    : p_(p), wanted_(wanted), sums_(sums), rows_(rows) {
  if (sums_.histogram == nullptr) return;
  // An edge goes to base 2 as a score does: a score that is the edge has its bits.
  const double width = (wanted_.score_high - wanted_.score_low) / static_cast<double>(wanted_.bins);
  for (std::int64_t n = 0; n <= wanted_.bins; ++n) {
    const double edge =
        n == wanted_.bins ? wanted_.score_high : wanted_.score_low + static_cast<double>(n) * width;
    const Real base2 = static_cast<Real>(edge) * kernels::kLog2e<Real>;
    // -inf is below all of them
    rows_.edges[n] = static_cast<double>(std::max(base2, std::numeric_limits<Real>::lowest()));
  }
}

template <typename Real>
void Gatherer<Real>::begin(int rows) {
  if (wanted_.maps()) {
    std::fill_n(rows_.mass, rows * wanted_.key_cells.cells, 0.0);
  }
  if (wanted_.lift_map.present) {
    std::fill_n(rows_.pairs, rows * wanted_.key_cells.cells, 0.0);
    std::fill_n(rows_.visible, rows, 0.0);
  }
  if (sums_.distances != nullptr) std::fill_n(rows_.beyond, rows * 2, 0.0);
  if (wanted_.largest()) {
    std::fill_n(rows_.top_weights, rows * wanted_.top, 0.0);
    std::fill_n(rows_.top_keys, rows * wanted_.top, std::int64_t{-1});
  }
}

template <typename Real>
void Gatherer<Real>::scores(const Tile<Real>& tile, const ScoredBlock<Real>& block, const Real* s,
                            int width) {
  if (sums_.histogram == nullptr) return;
  const double* const edges = rows_.edges;
  const std::int64_t last = wanted_.bins - 1;
  const double bins_per_unit = static_cast<double>(wanted_.bins) * kernels::kLn2<double> /
                               (wanted_.score_high - wanted_.score_low);
  const auto bin_of = [&](double score) -> std::int64_t {
    if (score < edges[0]) return 0;
    if (score >= edges[wanted_.bins]) return wanted_.bins + 1;
    const double guess = std::min((score - edges[0]) * bins_per_unit, static_cast<double>(last));
    const auto bin = static_cast<std::int64_t>(guess);
    if (score >= edges[bin] && score < edges[bin + 1]) return 1 + bin;
    return std::upper_bound(edges + 1, edges + wanted_.bins, score) - edges;
  };
  const TileRows& rows = tile.rows;
  for (int r = 0; r < rows.count; ++r) {
    if (std::isnan(load<Real>(wanted_.lse.at(rows.batch, rows.head[r], rows.query[r])))) continue;
    for (int j = 0; j < block.keys(); ++j) {
      if (!sees(block, j, r)) continue;
      const auto score = static_cast<double>(s[j * width + r]);
      if (std::isnan(score)) continue;
      sums_.histogram[bin_of(score)] += 1;
    }
  }
}

template <typename Real>
void Gatherer<Real>::weights(const Tile<Real>& tile, const ScoredBlock<Real>& block, const Real* p,
                             int width) {
  if (sums_.columns != nullptr) {
    for (int j = 0; j < block.keys(); ++j) {
      double sum = sums_.columns[block.range.begin + j];
      for (int r = 0; r < tile.rows.count; ++r) sum += static_cast<double>(p[j * width + r]);
      sums_.columns[block.range.begin + j] = sum;
    }
  }
  if (wanted_.maps()) add_row_cells(tile, block, p, width);
  if (sums_.distances != nullptr) add_distances(tile, block, p, width);
  if (wanted_.largest()) insert_top(tile, block, p, width);
}

template <typename Real>
void Gatherer<Real>::add_row_cells(const Tile<Real>& tile, const ScoredBlock<Real>& block,
                                   const Real* p, int width) {
  const std::int64_t cells = wanted_.key_cells.cells;
  for (int j = 0; j < block.keys(); ++j) {
    const std::int64_t cell = wanted_.key_cells.of(block.range.begin + j);
    for (int r = 0; r < tile.rows.count; ++r) {
      rows_.mass[r * cells + cell] += static_cast<double>(p[j * width + r]);
      if (!wanted_.lift_map.present) continue;
      const double seen = sees(block, j, r) ? 1 : 0;
      rows_.pairs[r * cells + cell] += seen;
      rows_.visible[r] += seen;
    }
  }
}

/// A row has one key at each distance, a later row a later one, so that blocks add these up in the
/// order of rows. Of the outermost two, which hold what lies beyond, it has many: `beyond`.
template <typename Real>
void Gatherer<Real>::add_distances(const Tile<Real>& tile, const ScoredBlock<Real>& block,
                                   const Real* p, int width) {
  const std::int64_t half = wanted_.distances / 2;
  for (int r = 0; r < tile.rows.count; ++r) {
    const __int128 position = position_of(p_, tile.rows.batch, tile.rows.query[r]);
    for (int j = 0; j < block.keys(); ++j) {
      const __int128 apart = block.range.begin + j - position;
      const bool is_outermost = apart <= -half || apart >= half;
      double& sum = is_outermost ? rows_.beyond[r * 2 + (apart > 0 ? 1 : 0)]
                                 : sums_.distances[half + static_cast<std::int64_t>(apart)];
      sum += static_cast<double>(p[j * width + r]);
    }
  }
}

template <typename Real>
void Gatherer<Real>::insert_top(const Tile<Real>& tile, const ScoredBlock<Real>& block,
                                const Real* p, int width) {
  for (int r = 0; r < tile.rows.count; ++r) {
    double* const weights = rows_.top_weights + r * wanted_.top;
    std::int64_t* const keys = rows_.top_keys + r * wanted_.top;
    for (int j = 0; j < block.keys(); ++j) {
      const auto weight = static_cast<double>(p[j * width + r]);
      if (!(weight > weights[wanted_.top - 1])) continue;  // an equal one has the lower key
      std::int64_t at = wanted_.top - 1;
      for (; at > 0 && weight > weights[at - 1]; --at) {
        weights[at] = weights[at - 1];
        keys[at] = keys[at - 1];
      }
      weights[at] = weight;
      keys[at] = block.range.begin + j;
    }
  }
}

template <typename Real>
void Gatherer<Real>::end(const Tile<Real>& tile) {
  const TileRows& rows = tile.rows;
  const std::int64_t cells = wanted_.key_cells.cells;
  for (int r = 0; r < rows.count; ++r) {
    for (std::int64_t c = 0; wanted_.maps() && c < cells; ++c) {
      const std::int64_t row = wanted_.row_cells.of(rows.query[r]) - sums_.map_rows.begin;
      const std::int64_t cell = row * cells + c;
      const double mass = rows_.mass[r * cells + c];
      if (sums_.cell_mass != nullptr) sums_.cell_mass[cell] += mass;
      if (sums_.cell_lift == nullptr) continue;
      sums_.cell_lift[cell] += rows_.visible[r] * mass;
      sums_.cell_pairs[cell] += rows_.pairs[r * cells + c];
    }
    if (sums_.distances != nullptr) {
      const int pair = r * 2;
      sums_.distances[0] += rows_.beyond[pair];
      sums_.distances[wanted_.distances - 1] += rows_.beyond[pair + 1];
    }
    double covered = 0;
    for (std::int64_t n = 0; wanted_.largest() && n < wanted_.top; ++n) {
      const double weight = rows_.top_weights[r * wanted_.top + n];
      covered += weight;
      if (wanted_.top_weights.present) {
        store(wanted_.top_weights, weight, rows.batch, rows.head[r], rows.query[r], n);
      }
      if (wanted_.top_keys.present) {
        store(wanted_.top_keys, rows_.top_keys[r * wanted_.top + n], rows.batch, rows.head[r],
              rows.query[r], n);
      }
    }
    if (wanted_.top_mass.present) {
      store(wanted_.top_mass, covered, rows.batch, rows.head[r], rows.query[r]);
    }
  }
}

template class Gatherer<float>;
template class Gatherer<double>;

}  // namespace heed::inspect

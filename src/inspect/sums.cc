// What weights add up to, over the rows of one head.
#include "inspect/sums.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/element.h"

namespace heed::inspect {
namespace {

std::int64_t cells_of(const Wanted& wanted) {
  return wanted.row_cells.cells * wanted.key_cells.cells;
}

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

Sums lay_out(const Wanted& wanted, const Problem& p, double* base, std::size_t* size) {
  Layout<double> layout(base);
  Sums sums;
  sums.columns = layout.take(wanted.column_sums.present, p.keys);
  sums.cell_mass = layout.take(wanted.maps(), cells_of(wanted));
  sums.cell_lift = layout.take(wanted.maps(), cells_of(wanted));
  sums.cell_pairs = layout.take(wanted.maps(), cells_of(wanted));
  sums.distances = layout.take(wanted.distance_mass.present, wanted.distances);
  sums.histogram = layout.take(wanted.score_histogram.present, wanted.bins + 2);
  *size = layout.used();
  return sums;
}

RowBuffers lay_out(const Wanted& wanted, std::int64_t rows, std::byte* base, std::size_t* bytes) {
  static_assert(sizeof(double) == sizeof(std::int64_t));
  Layout<double> layout(reinterpret_cast<double*>(base));
  RowBuffers buffers;
  buffers.mass = layout.take(wanted.maps(), rows * wanted.key_cells.cells);
  buffers.pairs = layout.take(wanted.maps(), rows * wanted.key_cells.cells);
  buffers.visible = layout.take(wanted.maps(), rows);
  buffers.top_weights = layout.take(wanted.largest(), rows * wanted.top);
  buffers.top_keys =
      reinterpret_cast<std::int64_t*>(layout.take(wanted.largest(), rows * wanted.top));
  *bytes = layout.used() * sizeof(double);
  return buffers;
}

}  // namespace

std::size_t sums_size(const Wanted& wanted, const Problem& p) {
  std::size_t size = 0;
  lay_out(wanted, p, nullptr, &size);
  return size;
}

Sums sums_at(const Wanted& wanted, const Problem& p, double* base) {
  std::size_t size = 0;
  return lay_out(wanted, p, base, &size);
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

void write_sums(const Wanted& wanted, const Problem& p, std::int64_t b, std::int64_t h,
                const Sums& sums) {
  for (std::int64_t j = 0; sums.columns != nullptr && j < p.keys; ++j) {
    store(wanted.column_sums, sums.columns[j], b, h, j);
  }
  for (std::int64_t d = 0; sums.distances != nullptr && d < wanted.distances; ++d) {
    store(wanted.distance_mass, sums.distances[d], b, h, d);
  }
  for (std::int64_t n = 0; sums.histogram != nullptr && n < wanted.bins + 2; ++n) {
    store(wanted.score_histogram, static_cast<std::int64_t>(sums.histogram[n]), b, h, n);
  }
  for (std::int64_t r = 0; sums.cell_mass != nullptr && r < wanted.row_cells.cells; ++r) {
    const CellRange rows = wanted.row_cells.range(r);
    for (std::int64_t c = 0; c < wanted.key_cells.cells; ++c) {
      const CellRange keys = wanted.key_cells.range(c);
      const std::int64_t cell = r * wanted.key_cells.cells + c;
      const double pairs =
          static_cast<double>(rows.end - rows.begin) * static_cast<double>(keys.end - keys.begin);
      if (wanted.mean_map.present) store(wanted.mean_map, sums.cell_mass[cell] / pairs, b, h, r, c);
      if (!wanted.lift_map.present) continue;
      const double seen = sums.cell_pairs[cell];
      const double lift = seen == 0 ? std::numeric_limits<double>::quiet_NaN()
                                    : std::log2(sums.cell_lift[cell] / seen);
      store(wanted.lift_map, lift, b, h, r, c);
    }
  }
}

template <typename Real>
void Gatherer<Real>::begin(int rows) {
  if (wanted_.maps()) {
    std::fill_n(rows_.mass, rows * wanted_.key_cells.cells, 0.0);
    std::fill_n(rows_.pairs, rows * wanted_.key_cells.cells, 0.0);
    std::fill_n(rows_.visible, rows, 0.0);
  }
  if (wanted_.largest()) {
    std::fill_n(rows_.top_weights, rows * wanted_.top, 0.0);
    std::fill_n(rows_.top_keys, rows * wanted_.top, std::int64_t{-1});
  }
}

template <typename Real>
void Gatherer<Real>::scores(const Tile<Real>& tile, const ScoredBlock<Real>& block, const Real* s,
                            int width) {
  if (sums_.histogram == nullptr) return;
  const double bins_per_unit =
      static_cast<double>(wanted_.bins) / (wanted_.score_high - wanted_.score_low);
  for (int j = 0; j < block.keys(); ++j) {
    for (int r = 0; r < tile.rows.count; ++r) {
      if (!sees(block, j, r)) continue;
      const double score = static_cast<double>(s[j * width + r]) * kernels::kLn2<double>;
      if (std::isnan(score)) continue;
      const double bin = std::floor((score - wanted_.score_low) * bins_per_unit);
      const double last = static_cast<double>(wanted_.bins);
      sums_.histogram[static_cast<std::int64_t>(std::clamp(bin, -1.0, last)) + 1] += 1;
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
      const double seen = sees(block, j, r) ? 1 : 0;
      rows_.mass[r * cells + cell] += static_cast<double>(p[j * width + r]);
      rows_.pairs[r * cells + cell] += seen;
      rows_.visible[r] += seen;
    }
  }
}

template <typename Real>
void Gatherer<Real>::add_distances(const Tile<Real>& tile, const ScoredBlock<Real>& block,
                                   const Real* p, int width) {
  const std::int64_t half = wanted_.distances / 2;
  for (int r = 0; r < tile.rows.count; ++r) {
    const __int128 position = position_of(p_, tile.rows.batch, tile.rows.query[r]);
    for (int j = 0; j < block.keys(); ++j) {
      const __int128 apart = block.range.begin + j - position;
      const auto d = static_cast<std::int64_t>(std::clamp<__int128>(apart, -half, half));
      sums_.distances[half + d] += static_cast<double>(p[j * width + r]);
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
      const std::int64_t cell = wanted_.row_cells.of(rows.query[r]) * cells + c;
      const double mass = rows_.mass[r * cells + c];
      sums_.cell_mass[cell] += mass;
      sums_.cell_lift[cell] += rows_.visible[r] * mass;
      sums_.cell_pairs[cell] += rows_.pairs[r * cells + c];
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

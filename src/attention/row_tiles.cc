// Tiles of query rows with what their gradients take: D, lse, and rows of dO and q.
#include "attention/row_tiles.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/element.h"
#include "attention/staging.h"

namespace heed {

using kernels::kMaxTileRows;

template <typename Real>
Real scale_of(const Problem& p, std::int64_t h) {
  const PerHead& scale = p.options.scale;
  if (scale.each.present()) return static_cast<Real>(entry(scale.each, h));
  const double usual =
      p.options.normalize_qk ? 1.0 : 1.0 / std::sqrt(static_cast<double>(p.head_size));
  return static_cast<Real>(scale.one.value_or(usual));
}

template <typename Real>
void dots_of_rows(const kernels::Kernels<Real>& kernels, const Real* a, const Real* b,
                  std::int64_t size, int vectors, Real* f) {
  kernels.dots(a, b, size, vectors, f);
  const int width = vectors * kernels.lanes;
  for (int r = 0; r < width; ++r) {
    if (!std::isnan(f[r])) continue;
    bool zeros = true;
    for (std::int64_t x = 0; zeros && x < size; ++x) zeros = b[x * width + r] == 0;
    if (zeros) f[r] = 0;
  }
}

template <typename Real>
KeyRange RowTiles<Real>::assign(RowTile<Real>& tile, Group group, std::int64_t first, int count,
                                KeyRange chunk) const {
  tile.touched = false;
  tile.tile.rows.assign(p_, group.batch, group.kv_head, first, count);
  const KeyRange seen = intersection(tile.tile.rows.some, chunk);
  tile.active = !seen.empty();
  if (!tile.active) return seen;
  tiles_.assign(tile.tile, group.batch, group.kv_head, first, count);
  load_numbers(tile);
  return seen;
}

/// dO and scale Q of one row, dense, padded with zeros.
template <typename Real>
void RowTiles<Real>::load_row(RowTile<Real>& tile, int r) const {
  const TileRows& rows = tile.tile.rows;
  Real* const d_output = tile.d_output_rows + r * plan_.padded_dv;
  const kernels::Conversions& convert = *plan_.scores.convert;
  gather_row(convert, b_.d_output, b_.d_output.at(rows.batch, rows.head[r], rows.query[r]),
             p_.value_size, d_output);
  std::fill(d_output + p_.value_size, d_output + plan_.padded_dv, Real{0});
  if (!b_.dk.present) return;
  Real* const q = tile.q_rows + r * plan_.padded_d;
  gather_row(convert, p_.q, p_.q.at(rows.batch, rows.head[r], rows.query[r]), p_.head_size, q);
  std::fill(q + p_.head_size, q + plan_.padded_d, Real{0});
  const Real scale = scale_of<Real>(p_, rows.head[r]);
  if (p_.options.normalize_qk) {
    for (std::int64_t x = 0; x < p_.head_size; ++x) q[x] = q[x] * tile.tile.norm[r] * scale;
  } else {
    for (std::int64_t x = 0; x < p_.head_size; ++x) q[x] *= scale;
  }
}

template <typename Real>
void RowTiles<Real>::load_numbers(RowTile<Real>& tile) const {
  constexpr Real kInf = std::numeric_limits<Real>::infinity();
  const TileRows& rows = tile.tile.rows;
  const int width = tile.tile.vectors * kernels_.lanes;
  tile.finite_q = tile.finite_d_output = RowTile<Real>::Finite::unknown;
  const Real* d_output[kMaxTileRows] = {};
  const Real* output[kMaxTileRows] = {};
  const bool in_place = usable_in_place<Real>(p_.output);
  for (int r = 0; r < width; ++r) {
    tile.minus_lse[r] = -kInf;
    if (r >= rows.count) continue;
    load_row(tile, r);
    d_output[r] = tile.d_output_rows + r * plan_.padded_dv;
    const auto lse = load<Real>(p_.lse.at(rows.batch, rows.head[r], rows.query[r]));
    if (lse != -kInf) tile.minus_lse[r] = -lse;
    const std::byte* const at = p_.output.at(rows.batch, rows.head[r], rows.query[r]);
    Real* const dense = scratch_.scores.rows + r * scratch_.scores.row_length;
    if (!in_place) gather_row(*plan_.scores.convert, p_.output, at, p_.value_size, dense);
    output[r] = in_place ? reinterpret_cast<const Real*>(at) : dense;
  }
  if (!b_.wants_scores()) return;
  kernels_.pack(d_output, rows.count, p_.value_size, tile.tile.vectors, tile.d_output);
  kernels_.pack(output, rows.count, p_.value_size, tile.tile.vectors, scratch_.packed_o);
  dots_of_rows(kernels_, tile.d_output, scratch_.packed_o, p_.value_size, tile.tile.vectors,
               tile.d);
}

template class RowTiles<float>;
template class RowTiles<double>;
template float scale_of<float>(const Problem&, std::int64_t);
template double scale_of<double>(const Problem&, std::int64_t);
template void dots_of_rows<float>(const kernels::Kernels<float>&, const float*, const float*,
                                  std::int64_t, int, float*);
template void dots_of_rows<double>(const kernels::Kernels<double>&, const double*, const double*,
                                   std::int64_t, int, double*);

}  // namespace heed

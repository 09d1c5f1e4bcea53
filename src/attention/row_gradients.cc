// What each query row gives: its dQ, and its part of the gradients of scale, slopes and sinks.
#include "attention/row_gradients.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/element.h"
#include "attention/row_tiles.h"
#include "attention/staging.h"

namespace heed {
namespace {

using kernels::kMaxTileRows;

/// A sum of many numbers that keeps what each addition loses (Neumaier).
class Sum {
 public:
  void add(double x) {
    const double next = sum_ + x;
    lost_ += std::fabs(sum_) >= std::fabs(x) ? (sum_ - next) + x : (x - next) + sum_;
    sum_ = next;
  }
  [[nodiscard]] double value() const { return std::isfinite(sum_) ? sum_ + lost_ : sum_; }

 private:
  double sum_ = 0, lost_ = 0;
};

/// f(b, h, i, j) for each element of a tensor of these sizes.
template <typename F>
void each_element(const std::array<std::int64_t, 4>& sizes, const F& f) {
  if (std::ranges::find(sizes, 0) != sizes.end()) return;  // no memory bounds the others
  for (std::int64_t b = 0; b < sizes[0]; ++b)
    for (std::int64_t h = 0; h < sizes[1]; ++h)
      for (std::int64_t i = 0; i < sizes[2]; ++i)
        for (std::int64_t j = 0; j < sizes[3]; ++j) f(b, h, i, j);
}

}  // namespace

template <typename Real>
RowGradients<Real>::RowGradients(const BackwardProblem& problem, const BackwardPlan<Real>& plan,
                                 const SharedScratch<Real>& shared,
                                 const BackwardScratch<Real>& scratch)
    : b_(problem),
      p_(problem.forward),
      plan_(plan),
      kernels_(*plan.scores.kernels),
      shared_(shared),
      scratch_(scratch),
      tiles_(p_, plan_.scores, scratch_.scores) {}

template <typename Real>
void RowGradients<Real>::finish(Group group, std::int64_t tile_index, Real* slot) {
  RowTile<Real>& tile = scratch_.tiles[0];
  const std::int64_t row = tile_index * plan_.tile_rows();
  const auto count =
      static_cast<int>(std::min<std::int64_t>(plan_.tile_rows(), p_.rows_of(group.batch) - row));
  tiles_.assign(tile.tile, group.batch, group.kv_head, row, count);
  const TileRows& rows = tile.tile.rows;
  const int width = tile.tile.vectors * kernels_.lanes;
  if (b_.wants_dq()) write_dq(tile, slot);
  for (int r = 0; b_.dalibi.present && r < rows.count; ++r) {
    shared_.alibi_rows[p_.row_number(rows.batch, rows.head[r], rows.query[r])] =
        -slot[plan_.alibi_sums * width + r];
  }
  if (b_.ds_norms.present) write_norms(rows, slot + plan_.norm_sums * width);
  if (b_.dsinks.present) write_sink_rows(tile);
}

/// With g = sum_j dS_j k_j in the slot: dscale = q . g, dq = scale g; with normalize_qk q and k are
/// of length 1 there, and dq = scale (g - q (q . g)) / |q|.
template <typename Real>
void RowGradients<Real>::write_dq(RowTile<Real>& tile, Real* slot) {
  const TileRows& rows = tile.tile.rows;
  const int width = tile.tile.vectors * kernels_.lanes;
  const bool normalize = p_.options.normalize_qk;
  Real along[kMaxTileRows] = {};
  if ((b_.dscale.present || normalize) && !rows.some.empty()) {
    dots_of_rows(kernels_, tile.tile.q, slot, p_.head_size, tile.tile.vectors, along);
  }
  for (int r = 0; b_.dscale.present && r < rows.count; ++r) {
    shared_.scale_rows[p_.row_number(rows.batch, rows.head[r], rows.query[r])] = along[r];
  }
  if (!b_.dq.present) return;
  Real factor[kMaxTileRows] = {};
  for (int r = 0; r < rows.count; ++r) {
    factor[r] = scale_of<Real>(p_, rows.head[r]);
    if (!normalize) continue;
    bool zeros = true;
    for (std::int64_t x = 0; x < p_.head_size; ++x) zeros &= slot[x * width + r] == 0;
    factor[r] = zeros ? Real{0} : factor[r] * tile.tile.norm[r];
    for (std::int64_t x = 0; !zeros && x < p_.head_size; ++x) {
      slot[x * width + r] -= tile.tile.q[x * width + r] * along[r];
    }
  }
  const bool in_place = usable_in_place<Real>(b_.dq);
  const auto at = [&](int r) { return b_.dq.at(rows.batch, rows.head[r], rows.query[r]); };
  Real* row[kMaxTileRows] = {};
  for (int r = 0; r < rows.count; ++r) {
    row[r] = in_place ? reinterpret_cast<Real*>(at(r))
                      : scratch_.scores.rows + r * scratch_.scores.row_length;
  }
  kernels_.unpack(slot, factor, rows.count, p_.head_size, tile.tile.vectors, row);
  for (int r = 0; !in_place && r < rows.count; ++r) {
    scatter_row(*plan_.scores.convert, row[r], p_.head_size, b_.dq, at(r));
  }
}

template <typename Real>
void RowGradients<Real>::write_norms(const TileRows& rows, const Real* squares) const {
  for (int r = 0; r < rows.count; ++r) {
    const Real norm = std::sqrt(squares[r]);
    scatter_row(&norm, 1, b_.ds_norms.at(rows.batch, rows.head[r], rows.query[r]), 1);
  }
}

/// -e^(sink - lse) (dO . O) of each row.
template <typename Real>
void RowGradients<Real>::write_sink_rows(RowTile<Real>& tile) {
  constexpr Real kInf = std::numeric_limits<Real>::infinity();
  const TileRows& rows = tile.tile.rows;
  const int vectors = tile.tile.vectors;
  const int width = vectors * kernels_.lanes;
  Real weight[kMaxTileRows] = {};
  std::copy_n(tile.tile.sink, width, weight);
  const auto pack = [&](const View4& from, Real* packed) {
    const Real* row[kMaxTileRows] = {};
    for (int r = 0; r < rows.count; ++r) {
      Real* const dense = scratch_.scores.rows + r * scratch_.scores.row_length;
      gather_row(*plan_.scores.convert, from, from.at(rows.batch, rows.head[r], rows.query[r]),
                 p_.value_size, dense);
      row[r] = dense;
    }
    kernels_.pack(row, rows.count, p_.value_size, vectors, packed);
  };
  for (int r = 0; r < width; ++r) {
    tile.minus_lse[r] = -kInf;
    if (r >= rows.count) continue;
    const auto lse = load<Real>(p_.lse.at(rows.batch, rows.head[r], rows.query[r]));
    if (lse != -kInf) tile.minus_lse[r] = -lse;
  }
  kernels_.score_gradients(weight, nullptr, 1, vectors, tile.minus_lse, nullptr);
  pack(b_.d_output, tile.d_output);
  pack(p_.output, scratch_.packed_o);
  dots_of_rows(kernels_, tile.d_output, scratch_.packed_o, p_.value_size, vectors, tile.d);
  for (int r = 0; r < rows.count; ++r) {
    shared_.sink_rows[p_.row_number(rows.batch, rows.head[r], rows.query[r])] =
        weight[r] == 0 ? Real{0} : -(weight[r] * tile.d[r]);
  }
}

namespace {

/// The tensor as it lies, in place of its batch entries.
View4 whole(View4 view) {
  view.first_row = view.first_column = nullptr;
  return view;
}

/// The sum over batch entries and rows for each head, or over all of them.
template <typename Real>
void sum_rows(const Problem& p, const Real* rows, const View4& to, bool one) {
  const std::int64_t batches = p.queries == 0 ? 0 : p.batches;  // which no memory bounds then
  const std::int64_t heads = one && batches == 0 ? 0 : p.heads;
  Sum sum;
  for (std::int64_t h = 0; h < heads; ++h) {
    if (!one) sum = {};
    for (std::int64_t b = 0; b < batches; ++b) {
      const Real* const first = rows + p.row_number(b, h, 0);
      for (std::int64_t i = 0; i < p.queries_of(b); ++i) sum.add(static_cast<double>(first[i]));
    }
    if (one) continue;
    const Real result = static_cast<Real>(sum.value()) + Real{0};
    scatter_row(&result, 1, to.at(0, 0, 0, h), 1);
  }
  if (!one) return;
  const Real result = static_cast<Real>(sum.value()) + Real{0};
  scatter_row(&result, 1, to.at(0, 0, 0), 1);
}

}  // namespace

template <typename Real>
void write_sums(const BackwardProblem& p, const SharedScratch<Real>& shared) {
  if (p.dscale.present) sum_rows(p.forward, shared.scale_rows, p.dscale, p.one_scale);
  if (p.dalibi.present) sum_rows(p.forward, shared.alibi_rows, p.dalibi, false);
  if (p.dsinks.present) sum_rows(p.forward, shared.sink_rows, p.dsinks, false);
  if (!p.sums_dbias()) return;
  const auto& stride = shared.dbias_stride;
  const View4 dbias = whole(p.dbias);
  each_element(p.bias, [&](auto b, auto h, auto i, auto j) {
    const double sum = shared.dbias[b * stride[0] + h * stride[1] + i * stride[2] + j * stride[3]];
    const Real result = static_cast<Real>(sum) + Real{0};
    scatter_row(&result, 1, dbias.at(b, h, i, j), 1);
  });
}

template <typename Real>
void clear_dbias(const BackwardProblem& p, const SharedScratch<Real>& shared) {
  if (!p.dbias.present) return;
  if (p.sums_dbias()) return void(std::fill_n(shared.dbias, shared.dbias_count, 0.0));
  const Real zero = 0;
  const View4 dbias = whole(p.dbias);
  each_element(p.bias, [&](auto b, auto h, auto i, auto j) {
    scatter_row(&zero, 1, dbias.at(b, h, i, j), 1);
  });
}

#define HEED_INSTANTIATE(Real)                                                        \
  template class RowGradients<Real>;                                                  \
  template void write_sums<Real>(const BackwardProblem&, const SharedScratch<Real>&); \
  template void clear_dbias<Real>(const BackwardProblem&, const SharedScratch<Real>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed

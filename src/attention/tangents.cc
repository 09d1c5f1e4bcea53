// One task of the forward-mode derivative: some query rows against all keys of their KV head.
#include "attention/tangents.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/carver.h"
#include "attention/element.h"
#include "attention/row_tiles.h"
#include "attention/rows.h"
#include "attention/staging.h"

namespace heed {

using kernels::kBlockKeys;
using kernels::kMaxTileRows;

template <typename Real>
JvpScratch<Real> carve_jvp(const JvpProblem& p, const Plan<Real>& plan, std::byte* base) {
  const Problem& f = p.forward;
  const AttentionOptions& options = f.options;
  const bool modified = options.score_mod.f32 != nullptr || options.score_mod.f64 != nullptr;
  const std::int64_t width = plan.tile_rows();
  const std::int64_t block = kBlockKeys * width;
  const auto many = [](bool needed, std::int64_t count) { return needed ? count : 0; };
  JvpScratch<Real> scratch{};
  scratch.scores = carve<Real>(f, plan, base);
  Carver carver(f.function, base);
  (void)carver.take<std::byte>(static_cast<std::int64_t>(scratch.scores.bytes));
  scratch.tiles = carver.take<MovingTile<Real>>(plan.tiles);
  for (int t = 0; t < plan.tiles; ++t) {
    Real* const q = carver.take<Real>(many(p.dq.present, f.head_size), width);
    if (base != nullptr) (new (scratch.tiles + t) MovingTile<Real>)->q = q;
  }
  scratch.ds = carver.take<Real>(many(p.moves_scores(), block));
  scratch.part = carver.take<Real>(many(p.dk.present, block));
  scratch.k = carver.take<Real>(many(p.dk.present, f.head_size), kBlockKeys);
  scratch.v = carver.take<Real>(many(p.dv.present, f.value_size), kBlockKeys);
  Scratch<Real>& scores = scratch.scores;
  if (p.dbias.present) scores.b = carver.take<Real>(block);
  if (options.softcap) scores.capped = carver.take<Real>(block);
  if (modified && p.moves_scores()) scores.unmodified = carver.take<Real>(block);
  scores.row_length = std::max<std::int64_t>({f.head_size, f.value_size, kBlockKeys});
  scores.rows = carver.take<Real>(scores.row_length, width + 1);
  scratch.bytes = carver.used();
  return scratch;
}

template <typename Real>
TangentRows<Real>::TangentRows(const JvpProblem& problem, const Plan<Real>& plan, std::byte* memory)
    : j_(problem),
      p_(problem.forward),
      plan_(plan),
      kernels_(*plan.kernels),
      scratch_(carve_jvp<Real>(problem, plan, memory)),
      tiles_(p_, plan, scratch_.scores) {}

template <typename Real>
void TangentRows<Real>::run(std::int64_t task) {
  const TaskRows all = plan_.rows_of_task(p_, task);
  Tile<Real>* const tiles = scratch_.scores.tiles;
  int count = 0;
  KeyRange some{p_.keys, 0};
  for (std::int64_t row = all.begin; row < all.end; row += plan_.tile_rows(), ++count) {
    const auto rows = static_cast<int>(std::min<std::int64_t>(plan_.tile_rows(), all.end - row));
    assign(tiles[count], scratch_.tiles[count], all.batch, all.kv_head, row, rows);
    const KeyRange seen = tiles[count].rows.some;
    if (!seen.empty()) some = {std::min(some.begin, seen.begin), std::max(some.end, seen.end)};
  }
  for (std::int64_t first = some.begin / kBlockKeys * kBlockKeys; first < some.end;
       first += kBlockKeys) {
    Keys<Real> keys{.range = intersection({first, first + kBlockKeys}, some)};
    Moving moving;
    for (int t = 0; t < count; ++t) fold(tiles[t], scratch_.tiles[t], keys, moving);
  }
  for (int t = 0; t < count; ++t) finish(tiles[t], scratch_.tiles[t]);
}

template <typename Real>
void TangentRows<Real>::assign(Tile<Real>& tile, MovingTile<Real>& own, std::int64_t b,
                               std::int64_t kv_head, std::int64_t first, int count) {
  constexpr Real kInf = std::numeric_limits<Real>::infinity();
  tiles_.assign(tile, b, kv_head, first, count);
  tile.touched = false;
  const TileRows& rows = tile.rows;
  const int width = tile.vectors * kernels_.lanes;
  const Real* moving[kMaxTileRows] = {};
  for (int r = 0; r < width; ++r) {
    own.minus_lse[r] = -kInf;
    own.scale[r] = scale_of<Real>(p_, rows.head[r < count ? r : 0]);
    if (r >= count) continue;
    const auto lse = heed::load<Real>(p_.lse.at(b, rows.head[r], rows.query[r]));
    if (lse != -kInf) own.minus_lse[r] = -lse;
    if (!j_.dq.present) continue;
    Real* const dense = scratch_.scores.rows + r * scratch_.scores.row_length;
    load_row(rows, r, dense);
    moving[r] = dense;
  }
  if (j_.dq.present) kernels_.pack(moving, count, p_.head_size, tile.vectors, own.q);
}

/// The tangent of one row of q, or of q / |q|.
template <typename Real>
void TangentRows<Real>::load_row(const TileRows& rows, int r, Real* dense) const {
  gather_row(*plan_.convert, j_.dq, j_.dq.at(rows.batch, rows.head[r], rows.query[r]), p_.head_size,
             dense);
  if (!p_.options.normalize_qk) return;
  Real* const q = scratch_.scores.rows + plan_.tile_rows() * scratch_.scores.row_length;
  gather_row(*plan_.convert, p_.q, p_.q.at(rows.batch, rows.head[r], rows.query[r]), p_.head_size,
             q);
  tangent_of_row(q, p_.head_size, dense);
}

template <typename Real>
void TangentRows<Real>::load(const Tile<Real>& tile, const Keys<Real>& keys, Moving& moving) const {
  if (moving.loaded) return;
  moving.loaded = true;
  const std::int64_t count = keys.range.end - keys.range.begin;
  const auto rows_of = [&](const View4& view, std::int64_t size, bool stage, Real* dense,
                           std::int64_t* stride) -> const Real* {
    if (!view.present) return nullptr;
    const auto at = [&](std::int64_t j) {
      return view.at(tile.rows.batch, tile.rows.kv_head, keys.range.begin + j);
    };
    *stride = stage ? size : view.stride[2];
    if (!stage) return reinterpret_cast<const Real*>(at(0));
    for (std::int64_t j = 0; j < count; ++j) {
      gather_row(*plan_.convert, view, at(j), size, dense + j * size);
    }
    return dense;
  };
  const bool normalize = p_.options.normalize_qk;
  moving.k = rows_of(j_.dk, p_.head_size, normalize || !usable_in_place<Real>(j_.dk), scratch_.k,
                     &moving.k_stride);
  moving.v =
      rows_of(j_.dv, p_.value_size, !usable_in_place<Real>(j_.dv), scratch_.v, &moving.v_stride);
  for (std::int64_t j = 0; normalize && moving.k != nullptr && j < count; ++j) {
    tangent_of_row(keys.k + j * keys.k_stride, p_.head_size, scratch_.k + j * p_.head_size);
  }
  const auto rows = static_cast<int>(count);
  moving.values_finite =
      kernels_.all_finite(keys.v, keys.v_stride, rows, p_.value_size) &&
      (moving.v == nullptr || kernels_.all_finite(moving.v, moving.v_stride, rows, p_.value_size));
}

/// S' of the block in scratch.ds: the order of ordered_scores, each step with its derivative.
template <typename Real>
void TangentRows<Real>::move_scores(const Tile<Real>& tile, const MovingTile<Real>& own,
                                    const Keys<Real>& keys, const Moving& moving,
                                    const ScoredBlock<Real>& block) {
  const int count = block.keys();
  const int vectors = tile.vectors;
  const std::int64_t offset = block.range.begin - keys.range.begin;
  Real* const ds = scratch_.ds;
  Real highest[kMaxTileRows];
  if (j_.dq.present) {
    kernels_.scores(keys.k + offset * keys.k_stride, keys.k_stride, count, block.seen, own.q,
                    p_.head_size, vectors, own.scale, ds, highest, {});
    if (p_.options.normalize_qk) kernels_.scale_keys(ds, count, vectors, keys.norm + offset);
  } else {
    std::fill_n(ds, count * vectors * kernels_.lanes, Real{0});
  }
  if (j_.dk.present) {
    kernels_.scores(moving.k + offset * moving.k_stride, moving.k_stride, count, block.seen, tile.q,
                    p_.head_size, vectors, own.scale, scratch_.part, highest, {});
    kernels_.add(ds, count, vectors, scratch_.part);
  }
  if (p_.options.softcap) {
    const Real cap = static_cast<Real>(*p_.options.softcap) * kernels::kLog2e<Real>;
    kernels_.softcap_gradient(ds, count, vectors, scratch_.scores.capped, cap);
  }
  if (j_.dbias.present) {
    pack_bias(j_.dbias, kernels_, scratch_.scores, tile, block.range);
    kernels_.add(ds, count, vectors, scratch_.scores.b);
  }
  if (Real* const factor = scratch_.scores.unmodified; factor != nullptr) {
    score_mod_derivative(p_, plan_, tile, block.range, factor);
    kernels_.times(ds, count, vectors, factor);
  }
}

/// O' += sum over the block's keys of p v.
template <typename Real>
void TangentRows<Real>::add_values(Tile<Real>& tile, const ScoredBlock<Real>& block, const Real* v,
                                   std::int64_t stride, const Real* p, bool finite) {
  const Filled<Real> one(Real{1});
  const Real* const before = tile.touched ? one.of : nullptr;
  tile.touched = true;
  if (block.sight == Sight::all || finite) {
    kernels_.values(v, stride, block.seen, p, p_.value_size, tile.vectors, before, tile.o);
  } else {
    kernels_.values_visible(v, stride, block.keys(), p, p_.value_size, tile.vectors, before,
                            block.visible, tile.o);
  }
}

template <typename Real>
void TangentRows<Real>::fold(Tile<Real>& tile, MovingTile<Real>& own, Keys<Real>& keys,
                             Moving& moving) {
  ScoredBlock<Real> block;
  tiles_.score(tile, keys, &block);
  if (block.range.empty()) return;
  load(tile, keys, moving);
  const int count = block.keys();
  const int vectors = tile.vectors;
  const std::int64_t offset = block.range.begin - keys.range.begin;
  Real* const p = scratch_.scores.s;
  Real* const ds = j_.moves_scores() ? scratch_.ds : nullptr;
  const Filled<Real> zero(Real{0});
  if (ds != nullptr) move_scores(tile, own, keys, moving, block);
  kernels_.score_gradients(p, ds, count, vectors, own.minus_lse, zero.of);  // P and P S'
  if (ds != nullptr) {
    const Filled<Real> one(Real{1});
    Real ones[kBlockKeys];
    std::fill_n(ones, count, Real{1});
    kernels_.values(ones, 1, block.seen, ds, 1, vectors, tile.touched ? one.of : nullptr, own.lse);
  }
  if (p_.drop_below > 0) {
    const Real factor = static_cast<Real>(p_.keep_factor);
    kernels::VisibleWords kept;
    kernels_.kept(tile.draws, block.range.begin, count, vectors, kept);
    kernels_.drop(p, count, vectors, kept, factor);
    if (ds != nullptr) kernels_.drop(ds, count, vectors, kept, factor);
  }
  const bool finite = moving.values_finite;
  if (ds != nullptr) {
    add_values(tile, block, keys.v + offset * keys.v_stride, keys.v_stride, ds, finite);
  }
  if (j_.dv.present) {
    add_values(tile, block, moving.v + offset * moving.v_stride, moving.v_stride, p, finite);
  }
}

/// O' - lse' O and lse', to where they belong.
template <typename Real>
void TangentRows<Real>::finish(const Tile<Real>& tile, const MovingTile<Real>& own) {
  const TileRows& rows = tile.rows;
  Real* row[kMaxTileRows];
  for (int r = 0; r < rows.count; ++r)
    row[r] = scratch_.scores.rows + r * scratch_.scores.row_length;
  const Filled<Real> one(Real{1});
  if (tile.touched) {
    kernels_.unpack(tile.o, one.of, rows.count, p_.value_size, tile.vectors, row);
  }
  Real* const output = scratch_.scores.rows + plan_.tile_rows() * scratch_.scores.row_length;
  for (int r = 0; r < rows.count; ++r) {
    const auto at = [&](const View4& view) {
      return view.at(rows.batch, rows.head[r], rows.query[r]);
    };
    if (!tile.touched) std::fill_n(row[r], p_.value_size, Real{0});
    const Real lse = tile.touched && j_.moves_scores() ? own.lse[r] + Real{0} : Real{0};
    if (j_.d_lse.present) scatter_row(&lse, 1, at(j_.d_lse), 1);
    if (!j_.d_output.present) continue;
    // A row whose lse does not move has nothing to subtract, were O infinite.
    if (lse != 0) {
      gather_row(*plan_.convert, p_.output, at(p_.output), p_.value_size, output);
      for (std::int64_t x = 0; x < p_.value_size; ++x) {
        row[r][x] = std::fma(-lse, output[x], row[r][x]) + Real{0};
      }
    }
    scatter_row(*plan_.convert, row[r], p_.value_size, j_.d_output, at(j_.d_output));
  }
}

template class TangentRows<float>;
template class TangentRows<double>;
template JvpScratch<float> carve_jvp<float>(const JvpProblem&, const Plan<float>&, std::byte*);
template JvpScratch<double> carve_jvp<double>(const JvpProblem&, const Plan<double>&, std::byte*);

}  // namespace heed

// What a chunk of keys gives: the gradients of its own k and v, and its part of dQ.
#include "attention/chunk_gradients.h"

#include <algorithm>
#include <cmath>

#include "attention/element.h"
#include "attention/rows.h"
#include "attention/staging.h"

namespace heed {
namespace {

using kernels::kBlockKeys;
using kernels::kMaxTileRows;
using kernels::kSplitKeys;

}  // namespace

template <typename Real>
ChunkGradients<Real>::ChunkGradients(const BackwardProblem& problem, const BackwardPlan<Real>& plan,
                                     const SharedScratch<Real>& shared,
                                     const BackwardScratch<Real>& scratch)
    : b_(problem),
      p_(problem.forward),
      plan_(plan),
      kernels_(*plan.scores.kernels),
      shared_(shared),
      scratch_(scratch),
      tiles_(p_, plan_.scores, scratch_.scores),
      row_tiles_(b_, plan_, scratch_, tiles_) {}

template <typename Real>
void ChunkGradients<Real>::run(Group group, std::int64_t chunk, Real* slot) {
  group_ = group;
  chunk_ = {chunk * kSplitKeys, std::min(chunk * kSplitKeys + kSplitKeys, p_.keys_of(group.batch))};
  const std::int64_t keys = chunk_.end - chunk_.begin;
  if (b_.dk.present) std::fill_n(scratch_.dk, keys * plan_.padded_d, Real{0});
  if (b_.dv.present) std::fill_n(scratch_.dv, keys * plan_.padded_dv, Real{0});
  const std::int64_t tiles = plan_.tiles_of(p_, group.batch);
  for (std::int64_t first = 0; first < tiles; first += plan_.tiles) {
    load_rows(first);
    for (std::int64_t key = some_.begin / kBlockKeys * kBlockKeys; key < some_.end;
         key += kBlockKeys) {
      Keys<Real> block{.range = intersection({key, key + kBlockKeys}, some_),
                       .with_values = b_.wants_scores()};
      fold_block(block);
    }
    add_to_slot(first, slot);
  }
  write_keys();
}

/// Tiles of rows from the given one on, those that see some key of the chunk with all their
/// numbers.
template <typename Real>
void ChunkGradients<Real>::load_rows(std::int64_t first_tile) {
  some_ = {chunk_.end, chunk_.begin};
  const std::int64_t all_tiles = plan_.tiles_of(p_, group_.batch);
  const std::int64_t all_rows = p_.rows_of(group_.batch);
  count_ = static_cast<int>(std::min<std::int64_t>(plan_.tiles, all_tiles - first_tile));
  for (int t = 0; t < count_; ++t) {
    RowTile<Real>& tile = scratch_.tiles[t];
    const std::int64_t row = (first_tile + t) * plan_.tile_rows();
    const auto rows = static_cast<int>(std::min<std::int64_t>(plan_.tile_rows(), all_rows - row));
    const KeyRange seen = row_tiles_.assign(tile, group_, row, rows, chunk_);
    if (!tile.active) continue;
    some_ = {std::min(some_.begin, seen.begin), std::max(some_.end, seen.end)};
  }
}

template <typename Real>
void ChunkGradients<Real>::fold_block(Keys<Real>& keys) {
  for (int t = 0; t < count_; t += plan_.chain_tiles) {
    fold_chain(keys, scratch_.tiles + t, std::min(plan_.chain_tiles, count_ - t));
  }
}

/// P and dS of a tile against the block: in tile.s and tile.ds, from the block's first key on.
/// False if no row sees a key.
template <typename Real>
bool ChunkGradients<Real>::score(Keys<Real>& keys, RowTile<Real>& tile) {
  const KeyRange range = intersection(keys.range, tile.tile.rows.some);
  if (!tile.active || range.empty()) {
    tile.block.range = {};
    return false;
  }
  const int vectors = tile.tile.vectors;
  const std::int64_t offset = range.begin - keys.range.begin;
  const std::int64_t at = offset * vectors * kernels_.lanes;
  scratch_.scores.s = tile.s + at;
  tiles_.score(tile.tile, keys, &tile.block);
  const int count = tile.block.keys();
  if (tile.block.range.empty()) return false;
  Real* const ds = b_.wants_scores() ? tile.ds + at : nullptr;
  if (ds != nullptr) {
    const Filled<Real> one(Real{1});
    Real highest[kMaxTileRows];
    kernels_.scores(keys.v + offset * keys.v_stride, keys.v_stride, count, tile.block.seen,
                    tile.d_output, p_.value_size, vectors, one.of, ds, highest, {});
  }
  const bool drops = p_.drop_below > 0;
  const Real factor = static_cast<Real>(p_.keep_factor);
  kernels::VisibleWords kept;
  if (drops) kernels_.kept(tile.tile.draws, tile.block.range.begin, count, vectors, kept);
  if (drops && ds != nullptr) kernels_.drop(ds, count, vectors, kept, factor);
  kernels_.score_gradients(tile.s + at, ds, count, vectors, tile.minus_lse, tile.d);
  if (drops) kernels_.drop(tile.s + at, count, vectors, kept, factor);
  if (b_.ds_norms.present) add_squares(tile, ds);
  if (ds != nullptr) reverse_options(tile, ds);
  return true;
}

/// From the final score's gradient to that of scale * (q . k): the order of ordered_scores,
/// backwards.
template <typename Real>
void ChunkGradients<Real>::reverse_options(RowTile<Real>& tile, Real* ds) {
  const int keys = tile.block.keys();
  const int vectors = tile.tile.vectors;
  if (Real* const factor = scratch_.scores.unmodified; factor != nullptr) {
    score_mod_derivative(p_, plan_.scores, tile.tile, tile.block.range, factor);
    kernels_.times(ds, keys, vectors, factor);
  }
  if (b_.dbias.present) add_dbias(tile, ds);
  if (b_.dalibi.present) add_dalibi(tile, ds);
  if (p_.options.softcap) {
    const Real cap = static_cast<Real>(*p_.options.softcap) * kernels::kLog2e<Real>;
    kernels_.softcap_gradient(ds, keys, vectors, scratch_.scores.capped, cap);
  }
}

template <typename Real>
void ChunkGradients<Real>::add_dbias(const RowTile<Real>& tile, const Real* ds) {
  const TileRows& rows = tile.tile.rows;
  const int keys = tile.block.keys();
  const std::int64_t first = tile.block.range.begin;
  const int width = tile.tile.vectors * kernels_.lanes;
  if (b_.sums_dbias()) {
    const auto& stride = shared_.dbias_stride;
    const bool end_to_end = b_.dbias.first_row != nullptr;
    const std::int64_t first_row = end_to_end ? b_.dbias.first_row[rows.batch] : 0;
    const std::int64_t first_column = end_to_end ? b_.dbias.first_column[rows.batch] : 0;
    // Row by row, so that the order of a sum over both is that of no tile.
    for (int r = 0; r < rows.count; ++r) {
      const std::int64_t at = rows.head[r] * stride[1] + (first_row + rows.query[r]) * stride[2] +
                              (first_column + first) * stride[3];
      double* const to = shared_.dbias + rows.batch * stride[0] + at;
      for (int j = 0; j < keys; ++j) {
        to[j * stride[3]] += static_cast<double>(ds[j * width + r]);
      }
    }
    return;
  }
  const Filled<Real> one(Real{1});
  const bool in_place = usable_in_place<Real>(b_.dbias);
  const auto at = [&](int r) {
    return b_.dbias.at(rows.batch, rows.head[r], rows.query[r], first);
  };
  Real* row[kMaxTileRows] = {};
  for (int r = 0; r < rows.count; ++r) {
    row[r] = in_place ? reinterpret_cast<Real*>(at(r))
                      : scratch_.scores.rows + r * scratch_.scores.row_length;
  }
  kernels_.unpack(ds, one.of, rows.count, keys, tile.tile.vectors, row);
  for (int r = 0; !in_place && r < rows.count; ++r) {
    scatter_row(row[r], keys, at(r), b_.dbias.stride[3]);
  }
}

/// The sums of one kind that a tile's rows have, 0 before the chunk's first block.
template <typename Real>
Real* ChunkGradients<Real>::sums_of(RowTile<Real>& tile, std::int64_t column) const {
  const int width = tile.tile.vectors * kernels_.lanes;
  Real* const sums = tile.dq + column * width;
  if (!tile.touched) std::fill_n(sums, width, Real{0});
  return sums;
}

/// sum over the keys of dS |p - j|
template <typename Real>
void ChunkGradients<Real>::add_dalibi(RowTile<Real>& tile, const Real* ds) {
  const int width = tile.tile.vectors * kernels_.lanes;
  Real* const sums = sums_of(tile, plan_.alibi_sums);
  for (int r = 0; r < tile.tile.rows.count; ++r) {
    Real sum = 0;
    for (int j = 0; j < tile.block.keys(); ++j) {
      const __int128 apart =
          static_cast<__int128>(tile.tile.position[r]) - (tile.block.range.begin + j);
      sum += ds[j * width + r] * static_cast<Real>(apart < 0 ? -apart : apart);
    }
    sums[r] += sum;
  }
}

/// sum over the keys of dS^2
template <typename Real>
void ChunkGradients<Real>::add_squares(RowTile<Real>& tile, const Real* ds) {
  const int width = tile.tile.vectors * kernels_.lanes;
  Real* const sums = sums_of(tile, plan_.norm_sums);
  Real block[kMaxTileRows] = {};
  for (int j = 0; j < tile.block.keys(); ++j) {
    for (int r = 0; r < width; ++r) block[r] += ds[j * width + r] * ds[j * width + r];
  }
  for (int r = 0; r < tile.tile.rows.count; ++r) sums[r] += block[r];
}

template <typename Real>
bool ChunkGradients<Real>::keys_finite(Keys<Real>& keys) {
  if (keys.finite == Keys<Real>::Finite::unknown) {
    const auto count = static_cast<int>(keys.range.end - keys.range.begin);
    const bool finite = kernels_.all_finite(keys.k, keys.k_stride, count, p_.head_size);
    keys.finite = finite ? Keys<Real>::Finite::yes : Keys<Real>::Finite::no;
  }
  return keys.finite == Keys<Real>::Finite::yes;
}

/// dQ += dS K, with normalize_qk over keys of length 1.
template <typename Real>
void ChunkGradients<Real>::add_dq(Keys<Real>& keys, RowTile<Real>& tile) {
  const int count = tile.block.keys();
  const int vectors = tile.tile.vectors;
  const std::int64_t offset = tile.block.range.begin - keys.range.begin;
  const Real* const k = keys.k + offset * keys.k_stride;
  Real* const ds = tile.ds + offset * vectors * kernels_.lanes;
  const Filled<Real> one(Real{1});
  const Real* const before = tile.touched ? one.of : nullptr;
  const bool masked = tile.block.sight == Sight::some;
  if (p_.options.normalize_qk) kernels_.scale_keys(ds, count, vectors, keys.norm + offset);
  if (!masked || keys_finite(keys)) {
    kernels_.values(k, keys.k_stride, tile.block.seen, ds, p_.head_size, vectors, before, tile.dq);
  } else {
    kernels_.values_visible(k, keys.k_stride, count, ds, p_.head_size, vectors, before,
                            tile.block.visible, tile.dq);
  }
}

/// Bits of who sees a key of `seen`, for the keys outside of the tile's own range too.
template <typename Real>
void ChunkGradients<Real>::fill_words(RowTile<Real>& tile, KeyRange seen) const {
  const std::int64_t before = tile.block.range.begin - seen.begin;
  std::fill_n(tile.visible, seen.end - seen.begin, 0);
  for (int j = 0; j < tile.block.keys(); ++j) {
    tile.visible[before + j] =
        tile.block.sight == Sight::all ? tile.tile.rows.full_word() : tile.block.visible[j];
  }
}

template <typename Real>
bool ChunkGradients<Real>::rows_finite(typename RowTile<Real>::Finite& known, const Real* rows,
                                       std::int64_t size, int count) const {
  using Finite = typename RowTile<Real>::Finite;
  if (known == Finite::unknown) {
    known = kernels_.all_finite(rows, size, count, size) ? Finite::yes : Finite::no;
  }
  return known == Finite::yes;
}

template <typename Real>
void ChunkGradients<Real>::fold_chain(Keys<Real>& keys, RowTile<Real>* tiles, int count) {
  KeyRange seen{keys.range.end, keys.range.begin};  // by some row of the chain
  for (int t = 0; t < count; ++t) {
    if (!score(keys, tiles[t])) continue;
    const KeyRange range = tiles[t].block.range;
    seen = {std::min(seen.begin, range.begin), std::max(seen.end, range.end)};
  }
  if (seen.empty()) return;
  for (int t = 0; t < count; ++t) clear_beside(tiles[t], keys, seen);
  const std::int64_t key = seen.begin - chunk_.begin;
  if (b_.dv.present) {
    add_outer(keys, seen, tiles, count, Product::dv, scratch_.dv + key * plan_.padded_dv);
  }
  if (b_.dk.present) {
    add_outer(keys, seen, tiles, count, Product::dk, scratch_.dk + key * plan_.padded_d);
  }
  for (int t = 0; t < count; ++t) {
    if (tiles[t].block.range.empty()) continue;
    if (b_.wants_dq()) add_dq(keys, tiles[t]);
    tiles[t].touched = true;
  }
}

/// P = dS = 0 for keys that other tiles of the chain see, but not this one.
template <typename Real>
void ChunkGradients<Real>::clear_beside(RowTile<Real>& tile, const Keys<Real>& keys,
                                        KeyRange seen) const {
  const KeyRange own = tile.block.range;
  if (own.empty()) return;
  const std::int64_t width = tile.tile.vectors * kernels_.lanes;
  const auto clear = [&](std::int64_t begin, std::int64_t end) {
    if (begin >= end) return;
    const std::int64_t at = (begin - keys.range.begin) * width;
    std::fill_n(tile.s + at, (end - begin) * width, Real{0});
    if (b_.wants_scores()) std::fill_n(tile.ds + at, (end - begin) * width, Real{0});
  };
  clear(seen.begin, own.begin);
  clear(own.end, seen.end);
}

/// dV += P' dO or dK += dS' (scale Q) for the keys seen, over the rows of a chain.
template <typename Real>
void ChunkGradients<Real>::add_outer(const Keys<Real>& keys, KeyRange seen, RowTile<Real>* tiles,
                                     int count, Product product, Real* out) {
  kernels::WeightedRows<Real> chain[kChainRows];
  int used = 0;
  bool care = false;  // rows with NaN or infinity that do not see every key
  const std::int64_t size = product == Product::dv ? plan_.padded_dv : plan_.padded_d;
  for (int t = 0; t < count; ++t) {
    RowTile<Real>& tile = tiles[t];
    const KeyRange own = tile.block.range;
    if (own.empty()) continue;
    const std::int64_t at = (seen.begin - keys.range.begin) * tile.tile.vectors * kernels_.lanes;
    const int rows = tile.tile.rows.count;
    const bool every =
        tile.block.sight == Sight::all && own.begin == seen.begin && own.end == seen.end;
    if (product == Product::dv) {
      chain[used++] = {tile.s + at, tile.d_output_rows, tile.visible,
                       tile.tile.vectors * kernels_.lanes, rows};
      care |= !every && !rows_finite(tile.finite_d_output, tile.d_output_rows, size, rows);
    } else {
      chain[used++] = {tile.ds + at, tile.q_rows, tile.visible, tile.tile.vectors * kernels_.lanes,
                       rows};
      care |= !every && !rows_finite(tile.finite_q, tile.q_rows, size, rows);
    }
  }
  const auto seen_keys = static_cast<int>(seen.end - seen.begin);
  if (!care) return kernels_.add_outer(chain, used, seen_keys, size, size, out);
  for (int t = 0; t < count; ++t) {
    if (!tiles[t].block.range.empty()) fill_words(tiles[t], seen);
  }
  kernels_.add_outer_visible(chain, used, seen_keys, size, size, out);
}

template <typename Real>
void ChunkGradients<Real>::add_to_slot(std::int64_t first_tile, Real* slot) {
  if (plan_.tile_slot == 0) return;
  for (int t = 0; t < count_; ++t) {
    const RowTile<Real>& tile = scratch_.tiles[t];
    if (!tile.touched) continue;
    Real* const to = slot + (first_tile + t) * plan_.tile_slot;
    const std::int64_t count =
        plan_.tile_slot / plan_.tile_rows() * tile.tile.vectors * kernels_.lanes;
    for (std::int64_t i = 0; i < count; ++i) to[i] += tile.dq[i];
  }
}

/// dk and dv of the chunk. With normalize_qk dk = (g - k (k . g) / |k|^2) / |k|, g being the
/// gradient of k / |k|.
template <typename Real>
void ChunkGradients<Real>::write_keys() {
  const kernels::Conversions& convert = *plan_.scores.convert;
  for (std::int64_t j = chunk_.begin; j < chunk_.end; ++j) {
    Real* const dk = scratch_.dk + (j - chunk_.begin) * plan_.padded_d;
    if (b_.dk.present) {
      if (p_.options.normalize_qk) {
        Real* const k = scratch_.scores.rows;
        gather_row(convert, p_.k, p_.k.at(group_.batch, group_.kv_head, j), p_.head_size, k);
        tangent_of_row(k, p_.head_size, dk);
      }
      scatter_row(convert, dk, p_.head_size, b_.dk, b_.dk.at(group_.batch, group_.kv_head, j));
    }
    if (!b_.dv.present) continue;
    scatter_row(convert, scratch_.dv + (j - chunk_.begin) * plan_.padded_dv, p_.value_size, b_.dv,
                b_.dv.at(group_.batch, group_.kv_head, j));
  }
}

template class ChunkGradients<float>;
template class ChunkGradients<double>;

}  // namespace heed

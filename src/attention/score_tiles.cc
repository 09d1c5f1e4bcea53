// Tiles of query rows and their scores against blocks of keys: what every pass over scores begins
// with.
#include "attention/score_tiles.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "attention/element.h"
#include "attention/staging.h"

namespace heed {
namespace {

using kernels::kLog2e;
using kernels::kMaxTileRows;

/// x log2(e), finite where x is.
template <typename Real>
Real to_base2(Real x) {
  const Real t = x * kLog2e<Real>;
  const bool overflowed = std::isfinite(x) && !std::isfinite(t);
  return overflowed ? std::copysign(std::numeric_limits<Real>::max(), x) : t;
}

/// Where rows see less than others: causal masks are stairs from vector to vector.
template <typename Real>
void keys_seen(const TileRows& rows, int lanes, ScoredBlock<Real>* block) {
  std::fill_n(block->seen, kernels::kMostVectors, block->keys());
  if (block->sight == Sight::all) return;
  std::int64_t end = block->range.begin;
  for (int r = 0; r < rows.count; ++r) {
    const KeyRange keys = intersection(rows.keys[r], block->range);
    if (!keys.empty() && keys.end < end) {  // stairs that go down, as where a new head begins
      std::fill_n(block->seen, kernels::kMostVectors, block->keys());
      return;
    }
    end = std::max(end, keys.empty() ? end : keys.end);
    block->seen[r / lanes] = static_cast<int>(end - block->range.begin);
  }
}

/// Rows of Real as such.
template <typename Real>
PlacedRows placed_rows(const Real* rows, std::int64_t stride) {
  return {.at = reinterpret_cast<const std::byte*>(rows),
          .step = stride * static_cast<std::int64_t>(sizeof(Real))};
}

}  // namespace

template <typename Real>
void ScoreTiles<Real>::assign(Tile<Real>& tile, std::int64_t b, std::int64_t kv_head,
                              std::int64_t first, int count) const {
  tile.rows.assign(p_, b, kv_head, first, count);
  tile.vectors = (count + kernels_.lanes - 1) / kernels_.lanes;
  tile.few = plan_.few && count <= kernels::kFewRows;
  tile.key_by_key = plan_.key_by_key && p_.rows_of(b) == 1;
  load_constants(tile);
  if (!tile.rows.some.empty()) load_queries(tile);
}

template <typename Real>
void ScoreTiles<Real>::load_constants(Tile<Real>& tile) const {
  const AttentionOptions& o = p_.options;
  const TileRows& rows = tile.rows;
  const int width = tile.vectors * kernels_.lanes;
  std::fill_n(tile.c, width, plan_.c);
  if (p_.drop_below > 0) load_draws(tile);
  if (!o.scale.each.present() && !o.alibi.present() && !o.sinks.present()) return;
  for (int r = 0; r < width; ++r) {
    const int used = r < rows.count ? r : 0;  // spare lanes hold what the first row has
    const std::int64_t h = rows.head[used];
    if (o.scale.each.present()) {
      tile.c[r] = static_cast<Real>(entry(o.scale.each, h)) * kLog2e<Real>;
    }
    if (o.alibi.present()) {
      tile.slope[r] = to_base2(narrow<Real>(entry(o.alibi, h)));
      tile.position[r] = position_of(p_, rows.batch, rows.query[used]);
    }
    if (o.sinks.present()) tile.sink[r] = to_base2(narrow<Real>(entry(o.sinks, h)));
  }
}

template <typename Real>
void ScoreTiles<Real>::load_draws(Tile<Real>& tile) const {
  const TileRows& rows = tile.rows;
  const Dropout& o = p_.options.dropout;
  const auto heads = static_cast<std::uint64_t>(p_.draw_heads);
  // Counters have 32 bits: what is added up may wrap around.
  const auto counter = [](auto... numbers) {
    return static_cast<std::uint32_t>((0 + ... + static_cast<std::uint64_t>(numbers)));
  };
  const std::uint64_t entry =
      static_cast<std::uint64_t>(o.first_batch) + static_cast<std::uint64_t>(rows.batch);
  tile.draws = {*o.seed, p_.drop_below, o.first_key % (std::int64_t{1} << 35), {}, {}};
  for (int r = 0; r < rows.count; ++r) {
    tile.draws.query[r] = counter(o.first_query, p_.start_of(rows.batch), rows.query[r]);
    tile.draws.head[r] = counter(entry * heads, o.first_head, rows.head[r]);
  }
}

template <typename Real>
void ScoreTiles<Real>::pack_queries(Tile<Real>& tile, const Real* const* rows,
                                    std::int64_t size) const {
  if (tile.key_by_key) {
    std::copy_n(rows[0], size, tile.q);
  } else {
    kernels_.pack(rows, tile.rows.count, size, tile.vectors, tile.q);
  }
}

template <typename Real>
void ScoreTiles<Real>::load_queries(Tile<Real>& tile) const {
  const TileRows& rows = tile.rows;
  const Real* row[kMaxTileRows];
  if (plan_.bf16 != nullptr) {
    for (int r = 0; r < rows.count; ++r) {
      Real* const dense = scratch_.rows + r * scratch_.row_length;
      gather_pairs(p_.q, p_.q.at(rows.batch, rows.head[r], rows.query[r]), p_.head_size,
                   reinterpret_cast<std::byte*>(dense));
      row[r] = dense;
    }
    return pack_queries(tile, row, (p_.head_size + 1) / 2);
  }
  for (int r = 0; r < rows.count; ++r) {
    const std::byte* at = p_.q.at(rows.batch, rows.head[r], rows.query[r]);
    row[r] = reinterpret_cast<const Real*>(at);
    if (!plan_.stage_q) continue;
    Real* const dense = scratch_.rows + r * scratch_.row_length;
    gather_row(*plan_.convert, p_.q, at, p_.head_size, dense);
    row[r] = dense;
  }
  pack_queries(tile, row, p_.head_size);
  if (!p_.options.normalize_qk) return;
  kernels_.reciprocal_norms(tile.q, p_.head_size, tile.vectors, tile.norm);
  kernels_.scale_rows(tile.q, p_.head_size, tile.vectors, tile.norm);
}

/// Where the rows are, if they can be read there.
template <typename Real>
void ScoreTiles<Real>::find(const TileRows& rows, Keys<Real>& keys) const {
  const KeyRange range = keys.range;
  const auto place = [&](const View4& view, bool stage, PlacedRows* placed) {
    const bool half = size_of(view.dtype) == 2;
    if (half ? view.stride[3] != 1 : stage) return;
    if (!view.in_one_piece(range.begin, range.end)) return;
    placed->at = view.at(rows.batch, rows.kv_head, range.begin);
    placed->step = view.stride[2] * static_cast<std::int64_t>(size_of(view.dtype));
    if (half) {
      placed->element = view.dtype == DType::f16 ? kernels::Element::f16 : kernels::Element::bf16;
    }
    if (range.end < rows.some.end) {
      placed->next = view.at(rows.batch, rows.kv_head, range.end);
    }
  };
  place(p_.k, plan_.stage_k, &keys.k_rows);
  if (keys.with_values) place(p_.v, plan_.stage_v, &keys.v_rows);
}

/// Rows of Real: those that are placed, or a copy.
template <typename Real>
const Real* ScoreTiles<Real>::dense_rows(const TileRows& rows, KeyRange range, const View4& view,
                                         const PlacedRows& placed, std::int64_t size, Real* copy,
                                         std::int64_t* stride) const {
  if (placed.at != nullptr && placed.element == kernels::Element::own) {
    *stride = placed.step / static_cast<std::int64_t>(sizeof(Real));
    return reinterpret_cast<const Real*>(placed.at);
  }
  *stride = size;
  const std::int64_t count = range.end - range.begin;
  if (view.pages != nullptr) {
    for (std::int64_t j = 0; j < count; ++j) {
      gather_row(*plan_.convert, view, view.at(rows.batch, rows.kv_head, range.begin + j), size,
                 copy + j * size);
    }
    return copy;
  }
  const std::byte* const at = view.at(rows.batch, rows.kv_head, range.begin);
  const auto element = static_cast<std::int64_t>(size_of(view.dtype));
  const std::int64_t step = view.stride[2] * element;
  for (std::int64_t j = 0; j < count; ++j) {
    // The next block's row: such rows lie far apart, where no hardware looks ahead.
    if (view.stride[3] == 1) {
      prefetch_row(at + j * step, kernels::kBlockKeys * step, size * element);
    }
    gather_row(*plan_.convert, view, at + j * step, size, copy + j * size);
  }
  return copy;
}

template <typename Real>
void ScoreTiles<Real>::load_keys(const TileRows& rows, Keys<Real>& keys) const {
  if (keys.k != nullptr) return;
  const std::int64_t count = keys.range.end - keys.range.begin;
  keys.k =
      dense_rows(rows, keys.range, p_.k, keys.k_rows, p_.head_size, scratch_.k, &keys.k_stride);
  if (!p_.options.normalize_qk) return;
  // Norms of keys come from the same chain as those of queries: keys in lanes.
  const int width = plan_.tile_rows();
  for (std::int64_t first = 0; first < count; first += width) {
    const Real* row[kMaxTileRows];
    const auto used = static_cast<int>(std::min<std::int64_t>(width, count - first));
    for (int r = 0; r < used; ++r) row[r] = keys.k + (first + r) * keys.k_stride;
    kernels_.pack(row, used, p_.head_size, kernels_.highest_vectors, scratch_.packed_k);
    kernels_.reciprocal_norms(scratch_.packed_k, p_.head_size, kernels_.highest_vectors,
                              scratch_.key_norm + first);
  }
  keys.norm = scratch_.key_norm;
}

template <typename Real>
void ScoreTiles<Real>::load_values(const TileRows& rows, Keys<Real>& keys) const {
  if (keys.v != nullptr) return;
  if (plan_.bf16 != nullptr) return pair_values(rows, keys);
  keys.v =
      dense_rows(rows, keys.range, p_.v, keys.v_rows, p_.value_size, scratch_.v, &keys.v_stride);
}

template <typename Real>
void ScoreTiles<Real>::place_values(const TileRows& rows, Keys<Real>& keys) const {
  if (keys.v_rows.at != nullptr) return;
  if (plan_.bf16 == nullptr) {
    load_values(rows, keys);
    keys.v_rows = placed_rows(keys.v, keys.v_stride);
    return;
  }
  // Pairs take half of scratch, rows as they are the other half.
  std::byte* to = reinterpret_cast<std::byte*>(scratch_.v + plan_.block_keys / 2 * p_.value_size);
  keys.v_rows = {.at = to, .step = p_.value_size * 2, .element = kernels::Element::bf16};
  for (std::int64_t j = keys.range.begin; j < keys.range.end; ++j, to += p_.value_size * 2) {
    gather_row(p_.v.at(rows.batch, rows.kv_head, j), p_.v.stride[3], p_.value_size,
               reinterpret_cast<std::uint16_t*>(to));
  }
}

/// Rows of K as they are, if only they are pairs.
template <typename Real>
void ScoreTiles<Real>::pair_keys(const TileRows& rows, Keys<Real>& keys) const {
  if (keys.k_rows.at != nullptr && !plan_.stage_k) return;
  auto* to = reinterpret_cast<std::byte*>(scratch_.k);
  keys.k_rows = {.at = to, .step = (p_.head_size + 1) / 2 * 4, .element = kernels::Element::bf16};
  for (std::int64_t j = keys.range.begin; j < keys.range.end; ++j, to += keys.k_rows.step) {
    gather_pairs(p_.k, p_.k.at(rows.batch, rows.kv_head, j), p_.head_size, to);
  }
}

/// V in pairs of keys.
template <typename Real>
void ScoreTiles<Real>::pair_values(const TileRows& rows, Keys<Real>& keys) const {
  const auto count = static_cast<int>(keys.range.end - keys.range.begin);
  const auto at = [&](int j) { return p_.v.at(rows.batch, rows.kv_head, keys.range.begin + j); };
  keys.v = scratch_.v;
  if (p_.v.stride[3] == 1) {
    for (int j = 0, used = 0; j < count; j += used) {  // pages have whole pairs
      used = static_cast<int>(p_.v.rows_in_piece(keys.range.begin + j, keys.range.end));
      plan_.bf16->interleave(at(j), 2 * p_.v.stride[2], used, p_.value_size,
                             scratch_.v + j / 2 * p_.value_size);
    }
    return;
  }
  auto* const two = reinterpret_cast<std::byte*>(scratch_.rows);
  const std::int64_t step = (p_.value_size + 1) / 2 * 4;
  for (int j = 0; j < count; j += 2) {
    const int used = std::min(2, count - j);
    for (int i = 0; i < used; ++i) gather_pairs(p_.v, at(j + i), p_.value_size, two + i * step);
    plan_.bf16->interleave(two, step, used, p_.value_size, scratch_.v + j / 2 * p_.value_size);
  }
}

template <typename Real>
void ScoreTiles<Real>::score(const Tile<Real>& tile, Keys<Real>& keys,
                             ScoredBlock<Real>* block) const {
  const TileRows& rows = tile.rows;
  block->range = intersection(keys.range, rows.some);
  if (block->range.empty()) return;
  // Whole pairs: what joins is hidden and changes no bit, and that the tile does not see all says
  // to look whether V is finite there.
  if (plan_.bf16 != nullptr) {
    block->range.begin -= block->range.begin % 2;
    block->range.end = std::min(block->range.end + block->range.end % 2, keys.range.end);
  }
  block->sight = fill_visible(p_, rows, block->range, kernels_.key_bits, block->visible);
  if (block->sight == Sight::none) {
    block->range = {};
    return;
  }
  keys_seen(rows, kernels_.lanes, block);
  const bool first = !std::exchange(keys.found, true);
  if (first) find(rows, keys);
  if (first && plan_.bf16 != nullptr) pair_keys(rows, keys);
  const bool placed = tile.few && keys.k_rows.at != nullptr && !p_.options.normalize_qk;
  if (plan_.bf16 == nullptr && (keys.dense || !placed)) load_keys(rows, keys);
  if (keys.dense && keys.with_values) load_values(rows, keys);
  if (keys.k_rows.at == nullptr) keys.k_rows = placed_rows(keys.k, keys.k_stride);
  const std::int64_t begin = block->range.begin;
  const std::int64_t offset = begin - keys.range.begin;
  KeyRows<Real> k{.k = keys.k, .stride = keys.k_stride, .placed = keys.k_rows, .norm = keys.norm};
  if (k.k != nullptr) k.k += offset * k.stride;
  if (k.norm != nullptr) k.norm += offset;
  k.placed.at = keys.k_rows.row(offset);
  keys.k_rows.next = nullptr;  // the first tile asks
  kernels::Ahead<Real> ahead;
  const PlacedRows& v = keys.v_rows;
  if (first && !tile.few && v.at != nullptr && v.element == kernels::Element::own &&
      plan_.bf16 == nullptr) {
    ahead.v = reinterpret_cast<const Real*>(v.row(offset));
    ahead.v_stride = v.step / static_cast<std::int64_t>(sizeof(Real));
    ahead.v_size = p_.value_size;
  }
  const std::byte* bias[kMaxTileRows];
  if (p_.bias.present && p_.bias.stride[3] == 1) {
    for (int r = 0; r < rows.count; ++r) {
      bias[r] = p_.bias.at(rows.batch, rows.head[r], rows.query[r], begin);
    }
    ahead.rows = bias;
    ahead.row_count = rows.count;
    ahead.row_bytes = block->keys() * static_cast<std::int64_t>(size_of(p_.bias.dtype));
  }
  ordered_scores(p_, plan_, scratch_, tile, k, ahead, block);
}

template class ScoreTiles<float>;
template class ScoreTiles<double>;

}  // namespace heed

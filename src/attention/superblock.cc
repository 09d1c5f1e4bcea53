// One task of the forward pass: some query rows against all keys of their KV head.
#include "attention/superblock.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "attention/staging.h"

namespace heed {
namespace {

using kernels::kBlockKeys;
using kernels::kMaxTileRows;
using kernels::kSplitKeys;

template <typename Real>
constexpr Real kMinusInf = -std::numeric_limits<Real>::infinity();

/// True if no element of rows of 16-bit elements is NaN or infinite.
bool halves_finite(const PlacedRows& rows, int count, std::int64_t size) {
  const std::uint16_t exponent = rows.element == kernels::Element::f16 ? 0x7C00 : 0x7F80;
  for (int j = 0; j < count; ++j) {
    std::uint16_t found = 0;
    for (std::int64_t x = 0; x < size; ++x) {
      std::uint16_t bits;
      std::memcpy(&bits, rows.row(j) + 2 * x, 2);
      found |= static_cast<std::uint16_t>((bits & exponent) == exponent);
    }
    if (found != 0) return false;
  }
  return true;
}

}  // namespace

template <typename Real>
Superblock<Real>::Superblock(const Problem& problem, const Plan<Real>& plan, std::byte* scratch)
    : p_(problem),
      plan_(plan),
      kernels_(*plan.kernels),
      scratch_(carve<Real>(problem, plan, scratch)),
      tiles_(problem, plan, scratch_) {}

template <typename Real>
void Superblock<Real>::run(std::int64_t task) {
  const TaskRows rows = plan_.rows_of_task(p_, task);
  const std::int64_t keys = p_.keys_of(rows.batch);
  assign_tiles(rows);
  for (std::int64_t first = some_.begin / kSplitKeys * kSplitKeys; first < some_.end;
       first += kSplitKeys) {
    fold_split({first, std::min(first + kSplitKeys, keys)});
  }
  for (int t = 0; t < count_; ++t) finish(scratch_.tiles[t]);
}

template <typename Real>
void Superblock<Real>::fold_part(const Parts& parts, std::int64_t part, Real* slots) {
  const Part own = parts.part(part);
  const TaskRows rows = plan_.rows_of_task(p_, own.task);
  assign_tiles(rows);
  for (std::int64_t split = own.first; split < own.end; ++split) {
    const std::int64_t first = split * kSplitKeys;
    fold_blocks({first, std::min(first + kSplitKeys, p_.keys_of(rows.batch))});
    Real* const slot = slots + (parts.slot_of(own.task) + split) * parts.slot;
    for (int t = 0; t < count_; ++t) {
      Tile<Real>& tile = scratch_.tiles[t];
      Real* const to = slot + t * parts.tile;
      to[0] = tile.touched ? Real{1} : Real{0};
      if (!tile.touched) continue;
      close_split(tile);
      const std::int64_t width = tile.vectors * kernels_.lanes;
      const State state = state_at(parts, slot, t);
      std::copy_n(tile.m, width, to + (state.m - to));
      std::copy_n(tile.l, width, to + (state.l - to));
      std::copy_n(tile.o, width * p_.value_size, to + (state.o - to));
    }
  }
}

template <typename Real>
void Superblock<Real>::merge_parts(const Parts& parts, std::int64_t task, const Real* slots) {
  const TaskRows rows = plan_.rows_of_task(p_, task);
  assign_tiles(rows);
  const std::int64_t splits = (p_.keys_of(rows.batch) + kSplitKeys - 1) / kSplitKeys;
  for (std::int64_t split = 0; split < splits; ++split) {
    const Real* const slot = slots + (parts.slot_of(task) + split) * parts.slot;
    for (int t = 0; t < count_; ++t) {
      Tile<Real>& tile = scratch_.tiles[t];
      const State state = state_at(parts, slot, t);
      if (*state.touched == 0) continue;
      const std::int64_t width = tile.vectors * kernels_.lanes;
      if (tile.run_touched) {
        kernels_.merge(tile.run_m, tile.run_l, tile.run_o, state.m, state.l, state.o, p_.value_size,
                       tile.vectors);
        continue;
      }
      std::copy_n(state.m, width, tile.run_m);
      std::copy_n(state.l, width, tile.run_l);
      if (tile.run_o == nullptr) std::swap(tile.o, tile.run_o);
      std::copy_n(state.o, width * p_.value_size, tile.run_o);
      tile.run_touched = true;
    }
  }
  for (int t = 0; t < count_; ++t) finish(scratch_.tiles[t]);
}

template <typename Real>
void Superblock<Real>::assign_tiles(const TaskRows& rows) {
  some_ = {p_.keys, 0};
  count_ = 0;
  for (std::int64_t row = rows.begin; row < rows.end; row += plan_.tile_step) {
    Tile<Real>& tile = scratch_.tiles[count_++];
    const auto count = static_cast<int>(std::min<std::int64_t>(plan_.tile_step, rows.end - row));
    tiles_.assign(tile, rows.batch, rows.kv_head, row, count);
    tile.touched = false;
    tile.run_touched = false;
    tile.stored = 0;
    if (tile.counted != nullptr) {
      tile.counted->run_sums = {};
      std::fill_n(tile.counted->run_key, kMaxTileRows, -1);
      std::fill_n(tile.counted->visible, kMaxTileRows, 0);
    }
    if (tile.rows.some.empty()) continue;
    some_ = {std::min(some_.begin, tile.rows.some.begin), std::max(some_.end, tile.rows.some.end)};
  }
  if (plan_.bf16 != nullptr) some_.begin -= some_.begin % 2;  // pairs count from key 0
}

template <typename Real>
bool Superblock<Real>::values_finite(const TileRows& rows, Keys<Real>& keys) const {
  if (keys.finite == Keys<Real>::Finite::unknown) {
    const auto count = static_cast<int>(keys.range.end - keys.range.begin);
    bool finite = false;
    if (keys.v_rows.at != nullptr && keys.v_rows.element != kernels::Element::own) {
      finite = halves_finite(keys.v_rows, count, p_.value_size);
    } else {
      tiles_.load_values(rows, keys);
      finite = plan_.bf16 != nullptr
                   ? plan_.bf16->all_finite(keys.v, (count + 1) / 2 * p_.value_size)
                   : kernels_.all_finite(keys.v, keys.v_stride, count, p_.value_size);
    }
    keys.finite = finite ? Keys<Real>::Finite::yes : Keys<Real>::Finite::no;
  }
  return keys.finite == Keys<Real>::Finite::yes;
}

template <typename Real>
void Superblock<Real>::fold_blocks(KeyRange split) {
  for (std::int64_t first = split.begin; first < split.end; first += plan_.block_keys) {
    const KeyRange block{first, std::min(first + plan_.block_keys, split.end)};
    const KeyRange seen = intersection(block, some_);
    if (seen.empty()) continue;
    Keys<Real> keys{.range = seen, .dense = false};
    for (int t = 0; t < count_; ++t) fold_block(scratch_.tiles[t], keys);
  }
}

template <typename Real>
void Superblock<Real>::fold_split(KeyRange split) {
  fold_blocks(split);
  for (int t = 0; t < count_; ++t) merge_split(scratch_.tiles[t]);
}

template <typename Real>
void Superblock<Real>::fold_block(Tile<Real>& tile, Keys<Real>& keys) {
  ScoredBlock<Real> block;
  tiles_.score(tile, keys, &block);
  if (block.range.empty()) return;
  const bool first = !tile.touched;  // of the split: o holds nothing yet
  if (first) {
    const std::int64_t width = tile.vectors * kernels_.lanes;
    std::fill_n(tile.m, width, kMinusInf<Real>);
    std::fill_n(tile.l, width, Real{0});
    tile.touched = true;
    if (tile.counted != nullptr) {
      tile.counted->sums = {};
      std::fill_n(tile.counted->key, kMaxTileRows, -1);
    }
  }
  const bool drops = p_.drop_below > 0;
  kernels::VisibleWords kept;
  if (drops) kernels_.kept(tile.draws, block.range.begin, block.keys(), tile.vectors, kept);
  if (p_.weights.present) store_scores(tile, block.range, drops ? kept : nullptr);
  Real decay[kMaxTileRows];
  weigh(tile, block, drops ? kept : nullptr, decay);
  add_values(tile, block, keys, first ? nullptr : decay);
}

/// The softmax step: weights in place of scores, those that are not kept (null: all are) as 0.
template <typename Real>
void Superblock<Real>::weigh(Tile<Real>& tile, const ScoredBlock<Real>& block,
                             const std::uint64_t* kept, Real* decay) {
  const int count = block.keys();
  if (tile.counted != nullptr) {
    observe(tile, block);
    kernels_.softmax_counted(scratch_.s, count, tile.vectors, block.highest, tile.m, tile.l, decay,
                             tile.counted->sums);
  } else if (tile.few) {
    kernels_.softmax_few(scratch_.s, count, block.highest, tile.m, tile.l, decay);
  } else if (plan_.bf16 != nullptr && kept == nullptr) {
    return plan_.bf16->softmax(scratch_.s, count, tile.vectors, block.highest, tile.m, tile.l,
                               decay);
  } else {
    kernels_.softmax(scratch_.s, count, tile.vectors, block.highest, tile.m, tile.l, decay);
  }
  if (kept != nullptr) kernels_.drop(scratch_.s, count, tile.vectors, kept, Real{1});
  if (plan_.bf16 != nullptr) plan_.bf16->pairs(scratch_.s, count, tile.vectors);
}

/// O = a O + P V; a null: O holds nothing yet.
template <typename Real>
void Superblock<Real>::add_values(Tile<Real>& tile, const ScoredBlock<Real>& block,
                                  Keys<Real>& keys, const Real* a) {
  const int count = block.keys();
  const std::int64_t offset = block.range.begin - keys.range.begin;
  const bool plain = block.sight == Sight::all || values_finite(tile.rows, keys);
  if (tile.few && plain) return add_few(tile, block, keys, a);
  tiles_.load_values(tile.rows, keys);
  const Real* const decay = tile.few ? nullptr : a;
  if (plan_.bf16 != nullptr) {
    const Real* const v = keys.v + offset / 2 * p_.value_size;
    if (plain) {
      plan_.bf16->values(v, block.seen, scratch_.s, p_.value_size, tile.vectors, decay, tile.o);
    } else {
      plan_.bf16->values_visible(v, count, scratch_.s, p_.value_size, tile.vectors, decay,
                                 block.visible, tile.o);
    }
  } else {
    const Real* const v = keys.v + offset * keys.v_stride;
    if (plain) {
      kernels_.values(v, keys.v_stride, block.seen, scratch_.s, p_.value_size, tile.vectors, decay,
                      tile.o);
    } else {
      kernels_.values_visible(v, keys.v_stride, count, scratch_.s, p_.value_size, tile.vectors,
                              decay, block.visible, tile.o);
    }
  }
  if (!tile.few) return;
  const std::int64_t width = tile.vectors * kernels_.lanes;
  for (int r = 0; r < tile.rows.count; ++r) {
    Real* const o = tile.rows_o + r * p_.value_size;
    for (std::int64_t x = 0; x < p_.value_size; ++x) {
      o[x] = std::fma(a == nullptr ? Real{0} : o[x], a == nullptr ? Real{0} : a[r],
                      tile.o[x * width + r]);
    }
  }
}

/// The same for a tile of few rows, whose output of the split is rows.
template <typename Real>
void Superblock<Real>::add_few(Tile<Real>& tile, const ScoredBlock<Real>& block, Keys<Real>& keys,
                               const Real* a) {
  tiles_.place_values(tile.rows, keys);
  const PlacedRows& v = keys.v_rows;
  const std::byte* const from = v.row(block.range.begin - keys.range.begin);
  const std::byte* const next = std::exchange(keys.v_rows.next, nullptr);  // the first tile asks
  if (plan_.bf16 != nullptr) {
    plan_.bf16->values_few(from, v.step, block.keys(), scratch_.s, tile.rows.count, p_.value_size,
                           a, tile.rows_o, next);
  } else {
    kernels_.values_few(from, v.step, v.element, block.keys(), scratch_.s, tile.rows.count,
                        p_.value_size, a, tile.rows_o, next);
  }
}

/// Statistics of a block's scores, before the softmax step takes their place.
template <typename Real>
void Superblock<Real>::observe(Tile<Real>& tile, const ScoredBlock<Real>& block) {
  Counted<Real>& counted = *tile.counted;
  Real seen[kMaxTileRows];
  Real first[kMaxTileRows];
  kernels_.observe(scratch_.s, block.keys(), tile.vectors,
                   block.sight == Sight::all ? nullptr : block.visible, block.highest, counted.sums,
                   seen, first);
  for (int r = 0; r < tile.rows.count; ++r) {
    counted.visible[r] += static_cast<std::int64_t>(seen[r]);
    if (block.highest[r] > tile.m[r]) {
      counted.key[r] = block.range.begin + static_cast<std::int64_t>(first[r]);
    }
  }
}

/// Leaves the split's state in m, l and o of a tile that it has touched.
template <typename Real>
void Superblock<Real>::close_split(Tile<Real>& tile) {
  tile.touched = false;
  if (!tile.few) return;
  const Real* rows[kernels::kFewRows];
  for (int r = 0; r < tile.rows.count; ++r) rows[r] = tile.rows_o + r * p_.value_size;
  kernels_.pack(rows, tile.rows.count, p_.value_size, tile.vectors, tile.o);
}

template <typename Real>
void Superblock<Real>::merge_split(Tile<Real>& tile) {
  if (!tile.touched) return;
  close_split(tile);
  if (tile.counted != nullptr) {
    Counted<Real>& counted = *tile.counted;
    for (int r = 0; r < tile.rows.count; ++r) {
      if (!tile.run_touched || tile.m[r] > tile.run_m[r]) counted.run_key[r] = counted.key[r];
    }
    if (tile.run_touched) {
      kernels_.merge_sums(tile.run_m, tile.run_l, counted.run_sums, tile.m, tile.l, counted.sums,
                          tile.vectors);
    } else {
      counted.run_sums = counted.sums;
    }
  }
  if (tile.run_touched) {
    kernels_.merge(tile.run_m, tile.run_l, tile.run_o, tile.m, tile.l, tile.o, p_.value_size,
                   tile.vectors);
    return;
  }
  // The run is still the identity: merging is taking over.
  const int width = tile.vectors * kernels_.lanes;
  std::copy_n(tile.m, width, tile.run_m);
  std::copy_n(tile.l, width, tile.run_l);
  std::swap(tile.o, tile.run_o);
  tile.run_touched = true;
}

template <typename Real>
void Superblock<Real>::finish(Tile<Real>& tile) {
  const TileRows& rows = tile.rows;
  const int width = tile.vectors * kernels_.lanes;
  if (!tile.run_touched) {
    std::fill_n(tile.run_m, width, kMinusInf<Real>);
    std::fill_n(tile.run_l, width, Real{0});
    if (tile.run_o == nullptr) std::swap(tile.o, tile.run_o);
    std::fill_n(tile.run_o, width * p_.value_size, Real{0});
  }
  Real keys_m[kMaxTileRows];  // the state without the sink, for the statistics
  Real keys_l[kMaxTileRows];
  if (tile.counted != nullptr) {
    std::copy_n(tile.run_m, width, keys_m);
    std::copy_n(tile.run_l, width, keys_l);
  }
  if (p_.options.sinks.present()) {
    Real one[kMaxTileRows];
    std::fill_n(one, width, Real{1});
    kernels_.merge(tile.run_m, tile.run_l, tile.run_o, tile.sink, one, nullptr, p_.value_size,
                   tile.vectors);
  }
  Real inverse[kMaxTileRows];
  Real lse[kMaxTileRows];
  kernels_.finish(tile.run_m, tile.run_l, tile.vectors, inverse, lse);
  if (p_.drop_below > 0) {
    for (int r = 0; r < width; ++r) inverse[r] *= static_cast<Real>(p_.keep_factor);
  }
  const auto output_row = [&](int r) {
    return p_.output.at(rows.batch, rows.head[r], rows.query[r]);
  };
  Real* row[kMaxTileRows];
  for (int r = 0; r < rows.count; ++r) {
    row[r] = plan_.stage_output ? scratch_.rows + r * scratch_.row_length
                                : reinterpret_cast<Real*>(output_row(r));
  }
  kernels_.unpack(tile.run_o, inverse, rows.count, p_.value_size, tile.vectors, row);
  for (int r = 0; plan_.stage_output && r < rows.count; ++r) {
    scatter_row(*plan_.convert, row[r], p_.value_size, p_.output, output_row(r));
  }
  for (int r = 0; p_.lse.present && r < rows.count; ++r) {
    scatter_row(lse + r, 1, p_.lse.at(rows.batch, rows.head[r], rows.query[r]), 1);
  }
  if (tile.counted != nullptr) write_statistics(tile, keys_m, keys_l);
  if (p_.weights.present) write_weights(tile, inverse);
}

template <typename Real>
void Superblock<Real>::write_statistics(const Tile<Real>& tile, const Real* keys_m,
                                        const Real* keys_l) {
  const TileRows& rows = tile.rows;
  Counted<Real>& counted = *tile.counted;
  for (int r = 0; r < rows.count; ++r) {
    // of NaN none is the largest, and a sink may have made it NaN
    if (keys_l[r] != 0 && std::isnan(tile.run_l[r])) counted.run_key[r] = -1;
  }
  kernels::RowNumbers<Real> numbers;
  kernels_.finish_sums(keys_m, keys_l, counted.run_sums, tile.run_m, tile.run_l, tile.vectors,
                       numbers);
  for (std::size_t i = 0; i < kStatisticFields.size(); ++i) {
    const View4& to = p_.statistics[i];
    if (!to.present) continue;
    const StatisticField& field = kStatisticFields[i];
    const bool key = field.view == &RowStatistics::max_weight_key;
    for (int r = 0; r < rows.count; ++r) {
      std::byte* const at = to.at(rows.batch, rows.head[r], rows.query[r]);
      if (field.is_count()) {
        scatter_row(key ? counted.run_key + r : counted.visible + r, 1, at, 1);
      } else if constexpr (sizeof(Real) == 4) {
        scatter_row(numbers.*field.f32 + r, 1, at, 1);
      } else {
        scatter_row(numbers.*field.f64 + r, 1, at, 1);
      }
    }
  }
}

/// The block's scores, base 2, to where the weights will be; -inf for the keys since the last block
/// and for those that are not kept (null: all are).
template <typename Real>
void Superblock<Real>::store_scores(Tile<Real>& tile, KeyRange range, const std::uint64_t* kept) {
  const TileRows& rows = tile.rows;
  const auto count = static_cast<int>(range.end - range.begin);
  const Real* s = scratch_.s;
  if (kept != nullptr) {
    std::copy_n(s, count * tile.vectors * kernels_.lanes, scratch_.b);
    kernels_.mask(scratch_.b, count, tile.vectors, kept);
    s = scratch_.b;
  }
  Real one[kMaxTileRows];
  std::fill_n(one, tile.vectors * kernels_.lanes, Real{1});
  fill_weights(rows, {tile.stored, range.begin}, kMinusInf<Real>);
  tile.stored = range.end;
  Real* row[kMaxTileRows];
  for (int r = 0; r < rows.count; ++r) {
    row[r] = plan_.stage_weights ? scratch_.rows + r * scratch_.row_length
                                 : reinterpret_cast<Real*>(weight_at(rows, r, range.begin));
  }
  kernels_.unpack(s, one, rows.count, count, tile.vectors, row);
  for (int r = 0; plan_.stage_weights && r < rows.count; ++r) {
    scatter_row(row[r], count, weight_at(rows, r, range.begin), p_.weights.stride[3]);
  }
}

/// P = 2^(S - m) / l in place of S, the rows still in cache.
template <typename Real>
void Superblock<Real>::write_weights(Tile<Real>& tile, const Real* inverse) {
  const TileRows& rows = tile.rows;
  for (int r = 0; r < rows.count; ++r) {
    if (!plan_.stage_weights) {
      kernels_.row_weights(reinterpret_cast<Real*>(weight_at(rows, r, 0)), tile.stored,
                           tile.run_m[r], inverse[r]);
      continue;
    }
    for (std::int64_t first = 0; first < tile.stored; first += kBlockKeys) {
      const std::int64_t count = std::min(kBlockKeys + std::int64_t{0}, tile.stored - first);
      gather_row(weight_at(rows, r, first), p_.weights.stride[3], count, scratch_.rows);
      kernels_.row_weights(scratch_.rows, count, tile.run_m[r], inverse[r]);
      scatter_row(scratch_.rows, count, weight_at(rows, r, first), p_.weights.stride[3]);
    }
  }
  fill_weights(rows, {tile.stored, p_.keys}, 0);
}

template <typename Real>
void Superblock<Real>::fill_weights(const TileRows& rows, KeyRange range, Real number) {
  for (int r = 0; r < rows.count; ++r) {
    for (std::int64_t j = range.begin; j < range.end; ++j) {
      std::memcpy(weight_at(rows, r, j), &number, sizeof number);
    }
  }
}

template <typename Real>
std::byte* Superblock<Real>::weight_at(const TileRows& rows, int r, std::int64_t key) const {
  return p_.weights.at(rows.batch, rows.head[r], rows.query[r], key);
}

template class Superblock<float>;
template class Superblock<double>;

}  // namespace heed

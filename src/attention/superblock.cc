// One task of the forward pass: some query rows against all keys of their KV head.
#include "attention/superblock.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "attention/element.h"
#include "attention/score_order.h"
#include "attention/staging.h"

namespace heed {
namespace {

using kernels::kBlockKeys;
using kernels::kLn2;
using kernels::kLog2e;
using kernels::kMaxTileRows;
using kernels::kSplitKeys;

template <typename Real>
constexpr Real kMinusInf = -std::numeric_limits<Real>::infinity();

KeyRange intersection(KeyRange a, KeyRange b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

/// x log2(e), finite where x is.
template <typename Real>
Real to_base2(Real x) {
  const Real t = x * kLog2e<Real>;
  const bool overflowed = std::isfinite(x) && !std::isfinite(t);
  return overflowed ? std::copysign(std::numeric_limits<Real>::max(), x) : t;
}

}  // namespace

template <typename Real>
Superblock<Real>::Superblock(const Problem& problem, const Plan<Real>& plan, std::byte* scratch)
    : p_(problem), plan_(plan), kernels_(*plan.kernels) {
  std::size_t bytes = 0;
  scratch_ = carve<Real>(problem, plan, scratch, &bytes);
}

template <typename Real>
void Superblock<Real>::run(std::int64_t task) {
  const std::int64_t group = task / plan_.row_blocks;
  assign_tiles(group / p_.kv_heads, group % p_.kv_heads,
               plan_.row_blocks - 1 - task % plan_.row_blocks);
  for (std::int64_t first = some_.begin / kSplitKeys * kSplitKeys; first < some_.end;
       first += kSplitKeys) {
    fold_split({first, std::min(first + kSplitKeys, p_.keys)});
  }
  for (int t = 0; t < tiles_; ++t) finish(scratch_.tiles[t]);
}

template <typename Real>
void Superblock<Real>::assign_tiles(std::int64_t b, std::int64_t kv_head, std::int64_t row_block) {
  batch_ = b;
  kv_head_ = kv_head;
  some_ = {p_.keys, 0};
  tiles_ = 0;
  const std::int64_t begin = row_block * plan_.task_rows;
  const std::int64_t end = std::min(begin + plan_.task_rows, p_.rows());
  for (std::int64_t row = begin; row < end; row += plan_.tile_rows()) {
    Tile<Real>& tile = scratch_.tiles[tiles_++];
    const auto count = static_cast<int>(std::min<std::int64_t>(plan_.tile_rows(), end - row));
    tile.rows.assign(p_, b, kv_head, row, count);
    tile.vectors = (count + kernels_.lanes - 1) / kernels_.lanes;
    tile.touched = false;
    tile.run_touched = false;
    load_constants(tile);
    if (tile.counted != nullptr) {
      tile.counted->run_sums = {};
      std::fill_n(tile.counted->run_key, kMaxTileRows, -1);
      std::fill_n(tile.counted->visible, kMaxTileRows, 0);
    }
    if (tile.rows.some.empty()) continue;
    load_queries(tile);
    some_ = {std::min(some_.begin, tile.rows.some.begin), std::max(some_.end, tile.rows.some.end)};
  }
}

template <typename Real>
void Superblock<Real>::load_constants(Tile<Real>& tile) const {
  const AttentionOptions& o = p_.options;
  const TileRows& rows = tile.rows;
  const int width = tile.vectors * kernels_.lanes;
  std::fill_n(tile.c, width, plan_.c);
  if (!o.scale.each.present() && !o.alibi.present() && !o.sinks.present()) return;
  for (int r = 0; r < width; ++r) {
    const int used = r < rows.count ? r : 0;  // spare lanes hold what the first row has
    const std::int64_t h = rows.head[used];
    if (o.scale.each.present()) {
      tile.c[r] = static_cast<Real>(entry(o.scale.each, h)) * kLog2e<Real>;
    }
    if (o.alibi.present()) {
      tile.slope[r] = to_base2(narrow<Real>(entry(o.alibi, h)));
      tile.position[r] = position_of(p_, batch_, rows.query[used]);
    }
    if (o.sinks.present()) tile.sink[r] = to_base2(narrow<Real>(entry(o.sinks, h)));
  }
}

template <typename Real>
void Superblock<Real>::load_queries(Tile<Real>& tile) {
  const TileRows& rows = tile.rows;
  const Real* row[kMaxTileRows];
  for (int r = 0; r < rows.count; ++r) {
    const std::byte* at = p_.q.at(rows.batch, rows.head[r], rows.query[r]);
    row[r] = reinterpret_cast<const Real*>(at);
    if (!plan_.stage_q) continue;
    Real* const dense = scratch_.rows + r * scratch_.row_length;
    gather_row(at, p_.q.stride[3], p_.head_size, dense);
    row[r] = dense;
  }
  kernels_.pack(row, rows.count, p_.head_size, tile.vectors, tile.q);
  if (!p_.options.normalize_qk) return;
  Real norm[kMaxTileRows];
  kernels_.reciprocal_norms(tile.q, p_.head_size, tile.vectors, norm);
  kernels_.scale_rows(tile.q, p_.head_size, tile.vectors, norm);
}

template <typename Real>
void Superblock<Real>::load(Keys& keys) {
  if (keys.loaded) return;
  keys.loaded = true;
  const KeyRange range = keys.range;
  const std::int64_t count = range.end - range.begin;
  const auto rows_of = [&](const View4& view, bool stage, std::int64_t size, Real* dense,
                           std::int64_t* stride) -> const Real* {
    const std::byte* at = view.at(batch_, kv_head_, range.begin);
    *stride = stage ? size : view.stride[2];
    if (!stage) return reinterpret_cast<const Real*>(at);
    const std::int64_t step = view.stride[2] * static_cast<std::int64_t>(sizeof(Real));
    for (std::int64_t j = 0; j < count; ++j) {
      gather_row(at + j * step, view.stride[3], size, dense + j * size);
    }
    return dense;
  };
  keys.k = rows_of(p_.k, plan_.stage_k, p_.head_size, scratch_.k, &keys.k_stride);
  if (keys.with_values)
    keys.v = rows_of(p_.v, plan_.stage_v, p_.value_size, scratch_.v, &keys.v_stride);
  if (!p_.options.normalize_qk) return;
  // Norms of keys come from the same chain as those of queries: keys in lanes.
  const int width = plan_.tile_rows();
  for (std::int64_t first = 0; first < count; first += width) {
    const Real* row[kMaxTileRows];
    const auto rows = static_cast<int>(std::min<std::int64_t>(width, count - first));
    for (int r = 0; r < rows; ++r) row[r] = keys.k + (first + r) * keys.k_stride;
    kernels_.pack(row, rows, p_.head_size, kernels_.highest_vectors, scratch_.packed_k);
    kernels_.reciprocal_norms(scratch_.packed_k, p_.head_size, kernels_.highest_vectors,
                              scratch_.key_norm + first);
  }
  keys.norm = scratch_.key_norm;
}

template <typename Real>
bool Superblock<Real>::values_finite(Keys& keys) const {
  if (keys.finite == Keys::Finite::unknown) {
    const auto count = static_cast<int>(keys.range.end - keys.range.begin);
    const bool finite = kernels_.all_finite(keys.v, keys.v_stride, count, p_.value_size);
    keys.finite = finite ? Keys::Finite::yes : Keys::Finite::no;
  }
  return keys.finite == Keys::Finite::yes;
}

template <typename Real>
void Superblock<Real>::fold_split(KeyRange split) {
  for (std::int64_t first = split.begin; first < split.end; first += kBlockKeys) {
    const KeyRange block{first, std::min(first + kBlockKeys, split.end)};
    const KeyRange seen = intersection(block, some_);
    if (seen.empty()) continue;
    Keys keys{.range = seen};
    for (int t = 0; t < tiles_; ++t) fold_block(scratch_.tiles[t], keys);
  }
  for (int t = 0; t < tiles_; ++t) merge_split(scratch_.tiles[t]);
}

template <typename Real>
KeyRange Superblock<Real>::score(const Tile<Real>& tile, Keys& keys, Sight* sight,
                                 std::uint64_t* visible, Real* highest) {
  const KeyRange range = intersection(keys.range, tile.rows.some);
  if (range.empty()) return {};
  *sight = fill_visible(p_, tile.rows, range, kernels_.key_bits, visible);
  if (*sight == Sight::none) return {};
  const bool first = !keys.loaded;
  load(keys);
  const std::int64_t offset = range.begin - keys.range.begin;
  const Real* const norm = keys.norm == nullptr ? nullptr : keys.norm + offset;
  kernels::Ahead<Real> ahead;
  if (first && keys.with_values) {
    ahead.v = keys.v + offset * keys.v_stride;
    ahead.v_stride = keys.v_stride;
    ahead.v_size = p_.value_size;
  }
  const std::byte* bias[kMaxTileRows];
  if (p_.bias.present && p_.bias.stride[3] == 1) {
    const TileRows& rows = tile.rows;
    for (int r = 0; r < rows.count; ++r) {
      bias[r] = p_.bias.at(rows.batch, rows.head[r], rows.query[r], range.begin);
    }
    ahead.rows = bias;
    ahead.row_count = rows.count;
    ahead.row_bytes = (range.end - range.begin) * static_cast<std::int64_t>(size_of(p_.bias.dtype));
  }
  *sight = ordered_scores(p_, plan_, scratch_, tile, range, keys.k + offset * keys.k_stride,
                          keys.k_stride, norm, ahead, *sight, visible, highest);
  return range;
}

template <typename Real>
void Superblock<Real>::fold_block(Tile<Real>& tile, Keys& keys) {
  kernels::VisibleWords visible;
  Real highest[kMaxTileRows];
  Sight sight = Sight::all;
  const KeyRange range = score(tile, keys, &sight, visible, highest);
  if (range.empty()) return;
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
  const int count = static_cast<int>(range.end - range.begin);
  const Real* const v = keys.v + (range.begin - keys.range.begin) * keys.v_stride;
  Real decay[kMaxTileRows];
  if (tile.counted == nullptr) {
    kernels_.softmax(scratch_.s, count, tile.vectors, highest, tile.m, tile.l, decay);
  } else {
    observe(tile, range, sight == Sight::all ? nullptr : visible, highest);
    kernels_.softmax_counted(scratch_.s, count, tile.vectors, highest, tile.m, tile.l, decay,
                             tile.counted->sums);
  }
  const Real* const a = first ? nullptr : decay;
  if (sight == Sight::all || values_finite(keys)) {
    kernels_.values(v, keys.v_stride, count, scratch_.s, p_.value_size, tile.vectors, a, tile.o);
  } else {
    kernels_.values_visible(v, keys.v_stride, count, scratch_.s, p_.value_size, tile.vectors, a,
                            visible, tile.o);
  }
}

/// Statistics of a block's scores, before the softmax step takes their place.
template <typename Real>
void Superblock<Real>::observe(Tile<Real>& tile, KeyRange range, const std::uint64_t* visible,
                               const Real* highest) {
  Counted<Real>& counted = *tile.counted;
  Real seen[kMaxTileRows];
  Real first[kMaxTileRows];
  kernels_.observe(scratch_.s, static_cast<int>(range.end - range.begin), tile.vectors, visible,
                   highest, counted.sums, seen, first);
  for (int r = 0; r < tile.rows.count; ++r) {
    counted.visible[r] += static_cast<std::int64_t>(seen[r]);
    if (highest[r] > tile.m[r]) counted.key[r] = range.begin + static_cast<std::int64_t>(first[r]);
  }
}

template <typename Real>
void Superblock<Real>::merge_split(Tile<Real>& tile) {
  if (!tile.touched) return;
  tile.touched = false;
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
    scatter_row(row[r], p_.value_size, output_row(r), p_.output.stride[3]);
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
    if (std::isnan(keys_l[r])) counted.run_key[r] = -1;  // of NaN none is the largest
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

/// P = 2^(S - m) / l, from scores computed once more: no more memory than the result.
template <typename Real>
void Superblock<Real>::write_weights(Tile<Real>& tile, const Real* inverse) {
  const TileRows& rows = tile.rows;
  Real one[kMaxTileRows];
  std::fill_n(one, tile.vectors * kernels_.lanes, Real{1});
  const auto at = [&](int r, std::int64_t key) {
    return p_.weights.at(rows.batch, rows.head[r], rows.query[r], key);
  };
  const auto clear = [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t step = p_.weights.stride[3] * static_cast<std::int64_t>(sizeof(Real));
    for (int r = 0; r < rows.count; ++r) {
      for (std::int64_t j = begin; j < end; ++j)
        std::memset(at(r, begin) + (j - begin) * step, 0, sizeof(Real));
    }
  };
  std::int64_t written = 0;
  for (std::int64_t first = rows.some.begin / kBlockKeys * kBlockKeys; first < rows.some.end;
       first += kBlockKeys) {
    const KeyRange block = intersection({first, first + kBlockKeys}, rows.some);
    if (block.empty()) continue;
    Keys keys{.range = block, .with_values = false};
    kernels::VisibleWords visible;
    Real highest[kMaxTileRows];
    Sight sight = Sight::all;
    const KeyRange range = score(tile, keys, &sight, visible, highest);
    if (range.empty()) continue;
    const int count = static_cast<int>(range.end - range.begin);
    kernels_.weights(scratch_.s, count, tile.vectors, tile.run_m, inverse);
    clear(written, range.begin);
    written = range.end;
    Real* row[kMaxTileRows];
    for (int r = 0; r < rows.count; ++r) {
      row[r] = plan_.stage_weights ? scratch_.rows + r * scratch_.row_length
                                   : reinterpret_cast<Real*>(at(r, range.begin));
    }
    kernels_.unpack(scratch_.s, one, rows.count, count, tile.vectors, row);
    for (int r = 0; plan_.stage_weights && r < rows.count; ++r) {
      scatter_row(row[r], count, at(r, range.begin), p_.weights.stride[3]);
    }
  }
  clear(written, p_.keys);
}

template class Superblock<float>;
template class Superblock<double>;

}  // namespace heed

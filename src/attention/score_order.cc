// The one order of what happens to a score, from product to mask.
#include "attention/score_order.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/element.h"
#include "attention/staging.h"

namespace heed {
namespace {

using kernels::kLn2;
using kernels::kLog2e;
using kernels::kMaxTileRows;

/// t = fma(-slope, |p - j|, t)
template <typename Real>
void add_alibi(const kernels::Kernels<Real>& kernels, const Tile<Real>& tile, KeyRange range,
               Real* s) {
  constexpr std::int64_t kFar = std::int64_t{1} << 30;
  const int keys = static_cast<int>(range.end - range.begin);
  const int width = tile.vectors * kernels.lanes;
  std::int32_t distance[kMaxTileRows] = {};
  bool near = true;
  for (int r = 0; r < tile.rows.count; ++r) {
    const __int128 apart = static_cast<__int128>(tile.position[r]) - range.begin;
    near &= -kFar < apart && apart < kFar;
    distance[r] = static_cast<std::int32_t>(near ? apart : 0);
  }
  if (near) return kernels.alibi(s, keys, tile.vectors, tile.slope, distance);
  for (int j = 0; j < keys; ++j) {
    for (int r = 0; r < tile.rows.count; ++r) {
      const __int128 apart = static_cast<__int128>(tile.position[r]) - (range.begin + j);
      Real& t = s[j * width + r];
      t = std::fma(-tile.slope[r], static_cast<Real>(apart < 0 ? -apart : apart), t);
    }
  }
}

/// t = t + bias, and bits of -inf cleared. Returns true if there were some.
template <typename Real>
bool add_bias(const Problem& p, const kernels::Kernels<Real>& kernels, const Scratch<Real>& scratch,
              const Tile<Real>& tile, KeyRange range, std::uint64_t* visible) {
  pack_bias(p.bias, kernels, scratch, tile, range);
  const auto keys = static_cast<int>(range.end - range.begin);
  return kernels.add_bias(scratch.s, keys, tile.vectors, scratch.b, visible);
}

/// The one of Real; `check` has refused a score_mod that has only the other.
template <typename Real>
bool is_set(const ScoreMod& mod) {
  if constexpr (sizeof(Real) == 4) {
    return mod.f32 != nullptr;
  } else {
    return mod.f64 != nullptr;
  }
}

/// function(rectangle) for the rows of each head: rectangles of natural scores that begin at s.
template <typename Real>
void each_rectangle(const kernels::Kernels<Real>& kernels, Real* s, const Tile<Real>& tile,
                    KeyRange range, void (*function)(const BasicScoreTile<Real>&, const void*),
                    const void* context) {
  const TileRows& rows = tile.rows;
  const int keys = static_cast<int>(range.end - range.begin);
  const int width = tile.vectors * kernels.lanes;
  for (int first = 0; first < rows.count;) {
    int end = first + 1;
    while (end < rows.count && rows.head[end] == rows.head[first]) ++end;
    function({s + first, 1, width, rows.batch, rows.head[first], rows.query[first], range.begin,
              end - first, keys},
             context);
    first = end;
  }
}

/// t = score_mod(t), in natural units, and bits of -inf cleared. Returns true if there were some.
template <typename Real>
bool apply_score_mod(const Problem& p, const kernels::Kernels<Real>& kernels,
                     const Scratch<Real>& scratch, const Tile<Real>& tile, KeyRange range,
                     std::uint64_t* visible) {
  Real* const s = scratch.s;
  const TileRows& rows = tile.rows;
  const int keys = static_cast<int>(range.end - range.begin);
  const int width = tile.vectors * kernels.lanes;
  const ScoreMod& mod = p.options.score_mod;
  kernels.scale_scores(s, keys, tile.vectors, kLn2<Real>);
  if (scratch.unmodified != nullptr) std::copy_n(s, keys * width, scratch.unmodified);
  if constexpr (sizeof(Real) == 4) {
    each_rectangle(kernels, s, tile, range, mod.f32, mod.context);
  } else {
    each_rectangle(kernels, s, tile, range, mod.f64, mod.context);
  }
  kernels.scale_scores(s, keys, tile.vectors, kLog2e<Real>);
  bool found = false;
  for (int j = 0; j < keys; ++j) {
    for (int r = 0; r < rows.count; ++r) {
      if (s[j * width + r] != -std::numeric_limits<Real>::infinity()) continue;
      visible[j] &= ~(std::uint64_t{1} << r);
      found = true;
    }
  }
  return found;
}

/// s = c * (q . k)
template <typename Real>
void multiply(const Problem& p, const Plan<Real>& plan, const Scratch<Real>& scratch,
              const Tile<Real>& tile, const KeyRows<Real>& rows, const kernels::Ahead<Real>& ahead,
              ScoredBlock<Real>* block) {
  const kernels::Kernels<Real>& kernels = *plan.kernels;
  const int keys = block->keys();
  const PlacedRows& k = rows.placed;
  if (tile.key_by_key && plan.bf16 != nullptr) {
    plan.bf16->scores_by_key(k.at, k.step, keys, tile.q, p.head_size, tile.c[0], scratch.s,
                             block->highest);
  } else if (tile.key_by_key) {
    kernels.scores_by_key(k.at, k.step, k.element, keys, tile.q, p.head_size, tile.c[0], scratch.s,
                          block->highest);
  } else if (tile.few && plan.bf16 != nullptr) {
    plan.bf16->scores_few(k.at, k.step, keys, tile.q, tile.rows.count, p.head_size, tile.c,
                          scratch.s, block->highest, k.next);
  } else if (tile.few) {
    kernels.scores_few(k.at, k.step, k.element, keys, tile.q, tile.rows.count, p.head_size, tile.c,
                       scratch.s, block->highest, k.next);
  } else if (plan.bf16 != nullptr) {
    plan.bf16->scores(k.at, k.step, keys, block->seen, tile.q, p.head_size, tile.vectors, tile.c,
                      scratch.s, block->highest);
  } else {
    kernels.scores(rows.k, rows.stride, keys, block->seen, tile.q, p.head_size, tile.vectors,
                   tile.c, scratch.s, block->highest, ahead);
  }
}

/// 0 for the scores that no product was computed for: they are masked, but the C library's tanh,
/// which float64 has, branches on them, and memory that was never written is not to decide
/// anything.
template <typename Real>
void clear_unseen(const ScoredBlock<Real>& block, int vectors, int lanes, Real* s) {
  for (int n = 0; n < vectors; ++n) {
    for (int j = block.seen[n]; j < block.keys(); ++j) {
      std::fill_n(s + (static_cast<std::ptrdiff_t>(j) * vectors + n) * lanes, lanes, Real{0});
    }
  }
}

}  // namespace

template <typename Real>
void pack_bias(const View4& bias, const kernels::Kernels<Real>& kernels,
               const Scratch<Real>& scratch, const Tile<Real>& tile, KeyRange range) {
  const TileRows& rows = tile.rows;
  const std::int64_t keys = range.end - range.begin;
  constexpr DType kOwn = sizeof(Real) == 4 ? DType::f32 : DType::f64;
  const bool in_place = bias.dtype == kOwn && usable_in_place<Real>(bias);
  const auto step = bias.stride[3] * static_cast<std::int64_t>(size_of(bias.dtype));
  const Real* row[kMaxTileRows];
  for (int r = 0; r < rows.count; ++r) {
    const std::byte* at = bias.at(rows.batch, rows.head[r], rows.query[r], range.begin);
    if (in_place) {
      row[r] = reinterpret_cast<const Real*>(at);
      continue;
    }
    Real* const dense = scratch.rows + r * scratch.row_length;
    for (std::int64_t j = 0; j < keys; ++j) dense[j] = load_real<Real>(at + j * step, bias.dtype);
    row[r] = dense;
  }
  kernels.pack(row, rows.count, keys, tile.vectors, scratch.b);
}

template <typename Real>
void ordered_scores(const Problem& p, const Plan<Real>& plan, const Scratch<Real>& scratch,
                    const Tile<Real>& tile, const KeyRows<Real>& rows,
                    const kernels::Ahead<Real>& ahead, ScoredBlock<Real>* block) {
  const kernels::Kernels<Real>& kernels = *plan.kernels;
  const AttentionOptions& options = p.options;
  const KeyRange range = block->range;
  const int keys = block->keys();
  std::uint64_t* const visible = block->visible;
  const bool has_mod = is_set<Real>(options.score_mod);
  if (block->sight == Sight::all && (p.bias.present || has_mod)) {
    std::fill_n(visible, keys, tile.rows.full_word());
  }
  multiply(p, plan, scratch, tile, rows, ahead, block);
  if (options.normalize_qk) kernels.scale_keys(scratch.s, keys, tile.vectors, rows.norm);
  if (options.softcap) {
    const Real cap = static_cast<Real>(*options.softcap) * kLog2e<Real>;
    if constexpr (sizeof(Real) == 8) {
      clear_unseen(*block, tile.vectors, kernels.lanes, scratch.s);
    }
    kernels.softcap(scratch.s, keys, tile.vectors, cap);
    if (scratch.capped != nullptr) {
      std::copy_n(scratch.s, keys * tile.vectors * kernels.lanes, scratch.capped);
    }
  }
  if (options.alibi.present()) add_alibi(kernels, tile, range, scratch.s);
  bool masked = block->sight == Sight::some;
  if (p.bias.present) masked |= add_bias(p, kernels, scratch, tile, range, visible);
  if (has_mod) masked |= apply_score_mod(p, kernels, scratch, tile, range, visible);
  if (masked) kernels.mask(scratch.s, keys, tile.vectors, visible);
  const bool changed = masked || options.normalize_qk || options.softcap.has_value() ||
                       options.alibi.present() || p.bias.present || has_mod;
  if (changed) kernels.maxima(scratch.s, keys, tile.vectors, block->highest);
  block->sight = masked ? Sight::some : Sight::all;
}

template <typename Real>
void score_mod_derivative(const Problem& p, const Plan<Real>& plan, const Tile<Real>& tile,
                          KeyRange range, Real* s) {
  const ScoreMod& mod = p.options.score_mod;
  if constexpr (sizeof(Real) == 4) {
    each_rectangle(*plan.kernels, s, tile, range, mod.derivative_f32, mod.context);
  } else {
    each_rectangle(*plan.kernels, s, tile, range, mod.derivative_f64, mod.context);
  }
}

template void pack_bias<float>(const View4&, const kernels::Kernels<float>&, const Scratch<float>&,
                               const Tile<float>&, KeyRange);
template void pack_bias<double>(const View4&, const kernels::Kernels<double>&,
                                const Scratch<double>&, const Tile<double>&, KeyRange);
template void score_mod_derivative<float>(const Problem&, const Plan<float>&, const Tile<float>&,
                                          KeyRange, float*);
template void score_mod_derivative<double>(const Problem&, const Plan<double>&, const Tile<double>&,
                                           KeyRange, double*);
template void ordered_scores<float>(const Problem&, const Plan<float>&, const Scratch<float>&,
                                    const Tile<float>&, const KeyRows<float>&,
                                    const kernels::Ahead<float>&, ScoredBlock<float>*);
template void ordered_scores<double>(const Problem&, const Plan<double>&, const Scratch<double>&,
                                     const Tile<double>&, const KeyRows<double>&,
                                     const kernels::Ahead<double>&, ScoredBlock<double>*);

}  // namespace heed

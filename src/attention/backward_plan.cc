// Everything about a backward call that is decided once: who does what, and in which memory.
#include "attention/backward_plan.h"

#include <algorithm>

#include "attention/carver.h"
#include "attention/lists.h"
#include "attention/staging.h"

namespace heed {
namespace {

/// Packed and plain rows of the tiles that visit a block of keys together stay below this: they
/// share the second-level cache with the block and its gradients.
constexpr double kRowBytes = 400 * 1024;
constexpr std::int64_t kMostRows = 256;
/// Slots of chunks that are tasks: more would only even out their ends.
constexpr std::int64_t kSlotBytes = std::int64_t{32} << 20;
constexpr double kFlopsOfThread = 1e6;
constexpr std::int64_t kTasksPerWorker = 4;

std::int64_t blocks_of(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

/// D elements in whole vectors, and not a stride whose rows collide in a first-level cache.
template <typename Real>
std::int64_t padded(std::int64_t size, std::int64_t lanes) {
  return blocks_of(size, lanes) * lanes;
}

/// Rows x keys of a KV head of a batch entry.
double pairs_of(const Problem& p, std::int64_t b) {
  return static_cast<double>(p.rows_of(b)) * static_cast<double>(p.keys_of(b));
}

/// Batch entries by their work, where they differ and do not take turns.
template <typename Real>
void order_entries(const BackwardProblem& p, BackwardPlan<Real>* plan) {
  const Problem& f = p.forward;
  if (f.ragged == nullptr || p.sums(0) || plan->families == 0) return;
  for (std::int64_t b = 0; b < f.batches; ++b) plan->order.push_back(b);
  std::stable_sort(plan->order.begin(), plan->order.end(),
                   [&](std::int64_t a, std::int64_t b) { return pairs_of(f, a) > pairs_of(f, b); });
  const std::int64_t families = p.sums(1) ? 1 : f.kv_heads;  // of an entry
  std::int64_t tiles = 0;
  for (const std::int64_t b : plan->order) {
    plan->tiles_before.push_back(tiles);
    tiles += families * plan->tiles_of(f, b);
  }
}

}  // namespace

template <typename Real>
Group BackwardPlan<Real>::group_of(const BackwardProblem& p, std::int64_t family,
                                   std::int64_t member) const {
  const std::int64_t heads = p.forward.kv_heads;
  const auto entry = [this](std::int64_t n) {
    return order.empty() ? n : order[static_cast<std::size_t>(n)];
  };
  if (p.sums(0) && p.sums(1)) return {member / heads, member % heads};
  if (p.sums(0)) return {member, family};
  if (p.sums(1)) return {entry(family), member};
  return {entry(family / heads), family % heads};
}

template <typename Real>
std::int64_t BackwardPlan<Real>::slot_of(const BackwardProblem& p, std::int64_t family) const {
  if (order.empty()) return family * group_tiles;
  const std::int64_t heads = p.sums(1) ? 1 : p.forward.kv_heads;
  const auto n = static_cast<std::size_t>(family / heads);
  if (n == order.size()) {
    return n == 0 ? 0 : tiles_before.back() + heads * tiles_of(p.forward, order.back());
  }
  return tiles_before[n] + family % heads * tiles_of(p.forward, order[n]);
}

template <typename Real>
BackwardPlan<Real> make_backward_plan(const BackwardProblem& p, int workers) {
  const Problem& f = p.forward;
  BackwardPlan<Real> plan;
  plan.scores = make_plan<Real>(f, workers);
  const std::int64_t lanes = plan.scores.kernels->lanes;
  const std::int64_t width = plan.tile_rows();
  plan.padded_d = padded<Real>(f.head_size, lanes);
  plan.padded_dv = padded<Real>(f.value_size, lanes);
  plan.chain_tiles = static_cast<int>(kChainRows / width);
  const double row_bytes = sizeof(Real) * (3.0 * static_cast<double>(f.head_size) +
                                           2.0 * static_cast<double>(f.value_size));
  std::int64_t rows = kMostRows;
  while (rows > kChainRows && static_cast<double>(rows) * row_bytes > kRowBytes) rows /= 2;
  rows = std::min(rows, blocks_of(f.rows(), kChainRows) * kChainRows);
  plan.tiles = static_cast<int>(rows / width);
  plan.group_tiles = blocks_of(f.rows(), width);
  std::int64_t columns = p.wants_dq() ? f.head_size : 0;
  if (p.dalibi.present) plan.alibi_sums = columns++;
  if (p.ds_norms.present) plan.norm_sums = columns++;
  plan.tile_slot = columns * width;
  plan.chunks = blocks_of(f.keys, kernels::kSplitKeys);

  // Without query heads too: keys that nobody reads have gradients, which are 0.
  const std::int64_t groups = p.has_work() ? f.batches * f.kv_heads : 0;
  plan.members = groups == 0 ? 0 : (p.sums(0) ? f.batches : 1) * (p.sums(1) ? f.kv_heads : 1);
  plan.families = groups == 0 ? 0 : groups / plan.members;
  double pairs = 0;  // of a KV head in all batch entries
  if (f.ragged == nullptr) pairs = static_cast<double>(f.batches) * pairs_of(f, 0);
  for (std::int64_t b = 0; f.ragged != nullptr && b < f.batches; ++b) pairs += pairs_of(f, b);
  const double flops =
      (6.0 * static_cast<double>(f.head_size) + 4.0 * static_cast<double>(f.value_size)) * pairs *
      static_cast<double>(f.kv_heads);
  plan.small = flops < 2 * kFlopsOfThread;
  workers = static_cast<int>(std::clamp(flops / kFlopsOfThread, 1.0, static_cast<double>(workers)));
  with_lists(f.function, [&] { order_entries(p, &plan); });
  if (plan.chunks > 1 && workers > 1 && !p.sums(3)) {
    // A family is heavy that is more than its share of a task; without an order all are alike.
    const auto heavy = [&](std::int64_t family) {
      if (plan.order.empty()) return plan.families < workers * kTasksPerWorker;
      const double own = pairs_of(f, plan.group_of(p, family, 0).batch);
      const double turn =
          pairs * static_cast<double>(f.kv_heads) / static_cast<double>(plan.members);
      return own * static_cast<double>(workers * kTasksPerWorker) > turn;
    };
    while (plan.heavy < plan.families && heavy(plan.heavy)) ++plan.heavy;
  }
  plan.slot_tiles = plan.slot_of(p, plan.heavy);
  plan.wave = plan.chunks;
  if (plan.slot_tiles * plan.tile_slot > 0) {
    const double one =
        static_cast<double>(plan.slot_tiles) * static_cast<double>(plan.tile_slot) * sizeof(Real);
    const auto fit = static_cast<std::int64_t>(static_cast<double>(kSlotBytes) / one);
    plan.wave = std::clamp(fit, std::min(plan.chunks, blocks_of(workers, plan.heavy)), plan.chunks);
  }
  const std::int64_t tasks = plan.heavy * plan.wave + (plan.families - plan.heavy);
  plan.workers = static_cast<int>(std::clamp<std::int64_t>(tasks, 1, workers));
  plan.scratch_bytes = carve_backward<Real>(p, plan, nullptr).bytes;
  return plan;
}

template <typename Real>
BackwardScratch<Real> carve_backward(const BackwardProblem& p, const BackwardPlan<Real>& plan,
                                     std::byte* base) {
  const Problem& f = p.forward;
  Carver carver(f.function, base);
  BackwardScratch<Real> scratch{};
  const std::int64_t width = plan.tile_rows();
  const std::int64_t block = kernels::kBlockKeys * width;
  const auto many = [](bool needed, std::int64_t count) { return needed ? count : 0; };
  scratch.tiles = carver.take<RowTile<Real>>(plan.tiles);
  for (int t = 0; t < plan.tiles; ++t) {
    Real* const q = carver.take<Real>(f.head_size, width);
    Real* const d_output =
        carver.take<Real>(many(p.wants_scores() || p.dsinks.present, f.value_size), width);
    Real* const dq = carver.take<Real>(plan.tile_slot);
    Real* const q_rows = carver.take<Real>(many(p.dk.present, plan.padded_d), width);
    Real* const d_output_rows = carver.take<Real>(plan.padded_dv, width);
    if (base == nullptr) continue;
    RowTile<Real>& tile = *new (scratch.tiles + t) RowTile<Real>;
    tile.tile.q = q;
    tile.d_output = d_output;
    tile.dq = dq;
    tile.q_rows = q_rows;
    tile.d_output_rows = d_output_rows;
  }
  // The tiles of a chain have their scores at the same time; chains take turns.
  for (int t = 0; t < std::min(plan.chain_tiles, plan.tiles); ++t) {
    Real* const s = carver.take<Real>(block);
    Real* const ds = carver.take<Real>(many(p.wants_scores(), block));
    for (int u = t; base != nullptr && u < plan.tiles; u += plan.chain_tiles) {
      scratch.tiles[u].s = s;
      scratch.tiles[u].ds = ds;
    }
  }
  scratch.dk = carver.take<Real>(many(p.dk.present, plan.padded_d), kernels::kSplitKeys);
  scratch.dv = carver.take<Real>(many(p.dv.present, plan.padded_dv), kernels::kSplitKeys);
  scratch.slot =
      carver.take<Real>(many(plan.heavy < plan.families, plan.group_tiles), plan.tile_slot);
  scratch.packed_o =
      carver.take<Real>(many(p.wants_scores() || p.dsinks.present, f.value_size), width);
  Scratch<Real>& scores = scratch.scores;
  const AttentionOptions& options = f.options;
  const bool modified = options.score_mod.f32 != nullptr || options.score_mod.f64 != nullptr;
  scores.b = carver.take<Real>(many(f.bias.present, block));
  scores.capped = carver.take<Real>(many(options.softcap.has_value(), block));
  scores.unmodified = carver.take<Real>(many(modified, block));
  if (!options.softcap) scores.capped = nullptr;
  if (!modified) scores.unmodified = nullptr;
  scores.k = carver.take<Real>(many(plan.scores.stage_k, f.head_size), kernels::kBlockKeys);
  scores.v = carver.take<Real>(many(plan.scores.stage_v, f.value_size), kernels::kBlockKeys);
  scores.row_length = std::max<std::int64_t>({f.head_size, f.value_size, kernels::kBlockKeys});
  scores.rows = carver.take<Real>(scores.row_length, width);
  scores.packed_k = carver.take<Real>(many(options.normalize_qk, f.head_size), width);
  scores.key_norm =
      carver.take<Real>(many(options.normalize_qk, kernels::kBlockKeys + kernels::kMaxTileRows));
  scratch.bytes = carver.used();
  return scratch;
}

template <typename Real>
SharedScratch<Real> carve_shared(const BackwardProblem& p, const BackwardPlan<Real>& plan,
                                 std::byte* base) {
  const Problem& f = p.forward;
  Carver carver(f.function, base);
  SharedScratch<Real> shared{};
  const auto many = [](bool needed, std::int64_t count) { return needed ? count : 0; };
  const std::int64_t rows = f.row_numbers();
  shared.slots = carver.take<Real>(plan.wave * plan.slot_tiles, plan.tile_slot);
  shared.runs = carver.take<Real>(many(plan.wave < plan.chunks, plan.slot_tiles), plan.tile_slot);
  shared.scale_rows = carver.take<Real>(many(p.dscale.present, rows));
  shared.alibi_rows = carver.take<Real>(many(p.dalibi.present, rows));
  shared.sink_rows = carver.take<Real>(many(p.dsinks.present, rows));
  if (p.sums_dbias()) {
    std::int64_t count = 1;
    for (std::size_t a = 4; a-- > 0;) {
      shared.dbias_stride[a] = p.bias[a] == 1 ? 0 : count;
      count *= p.bias[a];
    }
    shared.dbias_count = count;
    shared.dbias = carver.take<double>(count);
  }
  shared.bytes = carver.used();
  return shared;
}

#define HEED_INSTANTIATE(Real)                                                                \
  template struct BackwardPlan<Real>;                                                         \
  template BackwardPlan<Real> make_backward_plan<Real>(const BackwardProblem&, int);          \
  template BackwardScratch<Real> carve_backward<Real>(const BackwardProblem&,                 \
                                                      const BackwardPlan<Real>&, std::byte*); \
  template SharedScratch<Real> carve_shared<Real>(const BackwardProblem&,                     \
                                                  const BackwardPlan<Real>&, std::byte*);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed

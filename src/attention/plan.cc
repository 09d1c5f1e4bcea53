// Everything about a call that is decided once: kernels, tile and task sizes, scratch.
#include "attention/plan.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "attention/carver.h"
#include "attention/lists.h"
#include "attention/staging.h"
#include "heed/error.h"

namespace heed {
namespace {

static_assert(static_cast<int>(Isa::scalar) == kernels::kScalar &&
              static_cast<int>(Isa::neon) == kernels::kNeon &&
              static_cast<int>(Isa::avx2) == kernels::kAvx2 &&
              static_cast<int>(Isa::avx512) == kernels::kAvx512 &&
              static_cast<int>(Isa::avx512_bf16) == kernels::kAvx512Bf16 &&
              static_cast<int>(Isa::neon_bf16) == kernels::kNeonBf16);

constexpr std::int64_t kLargestTaskRows = 512;
/// Packed queries and outputs of a task stay below this: half of a common second-level cache.
constexpr double kTaskBytes = 512 * 1024;
/// Work that one more thread is worth: about what a core does while another one wakes up.
constexpr double kFlopsOfThread = 1e6;
/// Rows that fill at most half of a vector are two tiles of few rows rather than one, on so many
/// keys: of more rows, or on fewer keys, the transposes of K that each tile makes cost more than
/// they save.
constexpr std::int64_t kMostFewRows = std::int64_t{2} * kernels::kFewRows;
constexpr std::int64_t kKeysOfTwoTiles = kernels::kBlockKeys / 2;
/// Enough tasks for each worker, so that all end at about the same time.
constexpr std::int64_t kTasksPerWorker = 4;

std::int64_t blocks_of(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

/// True if the rows collide in the first-level cache and enough tiles share a copy.
bool worth_staging(const View4& view, int tiles) {
  const std::int64_t step = view.stride[2] * static_cast<std::int64_t>(size_of(view.dtype));
  return tiles >= kTilesWorthStaging && step % kCollidingStride == 0 && step != 0;
}

/// True if pairs of coordinates can be read from the rows where they are.
bool has_pairs(const View4& k, std::int64_t size) { return k.stride[3] == 1 && size % 2 == 0; }

/// Pairs of query rows and keys of one KV head, of all batch entries.
double pairs_of(const Problem& p) {
  double pairs = 0;
  for (std::int64_t b = 0; p.ragged != nullptr && b < p.batches; ++b) {
    pairs += static_cast<double>(p.rows_of(b)) * static_cast<double>(p.keys_of(b));
  }
  if (p.ragged != nullptr) return pairs;
  return static_cast<double>(p.batches) * static_cast<double>(p.rows()) *
         static_cast<double>(p.keys);
}

/// Batch entries that have rows, those whose tasks have the most pairs first: long ones do not
/// begin when all others have ended. Returns the number of tasks.
std::int64_t order_entries(const Problem& p, std::int64_t task_rows,
                           std::vector<EntryTasks>* entries) {
  for (std::int64_t b = 0; b < p.batches; ++b) {
    if (p.rows_of(b) > 0) entries->push_back({0, b, blocks_of(p.rows_of(b), task_rows)});
  }
  const auto pairs_of_task = [&](const EntryTasks& entry) {
    return static_cast<double>(std::min(p.rows_of(entry.batch), task_rows)) *
           static_cast<double>(p.keys_of(entry.batch));
  };
  std::stable_sort(entries->begin(), entries->end(), [&](const EntryTasks& a, const EntryTasks& b) {
    return pairs_of_task(a) > pairs_of_task(b);
  });
  std::int64_t tasks = 0;
  for (EntryTasks& entry : *entries) {
    entry.first_task = tasks;
    tasks += entry.row_blocks * p.kv_heads;
  }
  return tasks;
}

/// Whether a KV head of some entry is read by one row alone.
bool has_single_row(const Problem& p) {
  for (std::int64_t b = 0; b < (p.ragged == nullptr ? 1 : p.batches); ++b) {
    if (p.rows_of(b) == 1) return true;
  }
  return false;
}

}  // namespace

template <typename Real>
Plan<Real> make_plan(const Problem& p, int workers, Products products, DecodeOrder order) {
  Plan<Real> plan;
  const int target = static_cast<int>(instruction_set());
  // Rows that are brought to length 1 are no longer bfloat16.
  if (products == Products::native && p.element == DType::bf16 && !p.options.normalize_qk) {
    plan.bf16 = kernels::bf16_kernels_for<Real>(target);
  }
  plan.isa = static_cast<Isa>(plan.bf16 != nullptr ? target : kernels::table_of(target));
  if (plan.bf16 != nullptr) plan.block_keys = kernels::kPairedBlockKeys;
  plan.kernels = kernels::kernels_for<Real>(target);
  plan.convert = kernels::conversions_for(target);
  const double usual =
      p.options.normalize_qk ? 1.0 : 1.0 / std::sqrt(static_cast<double>(p.head_size));
  plan.c = static_cast<Real>(p.options.scale.one.value_or(usual)) * kernels::kLog2e<Real>;
  const std::int64_t tile = plan.tile_rows();
  const std::int64_t rows = p.rows();
  const std::int64_t groups = p.heads == 0 ? 0 : p.batches * p.kv_heads;
  const double pairs = pairs_of(p) * static_cast<double>(p.heads == 0 ? 0 : p.kv_heads);
  const double flops = 2.0 * static_cast<double>(p.head_size + p.value_size) * pairs;
  plan.small = flops < 2 * kFlopsOfThread;
  workers = static_cast<int>(std::clamp(flops / kFlopsOfThread, 1.0, static_cast<double>(workers)));
  plan.most_workers = workers;
  // Rows of a task: many share a block of keys, but their tiles must stay in cache, and there must
  // be tasks for every worker.
  const std::int64_t outputs = p.keys > kernels::kSplitKeys ? 2 : 1;
  const std::int64_t weights = p.weights.present ? p.keys : 0;  // come back to them at the end
  const double row_bytes =
      sizeof(Real) * (static_cast<double>(p.head_size) + static_cast<double>(weights) +
                      static_cast<double>(outputs) * static_cast<double>(p.value_size));
  plan.task_rows = std::max(tile, kLargestTaskRows / tile * tile);
  while (plan.task_rows > tile && static_cast<double>(plan.task_rows) * row_bytes > kTaskBytes) {
    plan.task_rows -= tile;
  }
  const auto too_few = [&](std::int64_t task_rows) {  // where entries differ: the longest too long
    return p.ragged == nullptr
               ? groups * blocks_of(rows, task_rows) < workers * kTasksPerWorker
               : static_cast<double>(std::min(rows, task_rows)) * static_cast<double>(p.keys) *
                         static_cast<double>(workers * kTasksPerWorker) >
                     pairs;
  };
  while (plan.task_rows > std::max<std::int64_t>(tile, 64) && workers > 1 &&
         too_few(plan.task_rows)) {
    plan.task_rows = std::max(tile, plan.task_rows / 2 / tile * tile);
  }
  plan.task_rows = std::min(plan.task_rows, blocks_of(rows, tile) * tile);
  plan.row_blocks = rows == 0 ? 0 : blocks_of(rows, plan.task_rows);
  if (p.ragged != nullptr && groups > 0) {
    plan.tasks =
        with_lists(p.function, [&] { return order_entries(p, plan.task_rows, &plan.entries); });
  } else if (__builtin_mul_overflow(groups, plan.row_blocks, &plan.tasks)) {
    throw Error(std::string(p.function) + ": the number of query rows must fit 63 bits");
  }
  if (p.value_size == 0 && !p.lse.present && !p.weights.present && !p.counting) {
    plan.tasks = 0;
  }
  plan.workers = static_cast<int>(std::clamp<std::int64_t>(plan.tasks, 1, workers));
  plan.tiles = static_cast<int>(rows == 0 ? 0 : plan.task_rows / tile);
  plan.stage_q = !usable_in_place<Real>(p.q);
  plan.stage_k = !usable_in_place<Real>(p.k);
  if (plan.bf16 != nullptr) plan.stage_k = !has_pairs(p.k, p.head_size);
  plan.stage_k |= worth_staging(p.k, plan.tiles);
  plan.stage_v = !usable_in_place<Real>(p.v) || worth_staging(p.v, plan.tiles);
  plan.stage_output = p.output.present && !usable_in_place<Real>(p.output);
  plan.stage_weights = p.weights.present && !usable_in_place<Real>(p.weights);
  // Whole vectors of coordinates and of keys; the scalar kernels have nothing to gain.
  const auto whole = [&](std::int64_t size) {
    const int of_lane = plan.bf16 != nullptr ? 2 : 1;
    return size > 0 && size % (plan.kernels->lanes * of_lane) == 0;
  };
  plan.few =
      sizeof(Real) == 4 && plan.kernels->lanes > 1 && whole(p.head_size) && whole(p.value_size);
  plan.key_by_key = sizeof(Real) == 4 && order == DecodeOrder::key_by_key && p.head_size > 0 &&
                    p.head_size % (std::int64_t{2} * kernels::kKeyChains) == 0 &&
                    !p.options.normalize_qk && has_single_row(p);
  plan.tile_step = static_cast<int>(tile);
  const bool two = rows <= std::min<std::int64_t>(kMostFewRows, plan.kernels->lanes / 2) &&
                   p.keys >= kKeysOfTwoTiles;
  if (plan.few && (rows <= kernels::kFewRows || two)) {
    plan.tile_step = kernels::kFewRows;
    plan.tiles = static_cast<int>(blocks_of(rows, plan.tile_step));
  }
  plan.scratch_bytes = carve<Real>(p, plan, nullptr).bytes;
  return plan;
}

template <typename Real>
TaskRows Plan<Real>::rows_of_task(const Problem& p, std::int64_t task) const {
  std::int64_t batch = 0;
  std::int64_t blocks = row_blocks;
  if (p.ragged == nullptr) {
    batch = task / row_blocks / p.kv_heads;
    task -= batch * p.kv_heads * row_blocks;
  } else {
    const auto after = std::upper_bound(
        entries.begin(), entries.end(), task,
        [](std::int64_t n, const EntryTasks& entry) { return n < entry.first_task; });
    const EntryTasks& entry = *(after - 1);
    batch = entry.batch;
    blocks = entry.row_blocks;
    task -= entry.first_task;
  }
  const std::int64_t begin = (blocks - 1 - task % blocks) * task_rows;
  return {batch, task / blocks, begin, std::min(begin + task_rows, p.rows_of(batch))};
}

template <typename Real>
Scratch<Real> carve(const Problem& p, const Plan<Real>& plan, std::byte* base) {
  Carver carver(p.function, base);
  Scratch<Real> scratch{};
  const std::int64_t width = plan.tile_rows();
  const std::int64_t lanes = plan.kernels->lanes;
  const std::int64_t tile_width = std::min(width, blocks_of(p.rows(), lanes) * lanes);
  const auto many = [](bool needed, std::int64_t count) { return needed ? count : 0; };
  const bool several_splits = p.keys > kernels::kSplitKeys;
  scratch.tiles = carver.take<Tile<Real>>(plan.tiles);
  for (int t = 0; t < plan.tiles; ++t) {
    Real* const q = carver.take<Real>(p.head_size, tile_width);
    Real* const o = carver.take<Real>(p.value_size, tile_width);
    Real* const run_o = carver.take<Real>(many(several_splits, p.value_size), tile_width);
    Real* const rows_o = carver.take<Real>(many(plan.few, p.value_size), kernels::kFewRows);
    auto* const counted = carver.take<Counted<Real>>(many(p.counting, 1));
    if (base == nullptr) continue;
    Tile<Real>& tile = *new (scratch.tiles + t) Tile<Real>;
    tile.q = q;
    tile.counted = p.counting ? new (counted) Counted<Real> : nullptr;
    tile.o = o;
    tile.rows_o = rows_o;
    tile.run_o = several_splits ? run_o : nullptr;  // one split takes over o as its run
  }
  scratch.s = carver.take<Real>(plan.block_keys * width);
  const bool masks_stored = p.drop_below > 0 && p.weights.present;
  scratch.b = carver.take<Real>(many(p.bias.present || masks_stored, plan.block_keys * width));
  const auto staged = [&](bool stage, const View4& view, std::int64_t size) {
    return carver.take<Real>(many(stage || view.cuts_blocks(plan.block_keys), size),
                             plan.block_keys);
  };
  scratch.k = staged(plan.stage_k, p.k, p.head_size);
  scratch.v = staged(plan.stage_v, p.v, p.value_size);
  if (plan.stage_q) scratch.row_length = std::max(scratch.row_length, p.head_size);
  if (plan.stage_output) scratch.row_length = std::max(scratch.row_length, p.value_size);
  if (plan.stage_weights || p.bias.present) {
    scratch.row_length = std::max<std::int64_t>(scratch.row_length, plan.block_keys);
  }
  scratch.rows = carver.take<Real>(scratch.row_length, width);
  scratch.packed_k = carver.take<Real>(many(p.options.normalize_qk, p.head_size), width);
  // Norms are computed for whole vectors of keys: room for the last one.
  scratch.key_norm =
      carver.take<Real>(many(p.options.normalize_qk, kernels::kBlockKeys + kernels::kMaxTileRows));
  scratch.bytes = carver.used();
  return scratch;
}

template struct Plan<float>;
template struct Plan<double>;
template Plan<float> make_plan<float>(const Problem&, int, Products, DecodeOrder);
template Plan<double> make_plan<double>(const Problem&, int, Products, DecodeOrder);
template Scratch<float> carve<float>(const Problem&, const Plan<float>&, std::byte*);
template Scratch<double> carve<double>(const Problem&, const Plan<double>&, std::byte*);

}  // namespace heed

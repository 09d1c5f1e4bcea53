// The forward pass: check, plan, tasks.
#include "attention/forward.h"

#include <algorithm>
#include <string>
#include <utility>

#include "attention/check.h"
#include "attention/parts.h"
#include "attention/plan.h"
#include "attention/superblock.h"
#include "attention/workers.h"
#include "heed/attention.h"
#include "runtime/float_environment.h"

namespace heed {
namespace {

/// Bytes of the states that parts leave.
template <typename Real>
std::size_t bytes_of(const Parts& parts) {
  return static_cast<std::size_t>(parts.slots * parts.slot) * sizeof(Real);
}

/// Workers that can get a task when keys are split.
template <typename Real>
void wake_for(const Parts& parts, Plan<Real>* plan) {
  const auto most = static_cast<std::int64_t>(plan->most_workers);
  plan->workers =
      static_cast<int>(std::max<std::int64_t>(plan->workers, std::min(parts.count, most)));
}

template <typename Real>
void forward(const Problem& p, const Workers& workers, Products products, DecodeOrder order) {
  Plan<Real> plan = make_plan<Real>(p, workers.count, products, order);
  if (plan.tasks == 0) return;
  const Parts parts = make_parts<Real>(p, plan);
  wake_for(parts, &plan);
  const runtime::ScratchLease states(bytes_of<Real>(parts));
  Crew crew(p.function, executor_of(plan, workers), scratch_areas(plan, workers),
            plan.scratch_bytes);
  if (parts.count == 0) {
    crew.run(plan.tasks, [&](std::int64_t task, std::byte* scratch) {
      Superblock<Real>(p, plan, scratch).run(task);
    });
    return;
  }
  auto* const slots = reinterpret_cast<Real*>(states.data());
  crew.run(parts.count, [&](std::int64_t part, std::byte* scratch) {
    Superblock<Real>(p, plan, scratch).fold_part(parts, part, slots);
  });
  crew.run(plan.tasks, [&](std::int64_t task, std::byte* scratch) {
    Superblock<Real>(p, plan, scratch).merge_parts(parts, task, slots);
  });
}

/// Tiles of queries x blocks of keys, and those of them that some query may see; sums saturate.
struct TileCount {
  std::int64_t computed = 0;
  std::int64_t skipped = 0;
};

template <typename Real>
TileCount count_tiles(const Problem& p, const Plan<Real>& plan) {
  TileCount count;
  const std::int64_t size = plan.block_keys;
  // Without dense masks all KV heads of a batch entry see the same.
  const std::int64_t distinct = p.dense_mask() ? p.kv_heads : 1;
  const std::int64_t repeats = p.dense_mask() ? 1 : p.kv_heads;
  kernels::VisibleWords visible;
  TileRows tile;
  for (std::int64_t b = 0; plan.tasks > 0 && b < p.batches; ++b) {
    const std::int64_t blocks = (p.keys_of(b) + size - 1) / size;
    const std::int64_t all_rows = p.rows_of(b);
    for (std::int64_t h = 0; h < distinct; ++h) {
      for (std::int64_t row = 0; row < all_rows; row += plan.tile_step) {
        const auto rows = std::min<std::int64_t>(plan.tile_step, all_rows - row);
        tile.assign(p, b, h, row, static_cast<int>(rows));
        std::int64_t computed = 0;
        for (std::int64_t first = tile.some.begin / size * size; first < tile.some.end;
             first += size) {
          const KeyRange range{std::max(first, tile.some.begin),
                               std::min(first + size, tile.some.end)};
          if (fill_visible(p, tile, range, plan.kernels->key_bits, visible) != Sight::none)
            ++computed;
        }
        count.computed = add_saturated(count.computed, computed * repeats);
        count.skipped = add_saturated(count.skipped, (blocks - computed) * repeats);
      }
    }
  }
  return count;
}

/// Why this instruction set: it is the CPU's best, or capped, or the fastest, or the best that was
/// compiled.
std::string isa_reason(const Problem& p, Isa chosen, Products products) {
  const std::string name(name_of(chosen));
  for (const InstructionSet& set : instruction_sets()) {
    const int number = static_cast<int>(set.isa);
    const bool useful = kernels::table_of(number) == number || p.element == DType::bf16;
    if (set.isa <= chosen || !set.supported || !set.compiled || !useful) continue;
    const std::string also = "; this CPU also has " + std::string(name_of(set.isa));
    if (set.isa > instruction_set()) return name + (set.slow ? ": faster here" : ": capped") + also;
    return name + (products == Products::wide ? ": reproducible" : ": normalize_qk") + also;
  }
  return name + ": the best of this CPU for which heed has kernels of this type";
}

/// What elements are multiplied as.
template <typename Real>
std::string products_of(const Problem& p, const Plan<Real>& plan) {
  if (plan.bf16 != nullptr) return ", dot products of bfloat16";
  return p.element == p.dtype ? "" : ", widened to " + std::string(name_of(p.dtype));
}

/// What else decides the time of a call.
template <typename Real>
std::string ways_of(const Problem& p, const Plan<Real>& plan, const Parts& parts) {
  std::string ways;
  if (plan.few && plan.tile_step == kernels::kFewRows) ways += ", products of few rows";
  if (plan.key_by_key) ways += ", key by key";
  if (p.k.cuts_blocks(plan.block_keys) || p.v.cuts_blocks(plan.block_keys)) {
    ways += ", pages copied block by block";
  }
  if (parts.count > 0) ways += ", splits of keys as tasks";
  return ways;
}

/// Bytes of scratch; throws as the call would that cannot have them.
template <typename Real>
std::int64_t scratch_of(const Problem& p, const Plan<Real>& plan, const Workers& workers,
                        const Parts& parts) {
  const std::size_t tasks =
      scratch_of_all(p.function, plan.scratch_bytes, scratch_areas(plan, workers));
  std::int64_t all = 0;
  if (__builtin_add_overflow(tasks, bytes_of<Real>(parts), &all)) {
    throw Error(ErrorKind::memory,
                std::string(p.function) + ": scratch memory exceeds the address space");
  }
  return all;
}

template <typename Real>
Explanation explain(const Problem& p, const Workers& workers, Products products,
                    DecodeOrder order) {
  Plan<Real> plan = make_plan<Real>(p, workers.count, products, order);
  const Parts parts = make_parts<Real>(p, plan);
  wake_for(parts, &plan);
  const std::int64_t tasks = std::max(plan.tasks, parts.count);
  const TileCount tiles = count_tiles(p, plan);
  return {.path = "tiles of " + std::to_string(plan.tile_step) + " queries x " +
                  std::to_string(plan.block_keys) + " keys, " + std::string(name_of(p.element)) +
                  products_of(p, plan) + ways_of(p, plan, parts),
          .isa = plan.isa,
          .reason = isa_reason(p, plan.isa, products),
          .threads = executor_of(plan, workers) == nullptr
                         ? plan.workers
                         : static_cast<int>(std::min<std::int64_t>(tasks, workers.count)),
          .tasks = tasks,
          .scratch_bytes = scratch_of<Real>(p, plan, workers, parts),
          .tiles_computed = tiles.computed,
          .tiles_skipped = tiles.skipped,
          .tile_queries = plan.tile_step,
          .tile_keys = plan.block_keys};
}

Products products_of(const Execution& execution) {
  return execution.reproducible ? Products::wide : Products::native;
}

}  // namespace

void run_forward(const Problem& p, const Execution& execution) {
  const Workers workers = choose_workers(p.function, execution);
  if (p.dtype == DType::f32) {
    forward<float>(p, workers, products_of(execution), execution.decode_order);
  } else {
    forward<double>(p, workers, products_of(execution), execution.decode_order);
  }
}

Explanation explain_forward(Problem p, const Execution& execution) {
  // Of a call for outputs whose numbers lie side by side: in 16 bits they are rounded from scratch.
  p.output = {.dtype = p.element, .present = true, .stride = {0, 0, 0, 1}};
  const Workers workers = choose_workers(p.function, execution);
  const Products products = products_of(execution);
  return p.dtype == DType::f32 ? explain<float>(p, workers, products, execution.decode_order)
                               : explain<double>(p, workers, products, execution.decode_order);
}

void attention_forward(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
                       const ForwardOutputs& outputs, const AttentionOptions& options,
                       const Execution& execution) {
  const runtime::DefaultFloatEnvironment environment;
  run_forward(check_forward(q, k, v, outputs, options), execution);
}

Explanation explain(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
                    const AttentionOptions& options, const Execution& execution) {
  const runtime::DefaultFloatEnvironment environment;
  Problem p = check_inputs(Checker("explain"), q, k, v, options, Reads::sizes);
  place_entries(&p);
  return explain_forward(std::move(p), execution);
}

}  // namespace heed

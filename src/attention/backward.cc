// The backward pass: check, plan, rounds of tasks.
#include "heed/backward.h"

#include <algorithm>

#include "attention/backward_plan.h"
#include "attention/chunk_gradients.h"
#include "attention/row_gradients.h"
#include "attention/workers.h"
#include "runtime/float_environment.h"

namespace heed {
namespace {

/// Tiles of rows that one task adds up and finishes.
constexpr std::int64_t kFinishedTiles = 16;

template <typename Real>
class Backward {
 public:
  Backward(const BackwardProblem& p, const BackwardPlan<Real>& plan, Crew& crew,
           const SharedScratch<Real>& shared)
      : p_(p), plan_(plan), crew_(crew), shared_(shared) {}

  void run() {
    for (std::int64_t member = 0; member < plan_.members; ++member) {
      if (plan_.heavy < plan_.families) run_groups(member);
      for (std::int64_t chunk = 0; plan_.heavy > 0 && chunk < plan_.chunks; chunk += plan_.wave) {
        run_chunks(member, chunk, std::min(chunk + plan_.wave, plan_.chunks));
      }
    }
    crew_.run(1, [&](std::int64_t, std::byte*) { write_sums(p_, shared_); });
  }

 private:
  /// All chunks of a KV head in one task.
  void run_groups(std::int64_t member) {
    crew_.run(plan_.families - plan_.heavy, [&](std::int64_t light, std::byte* memory) {
      const Group group = plan_.group_of(p_, plan_.heavy + light, member);
      const BackwardScratch<Real> scratch = carve_backward<Real>(p_, plan_, memory);
      const std::int64_t tiles = plan_.tiles_of(p_.forward, group.batch);
      const std::int64_t own = plan_.chunks_of(p_.forward, group.batch);
      std::fill_n(scratch.slot, tiles * plan_.tile_slot, Real{0});
      ChunkGradients<Real> chunks(p_, plan_, shared_, scratch);
      for (std::int64_t chunk = 0; p_.wants_tiles() && chunk < own; ++chunk) {
        chunks.run(group, chunk, scratch.slot);
      }
      finish(group, scratch, 0, tiles, scratch.slot);
    });
  }

  /// Each chunk a task, then the sums of their slots.
  void run_chunks(std::int64_t member, std::int64_t first, std::int64_t end) {
    if (p_.wants_tiles()) {
      crew_.run(plan_.heavy * (end - first), [&](std::int64_t task, std::byte* memory) {
        // Early chunks first: under causal masks they have the most work.
        const std::int64_t family = task % plan_.heavy;
        const std::int64_t chunk = task / plan_.heavy;
        const Group group = plan_.group_of(p_, family, member);
        if (first + chunk >= plan_.chunks_of(p_.forward, group.batch)) return;
        Real* const slot = slot_of(family, chunk);
        std::fill_n(slot, plan_.tiles_of(p_.forward, group.batch) * plan_.tile_slot, Real{0});
        const BackwardScratch<Real> scratch = carve_backward<Real>(p_, plan_, memory);
        ChunkGradients<Real>(p_, plan_, shared_, scratch).run(group, first + chunk, slot);
      });
    }
    if (!p_.wants_rows()) return;
    const std::int64_t parts = (plan_.group_tiles + kFinishedTiles - 1) / kFinishedTiles;
    crew_.run(plan_.heavy * parts, [&](std::int64_t task, std::byte* memory) {
      const std::int64_t family = task / parts;
      const std::int64_t tile = task % parts * kFinishedTiles;
      const Group group = plan_.group_of(p_, family, member);
      const std::int64_t tiles_end =
          std::min(tile + kFinishedTiles, plan_.tiles_of(p_.forward, group.batch));
      if (tile >= tiles_end) return;
      const std::int64_t own = plan_.chunks_of(p_.forward, group.batch);
      Real* const sum = add_slots(family, first, end, own, tile, tiles_end);
      if (end < plan_.chunks) return;
      finish(group, carve_backward<Real>(p_, plan_, memory), tile, tiles_end, sum);
    });
  }

  /// The slots of a wave onto the sum of those before, chunk by chunk; where it is. `own`: chunks
  /// that the family has.
  Real* add_slots(std::int64_t family, std::int64_t first, std::int64_t end, std::int64_t own,
                  std::int64_t tile, std::int64_t tiles_end) const {
    end = std::min(end, own);
    const std::int64_t begin = tile * plan_.tile_slot;
    const std::int64_t count = (tiles_end - tile) * plan_.tile_slot;
    const bool only = plan_.wave >= plan_.chunks;
    Real* const base =
        only ? slot_of(family, 0) : shared_.runs + plan_.slot_of(p_, family) * plan_.tile_slot;
    Real* const sum = base + begin;
    if (own == 0) std::fill_n(sum, count, Real{0});  // no key: nobody has filled a slot
    if (!only && first == 0 && own > 0) std::copy_n(slot_of(family, 0) + begin, count, sum);
    for (std::int64_t c = first == 0 ? 1 : 0; c < end - first; ++c) {
      const Real* const slot = slot_of(family, c) + begin;
      for (std::int64_t i = 0; i < count; ++i) sum[i] += slot[i];
    }
    return base;
  }

  void finish(Group group, const BackwardScratch<Real>& scratch, std::int64_t tile,
              std::int64_t tiles_end, Real* slot) const {
    if (!p_.wants_rows()) return;
    RowGradients<Real> rows(p_, plan_, shared_, scratch);
    for (; tile < tiles_end; ++tile) rows.finish(group, tile, slot + tile * plan_.tile_slot);
  }

  [[nodiscard]] Real* slot_of(std::int64_t family, std::int64_t chunk) const {
    return shared_.slots + (chunk * plan_.slot_tiles + plan_.slot_of(p_, family)) * plan_.tile_slot;
  }

  const BackwardProblem& p_;
  const BackwardPlan<Real>& plan_;
  Crew& crew_;
  const SharedScratch<Real>& shared_;
};

template <typename Real>
void backward(const BackwardProblem& p, const Workers& workers) {
  const BackwardPlan<Real> plan = make_backward_plan<Real>(p, workers.count);
  Executor* const own = plan.small ? nullptr : workers.executor;
  const runtime::ScratchLease memory(carve_shared<Real>(p, plan, nullptr).bytes);
  Crew crew(p.forward.function, own, own == nullptr ? plan.workers : workers.count,
            plan.scratch_bytes);
  const SharedScratch<Real> shared = carve_shared<Real>(p, plan, memory.data());
  clear_dbias(p, shared);
  Backward<Real>(p, plan, crew, shared).run();
}

}  // namespace

void attention_backward(const BackwardInputs& inputs, const Gradients& gradients,
                        const AttentionOptions& options, const Execution& execution) {
  const runtime::DefaultFloatEnvironment environment;
  const Checker check("attention_backward");
  const BackwardProblem p = check_backward(check, inputs, gradients, options);
  const Workers workers = choose_workers(check.function(), execution);
  if (p.forward.dtype == DType::f32) {
    backward<float>(p, workers);
  } else {
    backward<double>(p, workers);
  }
}

}  // namespace heed

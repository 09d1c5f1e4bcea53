// Weights on demand: computed again from q, k and lse, looked at, and forgotten.
#include <algorithm>
#include <cstring>
#include <limits>

#include "attention/element.h"
#include "attention/score_tiles.h"
#include "attention/workers.h"
#include "inspect/check_views.h"
#include "inspect/sums.h"
#include "runtime/float_environment.h"
#include "runtime/scratch.h"

namespace heed::inspect {
namespace {

using kernels::kMaxTileRows;

constexpr std::int64_t kLeastSlabRows = 256;
/// Bytes of sums that are held at a time, unless two heads take more.
constexpr std::size_t kSumsBytes = std::size_t{4} << 20;

std::int64_t slab_rows(const Problem& p) {
  const std::int64_t rows = std::max((p.queries + kSlabs - 1) / kSlabs, kLeastSlabRows);
  return (rows + kMaxTileRows - 1) / kMaxTileRows * kMaxTileRows;  // whole tiles, of any width
}

/// One worker: tiles of a head, their weights block by block.
template <typename Real>
class Sweep {
 public:
  Sweep(const Problem& p, const Plan<Real>& plan, const Wanted& wanted, std::byte* scratch)
      : p_(p),
        plan_(plan),
        wanted_(wanted),
        scratch_(carve<Real>(p, plan, scratch)),
        tiles_(p, plan, scratch_) {}

  /// on_scores(block) and on_weights(block) for each block of `count` rows of head (b, h) from row
  /// `first` on, in scratch().s: [key][row].
  template <typename OnScores, typename OnWeights>
  void tile(std::int64_t b, std::int64_t h, std::int64_t first, int count,
            const OnScores& on_scores, const OnWeights& on_weights) const {
    Tile<Real>& tile = scratch_.tiles[0];
    const std::int64_t group =
        std::max<std::int64_t>(p_.group(), 1);  // where there is a head it is
    tiles_.assign(tile, b, h / group, h % group * p_.queries + first, count);
    Real lse2[kMaxTileRows] = {};
    Real one[kMaxTileRows];
    std::fill_n(one, kMaxTileRows, Real{1});
    for (int r = 0; r < count; ++r) {
      const Real lse = load<Real>(wanted_.lse.at(b, h, first + r));
      // -inf says that the row sees no key: no key has weight. A finite one stays finite.
      constexpr Real kInf = std::numeric_limits<Real>::infinity();
      lse2[r] = lse == -kInf
                    ? kInf
                    : std::max(lse * kernels::kLog2e<Real>, std::numeric_limits<Real>::lowest());
    }
    tiles_.each_block(tile, [&](const ScoredBlock<Real>& block) {
      on_scores(block);
      plan_.kernels->weights(scratch_.s, block.keys(), tile.vectors, lse2, one);
      on_weights(block);
    });
  }

  [[nodiscard]] const Tile<Real>& current() const { return scratch_.tiles[0]; }
  [[nodiscard]] const Real* s() const { return scratch_.s; }
  [[nodiscard]] int width() const { return current().vectors * plan_.kernels->lanes; }

 private:
  const Problem& p_;
  const Plan<Real>& plan_;
  const Wanted& wanted_;
  Scratch<Real> scratch_;
  ScoreTiles<Real> tiles_;
};

/// The plan of a forward call, for tasks of one tile at a time.
template <typename Real>
Plan<Real> plan_tiles(const Problem& p, const Workers& workers) {
  Plan<Real> plan = make_plan<Real>(p, workers.count);
  plan.tiles = 1;
  plan.workers = plan.small ? 1 : workers.count;
  plan.scratch_bytes = carve<Real>(p, plan, nullptr).bytes;
  return plan;
}

/// Rows that were chosen: a task each.
template <typename Real>
void chosen_rows(const Problem& p, const Plan<Real>& plan, const Wanted& wanted, Crew& crew) {
  const std::int64_t tasks = p.batches * p.heads * wanted.row_count;
  crew.run(tasks, [&](std::int64_t task, std::byte* scratch) {
    const std::int64_t n = task % wanted.row_count;
    const std::int64_t h = task / wanted.row_count % p.heads;
    const std::int64_t b = task / wanted.row_count / p.heads;
    const auto put = [&](const View4& to, std::int64_t key, Real number) {
      if (to.present) std::memcpy(to.at(b, h, n, key), &number, sizeof number);
    };
    for (std::int64_t j = 0; j < p.keys; ++j) {
      put(wanted.row_weights, j, 0);
      put(wanted.row_scores, j, -std::numeric_limits<Real>::infinity());
    }
    const Sweep<Real> sweep(p, plan, wanted, scratch);
    const auto each = [&](const ScoredBlock<Real>& block, const View4& to, Real factor) {
      for (int j = 0; j < block.keys(); ++j) {
        const Real number = sweep.s()[j * sweep.width()] * factor;
        put(to, block.range.begin + j, number + Real{0});  // an exact 0 is +0
      }
    };
    sweep.tile(
        b, h, load<std::int64_t>(wanted.rows.at(0, 0, n)), 1,
        [&](const auto& block) { each(block, wanted.row_scores, kernels::kLn2<Real>); },
        [&](const auto& block) { each(block, wanted.row_weights, 1); });
  });
}

/// The sums of some heads at a time: as many as fit a few megabytes.
class HeadSums {
 public:
  HeadSums(const Wanted& wanted, const Problem& p)
      : slabs_(wanted, p, slab_rows(p)),
        fit_(kSumsBytes / std::max<std::size_t>(slabs_.size() * sizeof(double), 1)),
        at_once_(std::min(std::max<std::int64_t>(fit_, 2), p.batches * p.heads)),
        lease_(slabs_.size() * static_cast<std::size_t>(at_once_) * sizeof(double)) {}

  [[nodiscard]] const Slabs& slabs() const { return slabs_; }
  [[nodiscard]] std::int64_t at_once() const { return at_once_; }
  /// Of the head of this number among those at hand.
  [[nodiscard]] double* of(std::int64_t head) const {
    return reinterpret_cast<double*>(lease_.data()) +
           slabs_.size() * static_cast<std::size_t>(head);
  }
  void clear(std::int64_t heads) {
    std::fill_n(of(0), slabs_.size() * static_cast<std::size_t>(heads), 0.0);
  }

 private:
  Slabs slabs_;
  std::int64_t fit_, at_once_;
  runtime::ScratchLease lease_;
};

/// Everything that all rows have a part in. A task is a slab of a head's rows, whose buffers lie
/// behind the `tile_bytes` of scratch that a tile needs.
template <typename Real>
void all_rows(const Problem& p, const Plan<Real>& plan, const Wanted& wanted,
              std::size_t tile_bytes, HeadSums& sums, Crew& crew) {
  const std::int64_t rows = slab_rows(p);
  const Slabs& slabs = sums.slabs();
  const std::int64_t heads = p.batches * p.heads;
  for (std::int64_t first = 0; first < heads; first += sums.at_once()) {
    const std::int64_t count = std::min(sums.at_once(), heads - first);
    sums.clear(count);
    crew.run(count * slabs.count(), [&](std::int64_t task, std::byte* scratch) {
      const std::int64_t head = task / slabs.count();
      const std::int64_t slab =
          slabs.count() - 1 - task % slabs.count();  // under causal masks the longest first
      const std::int64_t b = (first + head) / p.heads;
      const std::int64_t h = (first + head) % p.heads;
      const Sweep<Real> sweep(p, plan, wanted, scratch);
      Gatherer<Real> gatherer(p, wanted, slabs.at(slab, sums.of(head)),
                              row_buffers_at(wanted, plan.tile_rows(), scratch + tile_bytes));
      const std::int64_t end = std::min((slab + 1) * rows, p.queries);
      for (std::int64_t row = slab * rows; row < end; row += plan.tile_rows()) {
        const auto some = static_cast<int>(std::min<std::int64_t>(plan.tile_rows(), end - row));
        gatherer.begin(some);
        sweep.tile(
            b, h, row, some,
            [&](const auto& block) {
              gatherer.scores(sweep.current(), block, sweep.s(), sweep.width());
            },
            [&](const auto& block) {
              gatherer.weights(sweep.current(), block, sweep.s(), sweep.width());
            });
        gatherer.end(sweep.current());
      }
    });
    for (std::int64_t head = 0; head < count; ++head) {
      slabs.write((first + head) / p.heads, (first + head) % p.heads, sums.of(head));
    }
  }
}

template <typename Real>
void inspect(const Problem& p, const Wanted& wanted, const Workers& workers) {
  Plan<Real> plan = plan_tiles<Real>(p, workers);
  const std::size_t tile_bytes = plan.scratch_bytes;
  plan.scratch_bytes += row_buffers_size(wanted, plan.tile_rows());
  HeadSums sums(wanted, p);  // all memory is there before anything is written
  Crew crew(p.function, executor_of(plan, workers), scratch_areas(plan, workers),
            plan.scratch_bytes);
  if (wanted.row_weights.present || wanted.row_scores.present)
    chosen_rows<Real>(p, plan, wanted, crew);
  if (wanted.all_rows()) all_rows<Real>(p, plan, wanted, tile_bytes, sums, crew);
}

}  // namespace
}  // namespace heed::inspect

namespace heed {

void inspect_weights(const Attended& attended, const WeightViews& views,
                     const AttentionOptions& options, const Execution& execution) {
  const runtime::DefaultFloatEnvironment environment;
  Problem p{};
  const inspect::Wanted wanted = inspect::check_views(attended, views, options, &p);
  const Workers workers = choose_workers("inspect_weights", execution);
  if (p.dtype == DType::f32) {
    inspect::inspect<float>(p, wanted, workers);
  } else {
    inspect::inspect<double>(p, wanted, workers);
  }
}

}  // namespace heed

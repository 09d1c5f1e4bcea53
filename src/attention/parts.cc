// Splits of keys as tasks, where query rows make too few: decoding with few heads.
#include "attention/parts.h"

#include <algorithm>

#include "attention/lists.h"

namespace heed {
namespace {

/// Tasks that each worker should have at least: with two, one may end half a task after the others.
constexpr std::int64_t kFewTasks = 2;
/// Parts that each worker gets then.
constexpr std::int64_t kPartsPerWorker = 4;
/// More states than these are not kept: so many rows make tasks enough.
constexpr double kStateBytes = 32 * 1024 * 1024;

std::int64_t splits_of(const Problem& p, std::int64_t b) {
  return (p.keys_of(b) + kernels::kSplitKeys - 1) / kernels::kSplitKeys;
}

/// True if the tasks leave workers without work: there are few, or one is much of all.
template <typename Real>
bool too_few(const Problem& p, const Plan<Real>& plan) {
  const std::int64_t wanted = plan.most_workers * kFewTasks;
  if (p.ragged == nullptr || plan.tasks < wanted) return plan.tasks < wanted;
  double all = 0;
  double longest = 0;
  for (const EntryTasks& entry : plan.entries) {
    const double keys = static_cast<double>(p.keys_of(entry.batch));
    const auto rows = p.rows_of(entry.batch);
    all += keys * static_cast<double>(rows) * static_cast<double>(p.kv_heads);
    longest = std::max(longest, keys * static_cast<double>(std::min(rows, plan.task_rows)));
  }
  return longest * static_cast<double>(wanted) > all;
}

}  // namespace

template <typename Real>
Parts make_parts(const Problem& p, const Plan<Real>& plan) {
  Parts parts;
  if (plan.most_workers < 2 || plan.tasks == 0 || p.keys <= kernels::kSplitKeys) return parts;
  if (p.weights.present || p.counting || !too_few(p, plan)) return parts;
  const auto product = [](std::int64_t tasks, std::int64_t own) {
    return static_cast<double>(tasks) * static_cast<double>(own);
  };
  // Exact where they are kept: 63 bits may not hold those of keys that share one place in memory.
  double splits = 0;
  if (p.ragged == nullptr) splits = product(plan.tasks, splits_of(p, 0));
  for (const EntryTasks& entry : plan.entries) {
    splits += product(entry.row_blocks * p.kv_heads, splits_of(p, entry.batch));
  }
  parts.width =
      std::min<std::int64_t>(plan.tile_rows(), (p.rows() + plan.kernels->lanes - 1) /
                                                   plan.kernels->lanes * plan.kernels->lanes);
  parts.tile = 1 + (p.value_size + 2) * parts.width;
  parts.slot = plan.tiles * parts.tile;
  if (splits * static_cast<double>(parts.slot) * sizeof(Real) > kStateBytes) return parts;
  parts.slots = static_cast<std::int64_t>(splits);
  parts.splits = std::max<std::int64_t>(1, parts.slots / (plan.most_workers * kPartsPerWorker));
  const auto cut = [&](std::int64_t all) { return (all + parts.splits - 1) / parts.splits; };
  if (p.ragged == nullptr) {
    const std::int64_t own = splits_of(p, 0);
    parts.alike = {0, 0, 0, own, cut(own)};
    parts.count = plan.tasks * parts.alike.parts;
    return parts;
  }
  with_lists(p.function, [&] { parts.runs.reserve(plan.entries.size()); });
  std::int64_t slot = 0;
  for (const EntryTasks& entry : plan.entries) {
    const std::int64_t tasks = entry.row_blocks * p.kv_heads;
    const std::int64_t own = splits_of(p, entry.batch);
    parts.runs.push_back({entry.first_task, parts.count, slot, own, cut(own)});
    parts.count += tasks * cut(own);
    slot += tasks * own;
  }
  return parts;
}

Part Parts::part(std::int64_t n) const {
  Run run = alike;
  if (!runs.empty()) {  // entries without keys have no part, and share their number with the next
    const auto after = std::upper_bound(
        runs.begin(), runs.end(), n, [](std::int64_t x, const Run& r) { return x < r.first_part; });
    run = *(after - 1);
  }
  const std::int64_t own = n - run.first_part;
  const std::int64_t first = own % run.parts * splits;
  return {run.first_task + own / run.parts, first, std::min(first + splits, run.splits)};
}

std::int64_t Parts::slot_of(std::int64_t task) const {
  Run run = alike;
  if (!runs.empty()) {
    const auto after =
        std::upper_bound(runs.begin(), runs.end(), task,
                         [](std::int64_t x, const Run& r) { return x < r.first_task; });
    run = *(after - 1);
  }
  return run.first_slot + (task - run.first_task) * run.splits;
}

template Parts make_parts<float>(const Problem&, const Plan<float>&);
template Parts make_parts<double>(const Problem&, const Plan<double>&);

}  // namespace heed

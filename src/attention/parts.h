// Splits of keys as tasks, where query rows make too few: decoding with few heads.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/plan.h"

namespace heed {

/// Some splits of 768 keys of a task's rows; first and end count splits.
struct Part {
  std::int64_t task, first, end;
};

/// A task is cut into parts of `splits` splits each. A part leaves the state (m, l, o) of each of
/// its splits in a slot; when all have, the task merges them in order. The same states in the same
/// order as in one task, so that no bit depends on any of these numbers.
struct Parts {
  std::int64_t count = 0;   ///< of all tasks; 0: keys are not split
  std::int64_t splits = 0;  ///< of a part
  std::int64_t width = 0;   ///< rows of a tile in a slot
  std::int64_t tile = 0;    ///< elements of a tile in a slot
  std::int64_t slot = 0;    ///< of all tiles of a task
  std::int64_t slots = 0;   ///< of all tasks

  /// Tasks that are cut alike: those of a batch entry where entries differ, else all.
  struct Run {
    std::int64_t first_task, first_part, first_slot, splits, parts;
  };
  Run alike{};
  std::vector<Run> runs;  ///< empty where batch entries are alike

  [[nodiscard]] Part part(std::int64_t n) const;
  /// The slot of a task's first split; its others follow.
  [[nodiscard]] std::int64_t slot_of(std::int64_t task) const;
};

/// How a forward call splits keys. Weights and statistics are looked at row by row: those calls do
/// not.
template <typename Real>
[[nodiscard]] Parts make_parts(const Problem& p, const Plan<Real>& plan);

}  // namespace heed

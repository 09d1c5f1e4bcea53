// The parts of a page's data that grow with rows and keys, each within a budget.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "inspection.h"
#include "json.h"

namespace heed::cli {

/// Mass by distance in at most about `most` values, of `step` distances each. Their number is odd,
/// so that the one in the middle is distance 0. The first and the last are those of -`end` and
/// `end` and beyond, whatever the step.
struct Distances {
  std::vector<float> mass;
  std::int64_t step = 1, end = 0;
};
[[nodiscard]] Distances distances_of(const std::vector<float>& mass, std::int64_t most);

/// The largest weights of as many rows as fit, evenly, and of those whose story is told, of which a
/// list is shortened where they alone would not fit. Rows and keys that are named are added to
/// `named`.
[[nodiscard]] Json top_json(const HeadInspection& head, const std::vector<const RowStory*>& stories,
                            std::int64_t budget, std::set<std::int64_t>& named);

/// All keys of a row, or the `most` with the largest weights; in the order of keys.
[[nodiscard]] Json story_json(const RowStory& story, std::int64_t most,
                              std::set<std::int64_t>& named);

/// Exact tiles in order; those for which there is no room are left out.
[[nodiscard]] Json tiles_json(const HeadInspection& head, std::int64_t budget);

}  // namespace heed::cli

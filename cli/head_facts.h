// What is known of a head beside its statistics: its scale, equal keys, odd masks.
#pragma once

#include <cstdint>
#include <vector>

#include "diagnosis.h"
#include "one_head.h"

namespace heed::cli {

/// What the passes gave for one head.
struct HeadResults {
  const std::vector<std::int64_t>& visible;  ///< keys that each row sees; 0 of rows that are NaN
  const std::vector<double>& columns;        ///< sum of weight on each key
  const std::vector<double>& max_score;      ///< of each row
  ConstTensorView lse;                       ///< [1, 1, Tq]
};

/// `one` is the head as a call of its own.
[[nodiscard]] HeadFacts facts_of(const Call& one, const HeadInspection& head,
                                 const HeadResults& results, Executor& executor);

}  // namespace heed::cli

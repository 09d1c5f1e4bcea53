// How exact a benchmark's output is.
#pragma once

#include <cstdint>

#include "bench_cell.h"

namespace heed::cli {

struct Accuracy {
  double max_error = 0;   ///< of the output's elements, absolute
  std::int64_t rows = 0;  ///< query rows that were compared, of each head
  const char* against = "";
};

/// Compares data.output with attention on the same values in float64 (a float64 cell: in long
/// double). Long cells are compared on blocks of rows at the start, in the middle and at the end.
[[nodiscard]] Accuracy accuracy_of(const Cell& cell, const CellData& data, Executor& executor);

}  // namespace heed::cli

// Floors and ceilings that a benchmark's rows must keep.
#pragma once

#include <string>
#include <vector>

#include "bench_fields.h"

namespace heed::cli {

enum class Bound : std::uint8_t { at_least, at_most };

/// "percent_of_peak_best>=80"
struct Check {
  const Field* field;
  Bound bound;
  double limit;
};

/// Throws UsageError that names what is wrong.
[[nodiscard]] std::vector<Check> parse_checks(const std::vector<std::string>& words);

/// What the row breaks, in one line; "" if it keeps all. A value that is not known keeps nothing.
[[nodiscard]] std::string broken_checks(const std::vector<Check>& checks, const Row& row);

}  // namespace heed::cli

// The fields of a measured row, for machines: one list that CSV, JSON, JSON lines and checks read.
#pragma once

#include <vector>

#include "bench_row.h"
#include "json.h"

namespace heed::cli {

enum class FieldKind : std::uint8_t { number, text, truth, texts };

struct Field {
  const char* name;
  FieldKind kind;
  Json (*of)(const Row& row);  ///< null if it is not known
};

/// In the order in which they are written.
[[nodiscard]] const std::vector<Field>& row_fields();

[[nodiscard]] Json json_of(const Row& row);

}  // namespace heed::cli

// The numbers of a head, in one list for tables and comparisons.
#pragma once

#include <vector>

#include "inspection.h"

namespace heed::cli {

struct HeadNumber {
  const char* name;
  const char* unit;
  const char* title;  ///< what it is, in words
  double (*of)(const HeadInspection&);
};

/// With those of gradients, which heads of an inspection have or lack together.
[[nodiscard]] const std::vector<HeadNumber>& head_numbers(bool gradients);

}  // namespace heed::cli

// An inspection as people and programs read it: a table with remarks, and JSON.
#pragma once

#include <string>

#include "inspection.h"
#include "json.h"
#include "terminal.h"

namespace heed::cli {

/// One line per head, then the remarks, those of heads that say the same together.
[[nodiscard]] std::string inspection_text(const Inspection& inspection, const Terminal& terminal);

/// Every number but the maps, which are in the pictures' CSV files.
[[nodiscard]] Json inspection_json(const Inspection& inspection);

}  // namespace heed::cli

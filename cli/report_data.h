// What a page draws from, as JSON.
#pragma once

#include "flag_values.h"
#include "inspection.h"

namespace heed::cli {

/// Texts are plain; numbers stand in full or packed (report_pack.h). It is bounded: what there is very
/// much of is pooled or left out, and the page says so.
[[nodiscard]] Json report_data(const Inspection& inspection);

}  // namespace heed::cli

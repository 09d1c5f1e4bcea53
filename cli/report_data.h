// What a page draws from, as JSON.
#pragma once

#include <cstdint>

#include "inspection.h"
#include "json.h"

namespace heed::cli {

/// Texts are plain; numbers stand in full or packed (report_pack.h). It is bounded: what there is
/// very much of is pooled or left out, and the page says so.
[[nodiscard]] Json report_data(const Inspection& inspection);

/// Rows and keys of an exact tile, so that one of each head fits; 0 where it would show nothing.
[[nodiscard]] std::int64_t tile_side(std::int64_t heads);

}  // namespace heed::cli

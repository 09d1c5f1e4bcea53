// What a page draws from, as JSON.
#pragma once

#include <cstdint>

#include "inspection.h"
#include "json.h"

namespace heed::cli {

constexpr std::int64_t kMostReportHeads = 1024;  ///< more are left out, layer by layer

/// Of at most so many heads. Texts are plain; numbers stand in full or packed (report_pack.h). It
/// is bounded but for maps and remarks: what there is very much of is thinned or left out, and the
/// page says so.
[[nodiscard]] Json report_data(const Inspection& inspection, std::int64_t most_heads);

/// Cells of a map along each axis, so that one of each head fits: `most`, or fewer.
[[nodiscard]] std::int64_t map_side(std::int64_t most, std::int64_t queries, std::int64_t keys,
                                    std::int64_t heads);

/// Rows and keys of an exact tile, so that one of each head fits; 0 where it would show nothing.
[[nodiscard]] std::int64_t tile_side(std::int64_t heads);

}  // namespace heed::cli

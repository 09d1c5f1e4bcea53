// Where an inspection's files go: checked before anything is computed, written when all of it is
// there.
#pragma once

#include <string>
#include <vector>

#include "inspect_flags.h"
#include "one_head.h"
#include "pictures.h"

namespace heed::cli {

/// Throws if the page or the folder of pictures cannot be written, or the page is a file that is
/// read. Makes nothing.
void check_places(const InspectFlags& flags);

/// Cells of a map along each axis: --map, or fewer where those of all heads must fit into a page.
[[nodiscard]] std::int64_t map_cells(const InspectFlags& flags, const Call& call);

/// Throws if a picture cannot be written, or would replace a file that is read, or the page.
void check_pictures(const InspectFlags& flags, const std::vector<Picture>& pictures);

}  // namespace heed::cli

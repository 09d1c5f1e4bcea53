// Where an inspection's files go: checked before anything is computed, written when all of it is
// there.
#pragma once

#include <string>
#include <vector>

#include "inspect_flags.h"
#include "pictures.h"

namespace heed::cli {

/// Throws if the page or the folder of pictures cannot be written, or the page is a file that is
/// read. Makes nothing.
void check_places(const InspectFlags& flags);

/// Throws if a picture cannot be written, or would replace a file that is read, or the page.
void check_pictures(const InspectFlags& flags, const std::vector<Picture>& pictures);

}  // namespace heed::cli

// Arrays of a page as base64, little endian.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "inspection.h"

namespace heed::cli {

[[nodiscard]] std::string packed(const std::vector<float>& values);
[[nodiscard]] std::string packed(const std::vector<std::int64_t>& values);  ///< as int32
[[nodiscard]] std::string packed(const std::vector<bool>& values);          ///< as bytes

/// A byte for each cell: 128 + 10 lift from 1 to 255; 0 where there is no number.
[[nodiscard]] std::string packed_lift(const CellMap& map);

/// A byte for each cell: 255 + 10 log2 of the mean from 1 to 255; 0 where it is 0.
[[nodiscard]] std::string packed_mean(const CellMap& map);

}  // namespace heed::cli

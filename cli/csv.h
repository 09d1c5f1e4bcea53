// CSV as RFC 4180 has it, with the line ends of this system.
#pragma once

#include <string>

#include "json.h"

namespace heed::cli {

/// A value between two commas: numbers so that reading them back gives the same ones, null as
/// nothing (as is what is not finite), a list of texts with semicolons between.
[[nodiscard]] std::string csv_word(const Json& value);

}  // namespace heed::cli

// Bytes as text: base64 of RFC 4648.
#pragma once

#include <string>
#include <string_view>

namespace heed::cli {

[[nodiscard]] std::string base64(std::string_view bytes);

}  // namespace heed::cli

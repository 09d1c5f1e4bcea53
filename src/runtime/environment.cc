// Environment variables, as all parts of the runtime read and quote them.
#include "runtime/environment.h"

#include <cstdlib>

namespace heed::runtime {

std::string_view environment_variable(const char* name) noexcept {
  const char* text = std::getenv(name);
  return text == nullptr ? std::string_view() : std::string_view(text);
}

std::string quoted(std::string_view text) {
  constexpr std::size_t kLongest = 64;
  constexpr char kDigits[] = "0123456789abcdef";
  std::string result = "'";
  for (const char character : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte >= 0x20 && byte < 0x7f) {
      result += character;
    } else {
      result += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return result + (text.size() > kLongest ? "'..." : "'");
}

}  // namespace heed::runtime

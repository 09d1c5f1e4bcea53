// Bytes out of numbers.
#include "report_pack.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base64.h"

namespace heed::cli {
namespace {

void append_word(std::string& bytes, std::uint32_t word) {
  for (unsigned shift = 0; shift < 32; shift += 8) {
    bytes += static_cast<char>(static_cast<unsigned char>(word >> shift & 255U));
  }
}

// A step of a tenth is a byte; what is beyond the ends counts as the end.
char tenths(double origin, double value) {
  const double byte = std::clamp(origin + std::round(10 * value), 1.0, 255.0);
  return static_cast<char>(static_cast<unsigned char>(byte));
}

}  // namespace

std::string packed(const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) append_word(bytes, std::bit_cast<std::uint32_t>(value));
  return base64(bytes);
}

std::string packed(const std::vector<std::int64_t>& values) {
  std::string bytes;
  for (const std::int64_t value : values) append_word(bytes, static_cast<std::uint32_t>(value));
  return base64(bytes);
}

std::string packed(const std::vector<bool>& values) {
  std::string bytes;
  for (const bool value : values) bytes += static_cast<char>(value ? 1 : 0);
  return base64(bytes);
}

std::string packed_lift(const CellMap& map) {
  std::string bytes;
  for (const float cell : map.cells) {
    bytes += std::isnan(cell) ? '\0' : tenths(128, static_cast<double>(cell));
  }
  return base64(bytes);
}

std::string packed_mean(const CellMap& map) {
  std::string bytes;
  for (const float cell : map.cells) {
    bytes += cell > 0 ? tenths(255, std::log2(static_cast<double>(cell))) : '\0';
  }
  return base64(bytes);
}

}  // namespace heed::cli

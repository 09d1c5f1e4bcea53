// Bytes out of numbers.
#include "report_pack.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base64.h"
#include "picture_parts.h"

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

template <typename Fold>
std::vector<float> pooled(const std::vector<float>& values, int count, const Fold& fold) {
  const auto size = static_cast<std::int64_t>(values.size());
  if (size <= count) return values;
  std::vector<float> fewer;
  for (int i = 0; i < count; ++i) {
    const Reach reach = reach_of(i, count, size);
    double sum = 0;
    int numbers = 0;
    for (auto at = reach.first; at < reach.end; ++at) {
      const auto value = static_cast<double>(values[static_cast<std::size_t>(at)]);
      if (std::isnan(value)) continue;
      sum += value;
      ++numbers;
    }
    fewer.push_back(numbers > 0 ? static_cast<float>(fold(sum, numbers)) : NAN);
  }
  return fewer;
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

CellMap pooled_mean(const CellMap& map, int rows, int columns) {
  rows = std::min(rows, map.rows);
  columns = std::min(columns, map.columns);
  CellMap fewer{rows, columns, {}};
  for (int r = 0; r < rows; ++r) {
    const Reach down = reach_of(r, rows, map.rows);
    for (int c = 0; c < columns; ++c) {
      const Reach across = reach_of(c, columns, map.columns);
      double sum = 0;
      for (auto y = down.first; y < down.end; ++y) {
        for (auto x = across.first; x < across.end; ++x) {
          sum += static_cast<double>(map.at(static_cast<int>(y), static_cast<int>(x)));
        }
      }
      const auto cells = (down.end - down.first) * (across.end - across.first);
      fewer.cells.push_back(static_cast<float>(sum / static_cast<double>(cells)));
    }
  }
  return fewer;
}

std::vector<float> pooled_mean(const std::vector<float>& values, int count) {
  return pooled(values, count, [](double sum, int numbers) { return sum / numbers; });
}

std::vector<float> pooled_sum(const std::vector<float>& values, int count) {
  return pooled(values, count, [](double sum, int) { return sum; });
}

}  // namespace heed::cli

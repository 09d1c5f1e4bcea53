// Scales, pooled maps, names.
#include "picture_parts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "csv.h"
#include "plain_text.h"

namespace heed::cli {

Scale lift_scale(const Inspection& inspection) {
  int columns = 2;
  for (const HeadInspection& head : inspection.found)
    columns = std::max(columns, head.lift.columns);
  const double most = std::log2(static_cast<double>(columns));
  return {-most, most, ColourMap::lift};
}

double shortest(float value) {
  if (!std::isfinite(value)) return static_cast<double>(value);
  std::array<char, 32> text{};
  const auto done = std::to_chars(text.data(), text.data() + text.size(), value);
  double same = 0;
  std::from_chars(text.data(), done.ptr, same);
  return same;
}

ScoreReach reach_of_scores(const Inspection& inspection, const std::vector<std::int64_t>& counts) {
  ScoreReach reach;
  double total = 0;
  for (const std::int64_t count : counts) total += static_cast<double>(count);
  const double left_out = 0.0005 * total;  // on a side
  const double width = (inspection.bin_high - inspection.bin_low) / std::max(inspection.bins, 1);
  // Where more than that lies at a bin and beyond, the bin is shown. The outermost have no width.
  double below = counts.empty() ? 0 : static_cast<double>(counts.front());
  double above = counts.empty() ? 0 : static_cast<double>(counts.back());
  for (std::size_t i = 1; i + 1 < counts.size(); ++i) {
    below += static_cast<double>(counts[i]);
    if (below <= left_out) continue;
    reach.low = std::min(reach.low, inspection.bin_low + width * static_cast<double>(i - 1));
    break;
  }
  for (std::size_t i = counts.size(); i > 2; --i) {
    above += static_cast<double>(counts[i - 2]);
    if (above <= left_out) continue;
    reach.high = std::max(reach.high, inspection.bin_low + width * static_cast<double>(i - 2));
    break;
  }
  return reach;
}

double normal_density(double low, double high) {
  const auto below = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  return (below(high) - below(low)) / (high - low);
}

Image image_of(const CellMap& map, const Scale& scale) {
  Image image(map.columns, map.rows);
  std::transform(map.cells.begin(), map.cells.end(), image.pixels.begin(),
                 [&scale](float cell) { return scale.index(static_cast<double>(cell)); });
  return image;
}

void draw_map(Svg& svg, const CellMap& map, const Scale& scale, const Box& box) {
  svg.hatched(box.x, box.y, box.width, box.height);
  if (!map.cells.empty()) {
    svg.image(box.x, box.y, box.width, box.height, image_of(map, scale), scale.colours);
  }
  svg.path(format("M%.2f %.2fh%.2fv%.2fh%.2fz", box.x, box.y, box.width, box.height, -box.width),
           "edge");
}

void draw_colours(Svg& svg, const Scale& scale, const Box& box, const std::string& title) {
  Image strip(255, 1);
  for (int i = 0; i < 255; ++i) strip.at(i, 0) = static_cast<std::uint8_t>(i + 1);
  svg.image(box.x, box.y, box.width, box.height, strip, scale.colours);
  svg.path(format("M%.2f %.2fh%.2fv%.2fh%.2fz", box.x, box.y, box.width, box.height, -box.width),
           "edge");
  const double y = box.y + box.height + 13;
  const bool diverges = scale.colours == ColourMap::lift;
  const auto end = [&](double value) {
    return format(diverges && value > 0 ? "+%.3g" : "%.3g", value);
  };
  svg.text(box.x, y, "quiet", Anchor::start, end(scale.low));
  svg.text(box.x + box.width / 2, y, "quiet", Anchor::middle, title);
  svg.text(box.x + box.width, y, "quiet", Anchor::end, end(scale.high));
}

CellMap pooled_lift(const CellMap& map, int rows, int columns) {
  rows = std::min(rows, map.rows);
  columns = std::min(columns, map.columns);
  CellMap pooled{rows, columns, {}};
  for (int r = 0; r < rows; ++r) {
    const Reach down = reach_of(r, rows, map.rows);
    for (int c = 0; c < columns; ++c) {
      const Reach across = reach_of(c, columns, map.columns);
      double sum = 0;
      int count = 0;
      for (auto y = down.first; y < down.end; ++y) {
        for (auto x = across.first; x < across.end; ++x) {
          const auto lift = static_cast<double>(map.at(static_cast<int>(y), static_cast<int>(x)));
          if (std::isnan(lift)) continue;
          sum += std::exp2(lift);
          ++count;
        }
      }
      pooled.cells.push_back(count > 0 ? static_cast<float>(std::log2(sum / count)) : NAN);
    }
  }
  return pooled;
}

Reach reach_of(int cell, int cells, std::int64_t count) {
  // floor(i * cells / count) = cell: the smallest such i, and the smallest of the next cell.
  const auto first = [cells, count](std::int64_t at) { return (at * count + cells - 1) / cells; };
  return {first(cell), first(cell + 1)};
}

std::string name_of(const Reach& reach) {
  const std::string first = numbered("", reach.first);
  return reach.end - reach.first < 2 ? first : first + numbered("-", reach.end - 1);
}

std::string csv_line(const std::vector<Json>& cells) {
  std::string line;
  for (const Json& cell : cells) {
    if (!line.empty() || &cell != &cells.front()) line += ',';
    line += csv_word(cell);
  }
  return line + "\n";
}

std::string csv_text(std::string text) {
  // Tabs and line ends count too, where a reader strips them; plain_text leaves none.
  constexpr std::string_view kBeginFormulas = "=+-@\t\r\n";
  if (!text.empty() && kBeginFormulas.find(text.front()) != std::string_view::npos) {
    text.insert(0, 1, '\'');
  }
  return text;
}

std::string numbered(const char* word, std::int64_t number) {
  return format("%s%lld", word, static_cast<long long>(number));
}

std::string head_name(std::int64_t layer, std::int64_t head) {
  return numbered("L", layer) + numbered(" H", head);
}

std::string head_file(std::int64_t layer, std::int64_t head) {
  return numbered("l", layer) + numbered("_h", head);
}

std::string token_of(const Inspection& inspection, std::int64_t key, std::size_t most) {
  return plain_text(inspection.label(key), most);
}

std::string row_token(const Inspection& inspection, std::int64_t row, std::size_t most) {
  if (inspection.queries != inspection.keys) return std::to_string(row);
  return token_of(inspection, row, most);
}

std::string key_label(const Inspection& inspection, std::int64_t key, std::size_t most) {
  return drawn_text(inspection.label(key), most);
}

std::string row_label(const Inspection& inspection, std::int64_t row, std::size_t most) {
  if (inspection.queries != inspection.keys) return std::to_string(row);
  return key_label(inspection, row, most);
}

std::string count_text(std::int64_t count, const char* one, const char* more) {
  return std::to_string(count) + " " + (count == 1 ? one : more);
}

std::string subject_of(const Inspection& inspection) {
  std::string subject = plain_text(inspection.source, 60);
  const std::string options = inspection.options();
  if (!options.empty()) subject += "  " + plain_text(options, 60);
  return subject + "; " + std::to_string(inspection.layers) + " x " +
         count_text(inspection.heads, "head", "heads") + ", " +
         count_text(inspection.queries, "query", "queries") + ", " +
         count_text(inspection.keys, "key", "keys");
}

}  // namespace heed::cli

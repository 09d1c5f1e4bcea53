// Maps and rows for terminals: half-blocks in colour, or shades of plain characters.
#include <algorithm>
#include <cmath>

#include "picture_parts.h"
#include "plain_text.h"

namespace heed::cli {
namespace {

constexpr int kLabel = 4;  // columns of the layer's name
constexpr int kLeast = 8;  // columns of a map with its name below
constexpr int kMost = 24;

// "38" is the ink, "48" the ground.
std::string colour_code(const char* where, std::uint8_t index, const Terminal& terminal) {
  const Theme theme = terminal.ground == Ground::dark ? Theme::dark : Theme::light;
  if (terminal.depth == ColourDepth::indexed) {
    return format("%s;5;%d", where, indexed_lift(index, theme));
  }
  const Rgb colour = palette(ColourMap::lift, theme)[index];
  return format("%s;2;%d;%d;%d", where, colour.red, colour.green, colour.blue);
}

// Two cells above each other as one character; index 0 leaves the terminal's ground.
std::string half_blocks(std::uint8_t above, std::uint8_t below, const Terminal& terminal) {
  if (above == 0 && below == 0) return "\033[0m ";
  if (below == 0) return "\033[0;" + colour_code("38", above, terminal) + "m▀";
  const std::string lower = colour_code("38", below, terminal);
  if (above == 0) return "\033[0;" + lower + "m▄";
  return "\033[" + colour_code("38", above, terminal) + ";" + colour_code("48", below, terminal) +
         "m▀";
}

// One line of a map: cells in pairs with half-blocks, single ones otherwise.
std::string map_line(const CellMap& map, int line, const Scale& scale, const Terminal& terminal) {
  const bool halves = terminal.unicode && terminal.depth != ColourDepth::none;
  const auto index = [&](int row, int column) {
    return row < map.rows ? scale.index(static_cast<double>(map.at(row, column))) : std::uint8_t{0};
  };
  std::string text;
  for (int column = 0; column < map.columns; ++column) {
    if (halves) {
      text += half_blocks(index(2 * line, column), index(2 * line + 1, column), terminal);
      continue;
    }
    const std::uint8_t at = index(line, column);
    if (terminal.depth != ColourDepth::none) {
      text += at == 0 ? std::string("\033[0m ") : "\033[" + colour_code("48", at, terminal) + "m ";
      continue;
    }
    // From far below even weight to all of it; hidden cells are blank.
    constexpr std::string_view kShades = ".,:-=+*#%@";
    text += at == 0 ? ' ' : kShades[static_cast<std::size_t>(at - 1) * kShades.size() / 255];
  }
  return terminal.depth != ColourDepth::none ? text + "\033[0m" : text;
}

// The columns of a map and how many of them stand beside each other: as few bands as leave readable
// maps, of equal length.
struct Bands {
  int columns, maps;
};
Bands bands_of(int width, int heads, int map_columns) {
  const int most = std::clamp(map_columns, kLeast, kMost);
  const int wanted = std::min(most, 12);
  for (int bands = 1;; ++bands) {
    const int maps = (heads + bands - 1) / bands;
    const int columns = (width - kLabel) / std::max(maps, 1) - 1;
    if (columns >= wanted || maps <= 1) return {std::clamp(columns, kLeast, most), maps};
  }
}

std::string legend_of(const Scale& scale, const Terminal& terminal) {
  CellMap strip{1, 21, {}};
  for (int i = 0; i < 21; ++i) {
    strip.cells.push_back(static_cast<float>(scale.low + (scale.high - scale.low) * i / 20));
  }
  Terminal single = terminal;
  single.unicode = false;
  return format("lift %.3g ", scale.low) + map_line(strip, 0, scale, single) +
         format(" +%.3g", scale.high);
}

}  // namespace

std::string poster_text(const Inspection& inspection, const Terminal& terminal) {
  if (inspection.found.empty()) return "";
  int map_rows = 1;
  int map_columns = 1;
  for (const HeadInspection& head : inspection.found) {
    map_rows = std::max(map_rows, head.lift.rows);
    map_columns = std::max(map_columns, head.lift.columns);
  }
  const int heads = static_cast<int>(inspection.heads);
  const Bands bands = bands_of(terminal.width, heads, map_columns);
  const int columns = std::min(bands.columns, map_columns);
  const bool halves = terminal.unicode && terminal.depth != ColourDepth::none;
  // A character is about twice as high as it is wide.
  const double shape = static_cast<double>(map_rows) / map_columns;
  const int square = static_cast<int>(std::lround(columns * std::clamp(shape, 0.25, 3.0)));
  const int rows = std::max(halves ? square : square / 2, 1);
  const int lines = halves ? (rows + 1) / 2 : rows;
  const Scale scale = lift_scale(inspection);
  const auto width = static_cast<std::size_t>(terminal.width);
  std::string text =
      legend_of(scale, terminal) + "\n" +
      paragraph(
          "rows are queries, columns keys; lift is log2 of weight / even weight; below each head: "
          "its entropy as a share of the most there can be",
          width);
  for (std::int64_t layer = 0; layer < inspection.layers; ++layer) {
    for (int from = 0; from < heads; from += bands.maps) {
      const int to = std::min(from + bands.maps, heads);
      std::vector<CellMap> maps;
      for (int head = from; head < to; ++head) {
        maps.push_back(pooled_lift(inspection.at(layer, head).lift, rows, columns));
      }
      text += "\n";
      for (int line = 0; line < lines; ++line) {
        const std::string name = line == 0 && from == 0 ? numbered("L", layer) : "";
        std::string one = filled_to(name, kLabel);
        for (const CellMap& map : maps) {
          const bool there = halves ? 2 * line < map.rows : line < map.rows;
          if (there) one += map_line(map, line, scale, terminal);
          const int drawn = there ? map.columns : 0;
          one += std::string(static_cast<std::size_t>(bands.columns - drawn + 1), ' ');
        }
        one.resize(one.find_last_not_of(' ') + 1);
        text += one + "\n";
      }
      std::string names(kLabel, ' ');
      for (int head = from; head < to; ++head) {
        const double share = inspection.at(layer, head).entropy_share.mean;
        const std::string number = std::isfinite(share) ? format("%.2f", share) : "-";
        names += filled_to(filled_to(numbered("h", head), 4) + number,
                           static_cast<std::size_t>(bands.columns) + 1);
      }
      names.resize(names.find_last_not_of(' ') + 1);
      text += names + "\n";
    }
  }
  return text;
}

std::string arcs_text(const Inspection& inspection, const ChosenHead& head, std::int64_t row,
                      const Terminal& terminal) {
  constexpr std::size_t kToken = 16;
  const auto& all = inspection.at(head.layer, head.head).top;
  const auto found =
      std::find_if(all.begin(), all.end(), [row](const TopKeys& top) { return top.row == row; });
  if (found == all.end()) return "";
  std::size_t names = 0;
  std::size_t numbers = 0;
  for (const std::int64_t key : found->keys) {
    names = std::max(names, length_of(token_of(inspection, key, kToken)));
    numbers = std::max(numbers, std::to_string(key).size());
  }
  const std::string query = plain_text(row_token(inspection, row, 24));
  std::string text =
      styled(head_name(head.layer, head.head) + numbered(", row ", row) +
                 (query == std::to_string(row) ? "" : " \"" + query + "\"") + " looks at",
             "1", terminal.colour) +
      "\n";
  const int cells =
      std::max(std::min(terminal.width, 80) - static_cast<int>(names + numbers) - 14, 4);
  for (std::size_t i = 0; i < std::min(found->keys.size(), found->weights.size()); ++i) {
    const std::string number = std::to_string(found->keys[i]);
    const std::string drawn = bar(static_cast<double>(found->weights[i]), cells, terminal.unicode);
    text += "  " + std::string(numbers - number.size(), ' ') + number + "  " +
            filled_to(token_of(inspection, found->keys[i], kToken), names) +
            format("  %.4f  ", static_cast<double>(found->weights[i])) +
            styled(drawn, i == 0 ? "36" : "34", terminal.colour) + "\n";
  }
  return text + format("  together %.4f of the row's weight\n", static_cast<double>(found->mass));
}

}  // namespace heed::cli

// What the mask lets be seen, and which tiles are never computed because of it.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "picture_parts.h"

namespace heed::cli {
namespace {

constexpr double kSide = 380;
constexpr double kLeft = 64;
constexpr double kTop = 128;

void draw_ends(Svg& svg, const Inspection& inspection, const Box& box) {
  const auto last = [](std::int64_t count) {
    return std::to_string(std::max<std::int64_t>(count - 1, 0));
  };
  svg.text(box.x - 6, box.y + 9, "quiet", Anchor::end, "query 0");
  svg.text(box.x - 6, box.y + box.height, "quiet", Anchor::end, last(inspection.queries));
  svg.text(box.x, box.y + box.height + 14, "quiet", Anchor::start, "key 0");
  svg.text(box.x + box.width, box.y + box.height + 14, "quiet", Anchor::end, last(inspection.keys));
}

/// `rows_of` and `keys_of` tell which queries and keys a row and a column of cells hold.
template <typename RowsOf, typename KeysOf>
void add_cells(std::string& csv, const char* kind, const CellMap& map, const RowsOf& rows_of,
               const KeysOf& keys_of) {
  for (int r = 0; r < map.rows; ++r) {
    const Reach rows = rows_of(r);
    for (int c = 0; c < map.columns; ++c) {
      const Reach keys = keys_of(c);
      csv += csv_line(
          {kind, r, c, rows.first, rows.end - 1, keys.first, keys.end - 1, shortest(map.at(r, c))});
    }
  }
}

/// Each cell of both maps; tiles have one size, but for the last of a row or column.
std::string csv_of(const Inspection& inspection, const MaskPicture& mask) {
  const auto cells = [](int among, std::int64_t count) {
    return [among, count](int at) { return reach_of(at, among, count); };
  };
  const auto tiles = [](std::int64_t size, std::int64_t count) {
    return [size, count](int at) { return Reach{at * size, std::min((at + 1) * size, count)}; };
  };
  std::string csv = "kind,row,column,first_query,last_query,first_key,last_key,value\n";
  add_cells(csv, "visible", mask.visible, cells(mask.visible.rows, inspection.queries),
            cells(mask.visible.columns, inspection.keys));
  if (mask.tiles_computed + mask.tiles_skipped == 0) return csv;  // without numbers in q
  add_cells(csv, "computed", mask.computed, tiles(mask.tile_rows, inspection.queries),
            tiles(mask.tile_keys, inspection.keys));
  return csv;
}

}  // namespace

void add_mask(std::vector<Picture>& pictures, const Inspection& inspection) {
  const MaskPicture& mask = inspection.mask;
  if (mask.visible.cells.empty()) return;
  // Full sight is as far into the palette as is pleasant for areas; no sight is drawn as hidden.
  const Scale scale{0, 1.8, ColourMap::share};
  CellMap visible = mask.visible;
  CellMap computed = mask.computed;
  for (CellMap* map : {&visible, &computed}) {
    for (float& cell : map->cells) cell = cell > 0 ? cell : NAN;
  }
  Svg svg;
  svg.text(20, 36, "title", Anchor::start, "What the mask lets be seen");
  const std::int64_t all = mask.tiles_computed + mask.tiles_skipped;
  const std::string tiles_told =
      all == 0 ? "There are no tiles: the head size is 0."
               : format(
                     "Tiles of %d queries x %d keys in all layers and heads: %lld of %lld "
                     "computed, %lld, "
                     "%.1f %%, skipped.",
                     mask.tile_rows, mask.tile_keys, static_cast<long long>(mask.tiles_computed),
                     static_cast<long long>(all), static_cast<long long>(mask.tiles_skipped),
                     100.0 * static_cast<double>(mask.tiles_skipped) / static_cast<double>(all));
  svg.text(20, 60, "prose", Anchor::start, "First layer and head. " + tiles_told);
  svg.text(20, 80, "quiet", Anchor::start, subject_of(inspection));
  const Box box{kLeft, kTop, kSide, kSide};
  svg.text(box.x, box.y - 12, "panel", Anchor::start, "Visible pairs: striped there are none");
  draw_map(svg, visible, scale, box);
  draw_ends(svg, inspection, box);
  const bool tiles = !mask.computed.cells.empty();
  if (tiles) {
    const Box right{kLeft + kSide + 84, kTop, kSide, kSide};
    svg.text(right.x, right.y - 12, "panel", Anchor::start, "Tiles: striped ones are skipped");
    draw_map(svg, computed, scale, right);
    std::string grid;
    for (int r = 1; r < computed.rows && computed.rows <= 128; ++r) {
      grid += format("M%.1f %.2fh%.1f", right.x, right.y + kSide * r / computed.rows, kSide);
    }
    for (int c = 1; c < computed.columns && computed.columns <= 128; ++c) {
      grid += format("M%.2f %.1fv%.1f", right.x + kSide * c / computed.columns, right.y, kSide);
    }
    if (!grid.empty()) svg.path(grid, "edge");
    draw_ends(svg, inspection, right);
  }
  pictures.push_back(
      {"mask.svg",
       svg.document(kLeft + kSide * (tiles ? 2 : 1) + (tiles ? 110 : 360), kTop + kSide + 32,
                    "What the mask lets be seen", subject_of(inspection))});
  pictures.push_back({"mask.png", png_of(enlarged(image_of(visible, scale)),
                                         palette(ColourMap::share, Theme::light))});
  pictures.push_back({"mask.csv", csv_of(inspection, mask)});
}

}  // namespace heed::cli

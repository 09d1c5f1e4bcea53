// One head's map in three ways, with the entropy of its rows and the mass of its columns beside it.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "picture_parts.h"
#include "plain_text.h"

namespace heed::cli {
namespace {

constexpr double kSide = 290;   // of a map
constexpr double kMargin = 30;  // of the bars beside it
constexpr double kPitch = 368;  // from map to map
constexpr int kMostNames = 32;  // rows or columns that still have room for their tokens

// Bars from the map outwards, as long as value / most.
void draw_margins(Svg& svg, const HeadInspection& head, const Box& map) {
  const auto bars = [&svg](const std::vector<float>& values, double most, auto place) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto value = static_cast<double>(values[i]);
      if (!std::isfinite(value) || most <= 0) continue;
      const Box bar = place(static_cast<double>(i), kMargin * std::clamp(value / most, 0.0, 1.0));
      svg.rectangle(bar.x, bar.y, bar.width, bar.height, "f0", 1, format("%.4g", value));
    }
  };
  const double row = map.height / std::max(head.lift.rows, 1);
  bars(head.row_entropy_share, 1, [&](double i, double length) {
    return Box{map.x + map.width + 5, map.y + i * row, length, std::max(row - 0.5, 0.5)};
  });
  double most = 0;
  for (const float mass : head.column_mass) most = std::max(most, static_cast<double>(mass));
  const double column = map.width / std::max(head.lift.columns, 1);
  bars(head.column_mass, most, [&](double i, double length) {
    return Box{map.x + i * column, map.y + map.height + 5, std::max(column - 0.5, 0.5), length};
  });
  svg.line(map.x + map.width + 5, map.y, map.x + map.width + 5, map.y + map.height, "axis");
  svg.line(map.x, map.y + map.height + 5, map.x + map.width, map.y + map.height + 5, "axis");
  svg.turned_text(map.x + map.width + kMargin + 17, map.y + map.height / 2, -90, "quiet",
                  Anchor::middle, "entropy share, 0 .. 1");
}

// Names of rows, and of columns below the margin; numbers at the ends where there are too many.
void draw_names(Svg& svg, const Inspection& inspection, const CellMap& map, const Box& box) {
  const bool rows = map.rows == inspection.queries && map.rows <= kMostNames;
  const bool columns = map.columns == inspection.keys && map.columns <= kMostNames;
  const double row = box.height / std::max(map.rows, 1);
  const double column = box.width / std::max(map.columns, 1);
  for (int i = 0; rows && i < map.rows; ++i) {
    svg.text(box.x - 6, box.y + (i + 0.5) * row + 4, "quiet", Anchor::end,
             row_label(inspection, i, 12));
  }
  if (!rows) {
    svg.text(box.x - 6, box.y + 9, "quiet", Anchor::end, "query 0");
    svg.text(box.x - 6, box.y + box.height, "quiet", Anchor::end,
             std::to_string(inspection.queries - 1));
  }
  const double below = box.y + box.height + kMargin + 14;
  for (int i = 0; columns && i < map.columns; ++i) {
    svg.turned_text(box.x + (i + 0.5) * column + 4, below, 90, "quiet", Anchor::end,
                    key_label(inspection, i, 12));
  }
  if (!columns) {
    svg.text(box.x, below + 4, "quiet", Anchor::start, "key 0");
    svg.text(box.x + box.width, below + 4, "quiet", Anchor::end,
             std::to_string(inspection.keys - 1));
  }
}

CellMap logarithm_of(const CellMap& map) {
  CellMap logs = map;
  for (float& cell : logs.cells) cell = cell > 0 ? std::log10(cell) : NAN;
  return logs;
}

// Hidden cells of the lift are hidden in the other maps too: their mean of 0 is no measurement.
CellMap seen_only(const CellMap& map, const CellMap& lift) {
  CellMap seen = map;
  for (std::size_t i = 0; i < std::min(seen.cells.size(), lift.cells.size()); ++i) {
    if (std::isnan(lift.cells[i])) seen.cells[i] = NAN;
  }
  return seen;
}

std::string csv_of_head(const Inspection& inspection, const HeadInspection& head) {
  std::string csv =
      "map_row,map_column,first_query,last_query,first_key,last_key,lift,mean_weight,"
      "row_entropy_share,column_mass\n";
  const auto margin = [](const std::vector<float>& values, int at) -> Json {
    const auto i = static_cast<std::size_t>(at);
    return i < values.size() ? Json(shortest(values[i])) : Json();
  };
  const bool same = head.mean.rows == head.lift.rows && head.mean.columns == head.lift.columns;
  for (int r = 0; r < head.lift.rows; ++r) {
    const Reach rows = reach_of(r, head.lift.rows, inspection.queries);
    for (int c = 0; c < head.lift.columns; ++c) {
      const Reach keys = reach_of(c, head.lift.columns, inspection.keys);
      csv += csv_line({r, c, rows.first, rows.end - 1, keys.first, keys.end - 1,
                       shortest(head.lift.at(r, c)),
                       same ? Json(shortest(head.mean.at(r, c))) : Json(),
                       margin(head.row_entropy_share, r), margin(head.column_mass, c)});
    }
  }
  return csv;
}

}  // namespace

void add_head_map(std::vector<Picture>& pictures, const Inspection& inspection,
                  const ChosenHead& chosen) {
  const HeadInspection& head = inspection.at(chosen.layer, chosen.head);
  const CellMap mean = seen_only(head.mean, head.lift);
  const CellMap logs = logarithm_of(mean);
  float most = 0;
  float least = 0;
  for (const float cell : mean.cells) most = std::max(most, cell);
  for (const float cell : logs.cells) least = std::min(least, cell);
  struct Way {
    const char* title;
    const char* colours;
    const CellMap* map;
    Scale scale;
  };
  const Way ways[] = {
      {"Lift: weight / even weight", "log2", &head.lift, lift_scale(inspection)},
      {"Linear: mean weight", "weight", &mean, {0, most > 0 ? static_cast<double>(most) : 1.0}},
      {"Logarithmic: mean weight",
       "log10",
       &logs,
       {std::clamp(std::floor(static_cast<double>(least)), -8.0, -1.0), 0}}};
  Svg svg;
  const double left = 92;
  const double top = 128;
  const bool names = head.lift.columns == inspection.keys && head.lift.columns <= kMostNames;
  const double names_height = names ? 84 : 24;
  svg.text(20, 36, "title", Anchor::start,
           numbered("Layer ", chosen.layer) + numbered(", head ", chosen.head) +
               (chosen.reason.empty() ? "" : ": " + chosen.reason));
  svg.text(20, 60, "prose", Anchor::start,
           "Rows are queries, columns keys. Right of a map the entropy of its rows, below it the "
           "share of all weight that a column of keys gets.");
  svg.text(20, 80, "quiet", Anchor::start, subject_of(inspection));
  const double strip = top + kSide + kMargin + names_height + 12;
  for (int i = 0; i < 3; ++i) {
    const Way& way = ways[i];
    const Box box{left + i * kPitch, top, kSide, kSide};
    svg.text(box.x, box.y - 12, "panel", Anchor::start, way.title);
    draw_map(svg, *way.map, way.scale, box);
    draw_margins(svg, head, box);
    if (i == 0) draw_names(svg, inspection, head.lift, box);
    draw_colours(svg, way.scale, {box.x, strip, kSide, 12}, way.colours);
  }
  double y = strip + 52;
  for (const Remark& remark : head.remarks) {
    svg.text(20, y, "prose", Anchor::start,
             plain_text((remark.severity == Severity::warning ? "! " : "") + remark.sentence +
                            (remark.suggestion.empty() ? "" : "; try: " + remark.suggestion),
                        170));
    y += 20;
  }
  const std::string name = "head_" + head_file(chosen.layer, chosen.head);
  pictures.push_back(
      {name + ".svg", svg.document(left + 3 * kPitch - 10, y + 8,
                                   head_name(chosen.layer, chosen.head), subject_of(inspection))});
  pictures.push_back({name + ".png", png_of(enlarged(image_of(head.lift, ways[0].scale)),
                                            palette(ColourMap::lift, Theme::light))});
  pictures.push_back({name + ".csv", csv_of_head(inspection, head)});
}

}  // namespace heed::cli

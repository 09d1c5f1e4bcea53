// Entropy and saturation of all rows: a line of cells for each head.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "picture_parts.h"

namespace heed::cli {
namespace {

constexpr double kLeft = 84;
constexpr double kTop = 112;
constexpr double kWidth = 720;

struct RowMap {
  const char* name;
  const char* title;
  const char* reads;
  const char* colours;
  const char* column;  // of the CSV
  std::vector<float> HeadInspection::*values;
  double HeadInspection::*share;  // a number of the whole head, right of its line; or none
};

constexpr RowMap kEntropy{
    "entropy",
    "Entropy of every row",
    "1 is uniform over the keys that the row may see, 0 is one of them. Striped: rows "
    "that see no two keys, or are NaN.",
    "entropy / ln(visible keys)",
    "entropy_share",
    &HeadInspection::row_entropy_share,
    nullptr};
constexpr RowMap kSaturation{"saturation",
                             "Saturation: the largest weight of every row",
                             "Where it is close to 1 the softmax hardly learns. Right: the share "
                             "of the head's rows above the threshold. Striped: no key seen, or "
                             "NaN.",
                             "largest weight",
                             "max_weight",
                             &HeadInspection::row_max_weight,
                             &HeadInspection::saturated};

void add_row_map(std::vector<Picture>& pictures, const Inspection& inspection, const RowMap& kind) {
  CellMap map{static_cast<int>(inspection.found.size()), 0, {}};
  for (const HeadInspection& head : inspection.found) {
    map.columns = std::max(map.columns, static_cast<int>((head.*kind.values).size()));
  }
  std::string csv = std::string("layer,head,map_row,first_query,last_query,") + kind.column + "\n";
  for (const HeadInspection& head : inspection.found) {
    const auto& values = head.*kind.values;
    for (int i = 0; i < map.columns; ++i) {
      const bool there = static_cast<std::size_t>(i) < values.size();
      map.cells.push_back(there ? values[static_cast<std::size_t>(i)] : NAN);
      if (!there) continue;
      const Reach reach = reach_of(i, static_cast<int>(values.size()), inspection.queries);
      csv += csv_line({head.layer, head.head, i, reach.first, reach.end - 1,
                       shortest(values[static_cast<std::size_t>(i)])});
    }
  }
  const Scale scale{0, 1, ColourMap::share};
  const double line = std::clamp(864.0 / std::max(map.rows, 1), 3.0, 14.0);
  const Box box{kLeft, kTop, kWidth, std::max(line * map.rows, 20.0)};
  Svg svg;
  svg.text(20, 36, "title", Anchor::start, kind.title);
  svg.text(20, 60, "prose", Anchor::start, kind.reads);
  svg.text(20, 80, "quiet", Anchor::start, subject_of(inspection));
  draw_map(svg, map, scale, box);
  for (int i = 0; i < map.rows; ++i) {
    const HeadInspection& head = inspection.found[static_cast<std::size_t>(i)];
    const double y = kTop + i * line;
    const bool first = head.head == 0;
    if (first && i > 0) svg.line(kLeft - 44, y, kLeft + kWidth, y, "axis");
    if (line >= 9) {
      svg.text(kLeft - 6, y + line - 3, "quiet", Anchor::end, head_name(head.layer, head.head));
    } else if (first) {
      svg.text(kLeft - 6, y + 10, "quiet", Anchor::end, numbered("L", head.layer));
    }
    if (kind.share == nullptr) continue;
    const double share = head.*kind.share;
    if (!std::isfinite(share)) continue;
    svg.rectangle(kLeft + kWidth + 8, y + 0.15 * line, 60 * std::clamp(share, 0.0, 1.0), 0.7 * line,
                  "f1", 1, head_name(head.layer, head.head) + ": " + Json(share).dump());
    if (line >= 9 && share > 0) {
      svg.text(kLeft + kWidth + 12 + 60 * std::clamp(share, 0.0, 1.0), y + line - 3, "quiet",
               Anchor::start, format("%.0f %%", 100 * share));
    }
  }
  const double below = box.y + box.height;
  svg.text(kLeft, below + 14, "quiet", Anchor::start, "query 0");
  svg.text(kLeft + kWidth, below + 14, "quiet", Anchor::end,
           std::to_string(std::max<std::int64_t>(inspection.queries - 1, 0)));
  draw_colours(svg, scale, {kLeft, below + 30, 260, 12}, kind.colours);
  const std::string name = kind.name;
  pictures.push_back({name + ".svg", svg.document(kLeft + kWidth + 116, below + 66, kind.title,
                                                  subject_of(inspection))});
  pictures.push_back({name + ".png", png_of(enlarged(image_of(map, scale)),
                                            palette(ColourMap::share, Theme::light))});
  pictures.push_back({name + ".csv", csv});
}

}  // namespace

void add_row_maps(std::vector<Picture>& pictures, const Inspection& inspection) {
  add_row_map(pictures, inspection, kEntropy);
  add_row_map(pictures, inspection, kSaturation);
}

}  // namespace heed::cli

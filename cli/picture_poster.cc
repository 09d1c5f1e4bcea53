// The poster: every head as a small map of lift, with its entropy.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "picture_parts.h"
#include "plain_text.h"
#include "poster.h"

namespace heed::cli {
namespace {

std::string percent(double share) {
  return std::isfinite(share) ? format("%.0f %%", 100 * share) : "no rows";
}

std::string header_csv(int columns) {
  std::string line = "layer,head,entropy_share_mean,saturated,map_row,first_query,last_query";
  for (int i = 0; i < columns; ++i) line += numbered(",lift_", i);
  return line + "\n";
}

}  // namespace

void add_poster(std::vector<Picture>& pictures, const Inspection& inspection) {
  int rows = 0;
  int columns = 0;
  for (const HeadInspection& head : inspection.found) {
    rows = std::max(rows, head.lift.rows);
    columns = std::max(columns, head.lift.columns);
  }
  Poster poster(inspection.layers, inspection.heads, rows, columns);
  const Scale scale = lift_scale(inspection);
  std::vector<PosterLabel> labels;
  std::string csv = header_csv(columns);
  for (const HeadInspection& head : inspection.found) {
    poster.put(head.layer, head.head, head.lift, scale);
    const double share = head.entropy_share.mean;
    const bool warned =
        std::any_of(head.remarks.begin(), head.remarks.end(),
                    [](const Remark& one) { return one.severity == Severity::warning; });
    labels.push_back(
        {share, warned ? "f1" : "f0", percent(share) + (warned ? " !" : ""),
         std::isfinite(share) ? format("%.0f", 100 * share) : "-",
         head_name(head.layer, head.head) + format(": entropy %.4g of the most there can "
                                                   "be, %.4g of the rows saturated",
                                                   share, head.saturated)});
    for (int row = 0; row < head.lift.rows; ++row) {
      const Reach reach = reach_of(row, head.lift.rows, inspection.queries);
      std::vector<Json> line{head.layer, head.head,   share,        head.saturated,
                             row,        reach.first, reach.end - 1};
      for (int column = 0; column < head.lift.columns; ++column) {
        line.emplace_back(shortest(head.lift.at(row, column)));
      }
      csv += csv_line(line);
    }
  }
  const PosterText text{
      "All heads: where each looks more than evenly",
      "Rows are queries, columns keys. Orange: more weight than if all visible keys were equal; "
      "blue: "
      "less. Bars: entropy as a share of the most there can be; orange and ! with a warning.",
      subject_of(inspection), "lift, log2 of weight / even weight"};
  pictures.push_back({"poster.svg", poster.document(text, scale, labels)});
  pictures.push_back(
      {"poster.png", png_of(poster.raster(), palette(ColourMap::lift, Theme::light))});
  pictures.push_back({"poster.csv", csv});
}

}  // namespace heed::cli

// What changed between two runs over the same heads, rows and keys.
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "head_numbers.h"
#include "picture_parts.h"
#include "poster.h"

namespace heed::cli {
namespace {

// Cells that only one of them sees have no difference; two cells without any weight differ by 0.
CellMap difference(const CellMap& first, const CellMap& second) {
  CellMap change{first.rows, first.columns, {}};
  for (std::size_t i = 0; i < first.cells.size(); ++i) {
    const float a = first.cells[i];
    const float b = second.cells[i];
    change.cells.push_back(a == b ? 0.0F : b - a);
  }
  return change;
}

void check(const Inspection& first, const Inspection& second) {
  bool same = first.layers == second.layers && first.heads == second.heads &&
              first.queries == second.queries && first.keys == second.keys &&
              first.found.size() == second.found.size();
  for (std::size_t i = 0; same && i < first.found.size(); ++i) {
    same = first.found[i].lift.rows == second.found[i].lift.rows &&
           first.found[i].lift.columns == second.found[i].lift.columns;
  }
  if (!same) {
    throw std::invalid_argument(
        "two runs are compared head by head and cell by cell; these differ in size: " +
        subject_of(first) + " and " + subject_of(second));
  }
}

double mean_change(const CellMap& change) {
  double sum = 0;
  int count = 0;
  for (const float cell : change.cells) {
    if (!std::isfinite(cell)) continue;
    sum += std::abs(static_cast<double>(cell));
    ++count;
  }
  return count > 0 ? sum / count : NAN;
}

std::string table_of(const Inspection& first, const Inspection& second) {
  std::string csv = "layer,head,number,first,second,change\n";
  for (std::size_t i = 0; i < first.found.size(); ++i) {
    const HeadInspection& a = first.found[i];
    for (const HeadNumber& number : head_numbers()) {
      const double before = number.of(a);
      const double after = number.of(second.found[i]);
      csv += csv_line({a.layer, a.head, number.name, before, after, after - before});
    }
  }
  return csv;
}

}  // namespace

std::vector<Picture> difference_of(const Inspection& first, const Inspection& second) {
  check(first, second);
  int rows = 0;
  int columns = 0;
  double most = 0;
  std::vector<CellMap> changes;
  for (std::size_t i = 0; i < first.found.size(); ++i) {
    changes.push_back(difference(first.found[i].lift, second.found[i].lift));
    rows = std::max(rows, changes.back().rows);
    columns = std::max(columns, changes.back().columns);
    for (const float cell : changes.back().cells) {
      if (std::isfinite(cell)) most = std::max(most, std::abs(static_cast<double>(cell)));
    }
  }
  const double limit = std::max(most, 1e-3);
  const Scale scale{-limit, limit, ColourMap::lift};
  double largest = 0;
  for (const CellMap& change : changes) {
    const double mean = mean_change(change);
    if (std::isfinite(mean)) largest = std::max(largest, mean);
  }
  Poster poster(first.layers, first.heads, rows, columns);
  std::vector<PosterLabel> labels;
  std::string csv = "layer,head,mean_absolute_change,map_row,first_query,last_query";
  for (int i = 0; i < columns; ++i) csv += numbered(",lift_change_", i);
  csv += "\n";
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const HeadInspection& head = first.found[i];
    const CellMap& change = changes[i];
    poster.put(head.layer, head.head, change, scale);
    const double mean = mean_change(change);
    labels.push_back(
        {largest > 0 ? mean / largest : 0, "f0", format("%.2g", mean), format("%.1g", mean),
         head_name(head.layer, head.head) + ": mean absolute change of lift " + Json(mean).dump()});
    for (int r = 0; r < change.rows; ++r) {
      const Reach reach = reach_of(r, change.rows, first.queries);
      std::vector<Json> line{head.layer, head.head, mean, r, reach.first, reach.end - 1};
      for (int c = 0; c < change.columns; ++c) line.emplace_back(shortest(change.at(r, c)));
      csv += csv_line(line);
    }
  }
  const PosterText text{
      "What changed: lift of the second run less that of the first",
      "Orange: the second run gives more weight there; blue: less. Below a map the mean "
      "absolute change of its cells, as a bar against the largest one.",
      subject_of(first) + "  ->  " + subject_of(second), "change of lift, log2"};
  return {{"difference.svg", poster.document(text, scale, labels)},
          {"difference.png", png_of(poster.raster(), palette(ColourMap::lift, Theme::light))},
          {"difference.csv", csv},
          {"difference_numbers.csv", table_of(first, second)}};
}

}  // namespace heed::cli

// What changed between two runs over the same heads, rows and keys.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "head_numbers.h"
#include "picture_parts.h"
#include "poster.h"

namespace heed::cli {
namespace {

/// Lift below this counts as this: between an eighth of even weight and next to nothing there are
/// many steps of log2 and no difference that matters.
constexpr float kFloor = -3;

// Cells that only one of them sees have no difference.
CellMap difference(const CellMap& first, const CellMap& second) {
  const auto floored = [](float lift) { return lift < kFloor ? kFloor : lift; };  // NaN stays NaN
  CellMap change{first.rows, first.columns, {}};
  for (std::size_t i = 0; i < first.cells.size(); ++i) {
    change.cells.push_back(floored(second.cells[i]) - floored(first.cells[i]));
  }
  return change;
}

// The end of the colours: all but the largest 0.5 % of the changes that there are lie within.
double limit_of(const std::vector<CellMap>& changes) {
  std::vector<double> sizes;
  for (const CellMap& change : changes) {
    for (const float cell : change.cells) {
      const auto size = std::abs(static_cast<double>(cell));
      if (std::isfinite(size) && size > 0) sizes.push_back(size);
    }
  }
  if (sizes.empty()) return 1e-3;
  const std::size_t at = (sizes.size() - 1) * 995 / 1000;
  std::nth_element(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(at), sizes.end());
  return std::max(sizes[at], 1e-3);
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
  const bool gradients = first.has_gradients() && second.has_gradients();
  for (std::size_t i = 0; i < first.found.size(); ++i) {
    const HeadInspection& a = first.found[i];
    for (const HeadNumber& number : head_numbers(gradients)) {
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
  std::vector<CellMap> changes;
  for (std::size_t i = 0; i < first.found.size(); ++i) {
    changes.push_back(difference(first.found[i].lift, second.found[i].lift));
    rows = std::max(rows, changes.back().rows);
    columns = std::max(columns, changes.back().columns);
  }
  const double limit = limit_of(changes);
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
      "Orange: the second run gives more weight there; blue: less. What is below an eighth of even "
      "weight counts as an eighth. Below a map the mean absolute change of its cells.",
      subject_of(first) + "  ->  " + subject_of(second), "change of lift, log2"};
  return {{"difference.svg", poster.document(text, scale, labels)},
          {"difference.png", png_of(poster.raster(), palette(ColourMap::lift, Theme::light))},
          {"difference.csv", csv},
          {"difference_numbers.csv", table_of(first, second)}};
}

}  // namespace heed::cli

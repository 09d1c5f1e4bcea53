// Charts as text: a bar for each number, or a character for each cell.
#include <algorithm>
#include <cmath>

#include "chart.h"

namespace heed::cli {
namespace {

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

// Each x once, in the order of the rows.
std::vector<Json> places_of(const StudyTable& table, const Chart& chart) {
  std::vector<Json> places;
  for (const Series& series : chart.series) {
    for (const std::size_t row : rows_of(table, series)) {
      const Json& x = table.at(row, chart.x);
      if (std::find(places.begin(), places.end(), x) == places.end()) places.push_back(x);
    }
  }
  return places;
}

struct Line {
  std::string place, series, value;
  double share;
};

std::vector<Line> lines_of(const StudyTable& table, const Chart& chart, const Axis& axis) {
  const Shown x_shown = table.columns[table.column(chart.x)].shown;
  const bool one = chart.series.size() == 1;  // whose name the title says
  std::vector<Line> lines;
  for (const Json& place : places_of(table, chart)) {
    bool first = true;
    for (const Series& series : chart.series) {
      const Shown shown = table.columns[table.column(series.column)].shown;
      for (const std::size_t row : rows_of(table, series)) {
        if (table.at(row, chart.x) != place) continue;
        const Json& value = table.at(row, series.column);
        const std::string text = shown_text(value, shown);
        // What reads as 0 is drawn as 0, however small the other numbers are.
        const bool zero = axis.kind == AxisKind::linear && reads_as_zero(text);
        const double share = axis.place(zero ? 0.0 : value.get<double>());
        lines.push_back({first ? shown_text(place, x_shown) : "", one ? "" : series.label, text,
                         std::isfinite(share) ? share : 0.0});
        first = false;
      }
    }
  }
  return lines;
}

std::string bars_text(const StudyTable& table, const Chart& chart, const Terminal& terminal) {
  const Axis axis = y_axis_of(table, chart);
  const auto lines = lines_of(table, chart, axis);
  std::size_t place = 0;
  std::size_t series = 0;
  std::size_t value = 0;
  for (const Line& line : lines) {
    place = std::max(place, line.place.size());
    series = std::max(series, line.series.size());
    value = std::max(value, line.value.size());
  }
  const int taken = static_cast<int>(place + series + value) + 8;
  const int cells = std::max(std::min(terminal.width, 80) - taken, 8);
  std::string text = "  " + chart.x_label;
  if (chart.y_axis == AxisKind::logarithmic) text += ";  bars are logarithmic";
  text += "\n";
  for (const Line& line : lines) {
    const std::string drawn = bar(line.share, cells, terminal.unicode);
    std::string one = "  " + padded(line.place, place) + "  ";
    if (series > 0) one += padded(line.series, series) + "  ";
    one += std::string(value - line.value.size(), ' ') + line.value + "  " + drawn;
    one.resize(one.find_last_not_of(' ') + 1);
    text += one + "\n";
  }
  return text;
}

bool is_mask(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](double value) { return value == 0.0 || value == 1.0; });
}

// Seven digits wide; what would round to 0 shows its power of ten.
std::string number_text(double value) {
  return format(value != 0 && std::abs(value) < 5e-5 ? " %7.0e" : " %7.4f", value);
}

std::string cells_text(const StudyTable& table, const Chart& chart) {
  const bool mask = is_mask(values_of(table, chart));
  std::string text;
  for (const std::size_t row : rows_of(table, chart.series.front())) {
    std::string line = " ";
    for (const Series& series : chart.series) {
      const auto value = table.at(row, series.column).get<double>();
      line += mask ? (value == 1.0 ? " x" : " .") : number_text(value);
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace

std::string text_of(const Study& study, const Chart& chart, const Terminal& terminal) {
  const StudyTable& table = study.table(chart.table);
  const std::string title = styled(chart.title, "1", terminal.colour) + "\n";
  if (chart.mark == Mark::cells) return title + cells_text(table, chart);
  return title + bars_text(table, chart, terminal);
}

}  // namespace heed::cli

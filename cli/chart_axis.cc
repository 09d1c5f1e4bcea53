// Axes, and what a study's tables hold for charts.
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "chart.h"

namespace heed::cli {
namespace {

// The smallest of 1, 2, 2.5, 5 times a power of ten that cuts the length into at most `most` steps.
double step_for(double length, double most) {
  const double power = std::pow(10.0, std::floor(std::log10(length / most)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (length / (factor * power) <= most) return factor * power;
  }
  return 10.0 * power;
}

Axis linear_axis(double low, double high, Shown shown) {
  constexpr double kMostSteps = 5;
  low = std::min(low, 0.0);
  high = std::max(high, 0.0);
  if (low == high) high = 1;
  double step = step_for(high - low, kMostSteps);
  if (shown == Shown::count) step = std::ceil(step);  // there is no half of an entry
  const double first = std::floor(low / step);
  const double last = std::ceil(high / step);
  Axis axis{AxisKind::linear, first * step, last * step, {}};
  const auto steps = static_cast<int>(last - first);
  for (int i = 0; i <= steps; ++i) axis.ticks.push_back((first + i) * step);
  return axis;
}

// Whole decades, at most seven of them marked; less than a decade gets 1, 2 and 5.
Axis logarithmic_axis(double low, double high) {
  constexpr int kMostDecades = 6;
  const auto first = static_cast<int>(std::floor(std::log10(low) + 1e-9));
  const auto last = std::max(static_cast<int>(std::ceil(std::log10(high) - 1e-9)), first + 1);
  Axis axis{AxisKind::logarithmic, std::pow(10.0, first), std::pow(10.0, last), {}};
  const int step = (last - first + kMostDecades - 1) / kMostDecades;
  for (int i = first; i <= last; i += step) {
    axis.ticks.push_back(std::pow(10.0, i));
    if (last - first > 1) continue;
    for (const double factor : {2.0, 5.0}) {
      if (i < last) axis.ticks.push_back(factor * std::pow(10.0, i));
    }
  }
  return axis;
}

}  // namespace

double Axis::place(double value) const {
  if (kind == AxisKind::linear) return (value - low) / (high - low);
  return (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low));
}

Axis axis_for(const std::vector<double>& values, AxisKind kind, Shown shown) {
  double low = HUGE_VAL;
  double high = -HUGE_VAL;
  for (const double value : values) {
    if (kind == AxisKind::logarithmic && value <= 0) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (low > high) low = high = 1;  // nothing to draw
  return kind == AxisKind::linear ? linear_axis(low, high, shown) : logarithmic_axis(low, high);
}

std::vector<double> values_of(const StudyTable& table, const Chart& chart) {
  std::vector<double> values;
  for (const Series& series : chart.series) {
    for (const std::size_t row : rows_of(table, series)) {
      values.push_back(table.at(row, series.column).get<double>());
    }
  }
  return values;
}

Axis y_axis_of(const StudyTable& table, const Chart& chart) {
  const std::size_t column = table.column(chart.series.front().column);
  return axis_for(values_of(table, chart), chart.y_axis, table.columns[column].shown);
}

std::size_t StudyTable::column(std::string_view wanted) const {
  const auto found = std::find_if(columns.begin(), columns.end(),
                                  [wanted](const StudyColumn& one) { return one.name == wanted; });
  if (found == columns.end()) throw std::logic_error("no column " + std::string(wanted));
  return static_cast<std::size_t>(found - columns.begin());
}

const Json& StudyTable::at(std::size_t row, std::string_view wanted) const {
  return rows.at(row).at(column(wanted));
}

const StudyTable& Study::table(std::string_view wanted) const {
  for (const StudyTable& one : tables) {
    if (one.name == wanted) return one;
  }
  throw std::logic_error("no table " + std::string(wanted));
}

std::vector<std::size_t> rows_of(const StudyTable& table, const Series& series) {
  std::vector<std::size_t> rows;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    if (!series.where.empty() && table.at(row, series.where) != series.equals) continue;
    const Json& value = table.at(row, series.column);
    if (value.is_number() && std::isfinite(value.get<double>())) rows.push_back(row);
  }
  return rows;
}

std::string shown_text(const Json& value, Shown shown) {
  if (value.is_null()) return "?";
  if (value.is_string()) return value.get<std::string>();
  const auto number = value.get<double>();
  if (std::isnan(number)) return "?";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  switch (shown) {
    case Shown::text:
    case Shown::count:
      return without_sign_of_zero(format("%.0f", number));
    case Shown::number:
      return without_sign_of_zero(format("%.4g", number));
    case Shown::small:
      return without_sign_of_zero(format("%.2e", number));
    case Shown::share:
      return without_sign_of_zero(format("%.1f %%", 100.0 * number));
    case Shown::seconds:
      return human_seconds(number);
    case Shown::bytes:
      return human_bytes(number);
  }
  return value.dump();
}

}  // namespace heed::cli

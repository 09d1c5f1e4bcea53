// Charts of a study: as a self-contained SVG file, light and dark, and as text.
#pragma once

#include <string>

#include "study_result.h"
#include "terminal.h"

namespace heed::cli {

/// A whole SVG document: title, formula, charts, findings. Each mark carries its number as a title.
[[nodiscard]] std::string svg_of(const Study& study);

/// One chart as horizontal bars, or its cells as characters.
[[nodiscard]] std::string text_of(const Study& study, const Chart& chart, const Terminal& terminal);

/// The ends of an axis and where its ticks stand.
struct Axis {
  AxisKind kind;
  double low, high;
  std::vector<double> ticks;

  /// 0 at the low end, 1 at the high one.
  [[nodiscard]] double place(double value) const;
};

/// An axis that holds these values, with whole ticks if they are counts; a linear one holds 0 too.
[[nodiscard]] Axis axis_for(const std::vector<double>& values, AxisKind kind, Shown shown);

/// Every y that a chart draws, and an axis for them.
[[nodiscard]] std::vector<double> values_of(const StudyTable& table, const Chart& chart);
[[nodiscard]] Axis y_axis_of(const StudyTable& table, const Chart& chart);

}  // namespace heed::cli

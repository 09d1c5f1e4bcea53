// One chart with axes, drawn as SVG.
#pragma once

#include "chart.h"
#include "svg.h"

namespace heed::cli {

/// Title, legend, axes, and the lines or bars of a chart.
void draw_panel(Svg& svg, const StudyTable& table, const Chart& chart, const Box& box);

}  // namespace heed::cli

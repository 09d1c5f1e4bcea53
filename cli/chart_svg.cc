// A study as an SVG page: charts beside each other as far as their widths allow.
#include <algorithm>
#include <cmath>

#include "chart.h"
#include "chart_panel.h"
#include "svg.h"

namespace heed::cli {
namespace {

constexpr double kWidth = 820;
constexpr double kGap = 20;

double width_of(Span span) {
  const double inner = kWidth - 2 * kGap;
  if (span == Span::full) return inner;
  return span == Span::half ? (inner - kGap) / 2 : (inner - 2 * kGap) / 3;
}

// Letters on a cell of this opacity: the dark scheme turns them at half its colour, the light one
// only at nearly all of it.
const char* ink_on(double share) {
  if (share > 0.93) return "full";
  return share > 0.62 ? "half" : "";
}

// A picture of cells; few of them carry their numbers.
void draw_cells(Svg& svg, const StudyTable& table, const Chart& chart, const Box& box) {
  constexpr std::size_t kMostNumbers = 8;
  const auto rows = rows_of(table, chart.series.front());
  double most = 0;
  Chart all = chart;  // colours mean the same in every picture of a table
  for (Series& series : all.series) series.where.clear();
  for (const double value : values_of(table, all)) most = std::max(most, std::abs(value));
  const double size = (box.width - 16) / static_cast<double>(chart.series.size());
  const double top = box.y + 40;
  svg.text(box.x, box.y + 14, "panel", Anchor::start, chart.title);
  svg.text(box.x + 16, box.y + 32, "quiet", Anchor::start, chart.x_label);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const double y = top + size * static_cast<double>(r);
    for (std::size_t c = 0; c < chart.series.size(); ++c) {
      const Series& series = chart.series[c];
      const Json& number = table.at(rows[r], series.column);
      const auto value = number.get<double>();
      const double x = box.x + 16 + size * static_cast<double>(c);
      const double share = most > 0 ? std::abs(value) / most : 0;
      svg.rectangle(x, y, size, size, value < 0 ? "f1" : "f0", share,
                    chart.y_label + " " + table.at(rows[r], chart.x).dump() + ", " + series.label +
                        ": " + number.dump());
      svg.path(format("M%.1f %.1fh%.1fv%.1fh%.1fz", x, y, size, size, -size), "edge");
      if (chart.series.size() > kMostNumbers || (value == 0 && size < 30)) continue;
      svg.text(x + size / 2, y + size / 2 + 4, ink_on(share), Anchor::middle,
               value != 0 && std::abs(value) < 5e-4 ? format("%.0e", value)
                                                    : format(size < 34 ? "%.2f" : "%.3f", value));
    }
  }
  svg.text(box.x, top + 10, "quiet", Anchor::start, "↓");
}

double height_of(const Study& study, const Chart& chart) {
  if (chart.mark != Mark::cells) return chart.span == Span::full ? 250 : 270;
  const auto& table = study.table(chart.table);
  const double size = (width_of(chart.span) - 16) / static_cast<double>(chart.series.size());
  return 48 + size * static_cast<double>(rows_of(table, chart.series.front()).size());
}

void draw_chart(Svg& svg, const Study& study, const Chart& chart, const Box& box) {
  const StudyTable& table = study.table(chart.table);
  if (chart.mark == Mark::cells) {
    draw_cells(svg, table, chart, box);
  } else {
    draw_panel(svg, table, chart, box);
  }
}

// Lines of prose, none longer than the page; returns where the next thing may stand.
double write_prose(Svg& svg, const std::string& text, double y) {
  constexpr std::size_t kColumns = 112;
  std::string line;
  const auto flush = [&svg, &line, &y] {
    svg.text(kGap, y, "prose", Anchor::start, line);
    line.clear();
    y += 19;
  };
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (!line.empty() && line.size() + 1 + word.size() > kColumns) flush();
    line += (line.empty() ? "" : " ") + word;
    begin = end + 1;
  }
  if (!line.empty()) flush();
  return y;
}

}  // namespace

std::string svg_of(const Study& study) {
  Svg svg;
  svg.text(kGap, 36, "title", Anchor::start, study.title);
  svg.text(kGap, 60, "formula", Anchor::start, study.formula);
  double y = write_prose(svg, study.reads, 84) + 8;
  double x = kGap;
  double tallest = 0;
  for (const Chart& chart : study.charts) {
    const double width = width_of(chart.span);
    if (x + width > kWidth - kGap + 1) {
      x = kGap;
      y += tallest + kGap;
      tallest = 0;
    }
    const double height = height_of(study, chart);
    draw_chart(svg, study, chart, {x, y, width, height});
    tallest = std::max(tallest, height);
    x += width + kGap;
  }
  y += tallest + kGap + 8;
  for (const auto& finding : study.findings) y = write_prose(svg, finding, y) + 4;
  return svg.document(kWidth, y, study.title, study.reads);
}

}  // namespace heed::cli

// Lines and bars between axes.
#include "chart_panel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace heed::cli {
namespace {

constexpr double kMarkRoom = 28;    // of a mark and enough of the line beside it
constexpr double kCharacter = 6.3;  // about the mean width of 11 px letters

std::string colour(const char* kind, std::size_t series) {
  return format("%s%zu", kind, series % 5);
}

// Ticks of bytes and seconds carry their unit; others are plain numbers.
std::string tick_text(double value, Shown shown) {
  struct Unit {
    double size;
    const char* name;
  };
  constexpr std::array<Unit, 5> kBytes{
      {{1e12, " TB"}, {1e9, " GB"}, {1e6, " MB"}, {1e3, " kB"}, {1, " B"}}};
  constexpr std::array<Unit, 4> kSeconds{{{1, " s"}, {1e-3, " ms"}, {1e-6, " µs"}, {1e-9, " ns"}}};
  const auto with_unit = [value](const auto& units) {
    for (const Unit& unit : units) {
      if (value >= unit.size * 0.999) return format("%g%s", value / unit.size, unit.name);
    }
    return format("%g", value);
  };
  if (shown == Shown::bytes) return with_unit(kBytes);
  if (shown == Shown::seconds) return with_unit(kSeconds);
  if (shown == Shown::share) return format("%g %%", 100.0 * value);
  if (std::abs(value) < 1e-12) value = 0;  // a sum of steps that should be 0
  std::string text = format("%g", value);
  for (const char* zeros : {"e+0", "e+", "e-0"}) {
    const auto at = text.find(zeros);
    if (at == std::string::npos) continue;
    text.replace(at, std::string_view(zeros).size(), zeros[1] == '-' ? "e-" : "e");
  }
  return text;
}

/// One chart with axes.
class Panel {
 public:
  Panel(Svg& svg, const StudyTable& table, const Chart& chart, const Box& box)
      : svg_(&svg),
        table_(&table),
        chart_(&chart),
        box_(box),
        y_(y_axis_of(table, chart)),
        y_shown_(table.columns[table.column(chart.series.front().column)].shown) {}

  void draw() {
    svg_->text(box_.x, box_.y + 14, "panel", Anchor::start, chart_->title);
    const double legend = draw_legend();
    plot_ = {box_.x + 56, box_.y + legend + 12, box_.width - 68, box_.height - legend - 62};
    draw_y_axis();
    if (chart_->mark == Mark::bars) {
      draw_bars();
    } else {
      draw_lines();
    }
    svg_->line(plot_.x, bottom(), plot_.x + plot_.width, bottom(), "axis");
    svg_->text(plot_.x + plot_.width / 2, bottom() + drop_, "quiet", Anchor::middle,
               chart_->x_label);
  }

 private:
  [[nodiscard]] double bottom() const { return plot_.y + plot_.height; }
  [[nodiscard]] double y_of(double value) const {
    const double place = y_.place(value);
    return bottom() - plot_.height * (std::isfinite(place) ? std::clamp(place, 0.0, 1.0) : 0.0);
  }
  // So many points that their marks would be one band.
  [[nodiscard]] bool crowded(const Series& series) const {
    return static_cast<double>(rows_of(*table_, series).size()) * kMarkRoom > box_.width;
  }
  [[nodiscard]] std::string title_of(const Series& series, std::size_t row) const {
    const Json& x = table_->at(row, chart_->x);
    return series.label + ", " + chart_->x_label + " " +
           (x.is_string() ? x.get<std::string>() : x.dump()) + ": " +
           table_->at(row, series.column).dump();
  }

  // Returns how far it reaches below the top of the box.
  double draw_legend() {
    double x = box_.x;
    double y = 32;
    if (chart_->series.size() < 2) {
      svg_->text(x, box_.y + y, "quiet", Anchor::start, chart_->y_label);
      return y;
    }
    for (std::size_t i = 0; i < chart_->series.size(); ++i) {
      const Series& series = chart_->series[i];
      const double needed = 34 + kCharacter * static_cast<double>(series.label.size());
      if (x > box_.x && x + needed > box_.x + box_.width) {
        x = box_.x;
        y += 16;
      }
      const bool dashed = series.stroke == Stroke::dashed;
      if (dashed || (chart_->mark == Mark::line && crowded(series))) {
        svg_->line(x, box_.y + y - 4, x + 14, box_.y + y - 4,
                   ((dashed ? "stroke dashed " : "stroke ") + colour("s", i)).c_str());
      } else if (chart_->mark == Mark::bars) {
        svg_->rectangle(x, box_.y + y - 9, 10, 10, colour("f", i), 1, series.label);
      } else {
        svg_->marker(i, x + 6, box_.y + y - 4, colour("f", i), series.label);
      }
      svg_->text(x + 18, box_.y + y, "quiet", Anchor::start, series.label);
      x += needed;
    }
    return y;
  }

  void draw_y_axis() {
    for (const double tick : y_.ticks) {
      const double y = y_of(tick);
      svg_->line(plot_.x, y, plot_.x + plot_.width, y, "grid");
      svg_->text(plot_.x - 6, y + 4, "quiet", Anchor::end, tick_text(tick, y_shown_));
    }
  }

  // A logarithmic axis has its ticks at the numbers themselves, from the last on where they crowd.
  void draw_lines() {
    std::vector<double> xs;
    for (const Series& series : chart_->series) {
      for (const std::size_t row : rows_of(*table_, series)) {
        xs.push_back(table_->at(row, chart_->x).get<double>());
      }
    }
    std::sort(xs.begin(), xs.end());
    xs.erase(std::unique(xs.begin(), xs.end()), xs.end());
    if (xs.empty()) return;
    Axis axis = axis_for(xs, chart_->x_axis, table_->columns[table_->column(chart_->x)].shown);
    if (chart_->x_axis == AxisKind::logarithmic) {
      axis.low = xs.front();
      axis.high = xs.size() > 1 ? xs.back() : 2 * xs.front();
      axis.ticks = xs;
    }
    const auto x_of = [this, &axis](double x) {
      return plot_.x + 8 + (plot_.width - 16) * axis.place(x);
    };
    double free_to = 1e9;
    for (auto at = axis.ticks.rbegin(); at != axis.ticks.rend(); ++at) {
      const double tick = *at;
      const std::string label = tick_text(tick, Shown::number);
      const double half = kCharacter * static_cast<double>(label.size()) / 2;
      if (x_of(tick) + half > free_to) continue;
      free_to = x_of(tick) - half - 5;
      svg_->line(x_of(tick), bottom(), x_of(tick), bottom() + 4, "axis");
      svg_->text(x_of(tick), bottom() + 16, "quiet", Anchor::middle, label);
    }
    for (std::size_t i = 0; i < chart_->series.size(); ++i) draw_line(i, x_of);
  }

  template <typename Place>
  void draw_line(std::size_t index, const Place& x_of) {
    const Series& series = chart_->series[index];
    const bool dashed = series.stroke == Stroke::dashed;
    std::string points;
    for (const std::size_t row : rows_of(*table_, series)) {
      points += format("%c%.1f %.1f", points.empty() ? 'M' : 'L',
                       x_of(table_->at(row, chart_->x).get<double>()),
                       y_of(table_->at(row, series.column).get<double>()));
    }
    svg_->path(points, (dashed ? "stroke dashed " : "stroke ") + colour("s", index));
    const auto rows = rows_of(*table_, series);
    const bool bare = dashed || crowded(series);
    for (const std::size_t row : rows) {
      const double x = x_of(table_->at(row, chart_->x).get<double>());
      const double y = y_of(table_->at(row, series.column).get<double>());
      // A line without marks to point at, dashed or of very many points, still has its numbers.
      const std::string style = colour("f", index);
      if (bare) {
        svg_->rectangle(x - 4, y - 4, 8, 8, style, 0, title_of(series, row));
      } else {
        svg_->marker(index, x, y, style, title_of(series, row));
      }
    }
  }

  // Two words that are wider than their place stand below each other.
  void write_place(double middle, double room, const std::string& text) {
    const auto space = text.find(' ');
    const bool fits = kCharacter * static_cast<double>(text.size()) < room;
    const double y = bottom() + 16;
    if (fits || space == std::string::npos) {
      return svg_->text(middle, y, "quiet", Anchor::middle, text);
    }
    drop_ = 44;
    svg_->text(middle, y, "quiet", Anchor::middle, text.substr(0, space));
    svg_->text(middle, y + 13, "quiet", Anchor::middle, text.substr(space + 1));
  }

  // Three digits, or fewer, or nothing, as there is room.
  [[nodiscard]] std::string label_for(double value, double room) const {
    const auto fits = [room](const std::string& text) {
      return kCharacter * static_cast<double>(text.size()) <= room;
    };
    if (y_shown_ != Shown::number) {
      const std::string label = shown_text(value, y_shown_);
      return fits(label) ? label : "";
    }
    // One digit says something of bars that differ by decades only.
    const int fewest = y_.kind == AxisKind::logarithmic ? 1 : 2;
    for (int digits = 3; digits >= fewest; --digits) {
      const double rounded = std::stod(format("%.*e", digits - 1, value));
      const std::string label = tick_text(rounded, y_shown_);
      if (fits(label)) return label;
    }
    return "";
  }

  // Of all bars, or of none where one of them has no room: a few labels would look as if they told
  // more.
  [[nodiscard]] std::vector<std::string> bar_labels(const std::vector<std::size_t>& rows,
                                                    double room) const {
    std::vector<std::string> labels;
    for (const Series& series : chart_->series) {
      for (const std::size_t row : rows) {
        labels.push_back(label_for(table_->at(row, series.column).get<double>(), room));
        if (labels.back().empty()) return {};
      }
    }
    return labels;
  }

  // Groups of bars, one group for each row.
  void draw_bars() {
    const auto rows = rows_of(*table_, chart_->series.front());
    const std::size_t groups = rows.size();
    const double group = plot_.width / static_cast<double>(std::max<std::size_t>(groups, 1));
    const double width = std::min(0.86 * group / static_cast<double>(chart_->series.size()), 60.0);
    const double left = (group - width * static_cast<double>(chart_->series.size())) / 2;
    const Shown x_shown = table_->columns[table_->column(chart_->x)].shown;
    const double base = y_.kind == AxisKind::linear ? y_of(0) : bottom();
    for (std::size_t i = 0; i < groups; ++i) {
      const double middle = plot_.x + group * (static_cast<double>(i) + 0.5);
      write_place(middle, group, shown_text(table_->at(rows[i], chart_->x), x_shown));
    }
    const auto labels = bar_labels(rows, width);
    for (std::size_t i = 0; i < chart_->series.size(); ++i) {
      const Series& series = chart_->series[i];
      for (std::size_t at = 0; at < groups; ++at) {
        const std::size_t row = rows[at];
        const auto value = table_->at(row, series.column).get<double>();
        const double x =
            plot_.x + group * static_cast<double>(at) + left + width * static_cast<double>(i);
        const double y = y_of(value);
        svg_->rectangle(x + 1, std::min(y, base), width - 2, std::max(std::abs(base - y), 0.5),
                        colour("f", i), 1, title_of(series, row));
        if (labels.empty()) continue;
        svg_->text(x + width / 2, std::min(y, base) - 4, "", Anchor::middle,
                   labels[i * groups + at]);
      }
    }
  }

  Svg* svg_;
  const StudyTable* table_;
  const Chart* chart_;
  Box box_;
  Box plot_{};
  double drop_ = 32;  ///< of the name of the x axis below it
  Axis y_;
  Shown y_shown_;
};

}  // namespace

void draw_panel(Svg& svg, const StudyTable& table, const Chart& chart, const Box& box) {
  Panel(svg, table, chart, box).draw();
}

}  // namespace heed::cli

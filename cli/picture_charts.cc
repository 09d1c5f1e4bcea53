// Charts of numbers over scores and over distances: tables, drawn as those of studies are.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "chart.h"
#include "picture_parts.h"
#include "plain_text.h"
#include "study_output.h"

namespace heed::cli {
namespace {

void add_histogram_rows(StudyTable& table, const Inspection& inspection, const std::string& head,
                        const std::vector<std::int64_t>& counts) {
  const auto total =
      static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  const double width = (inspection.bin_high - inspection.bin_low) / std::max(inspection.bins, 1);
  const ScoreReach reach = reach_of_scores(inspection, counts);
  for (std::size_t i = 1; i + 1 < counts.size(); ++i) {
    const double low = inspection.bin_low + width * static_cast<double>(i - 1);
    const double share = total > 0 ? static_cast<double>(counts[i]) / total : 0;
    const bool drawn = low >= reach.low - 1e-9 && low + width <= reach.high + 1e-9;
    table.rows.push_back({head, low, low + width, low + width / 2, counts[i], share / width,
                          normal_density(low, low + width), drawn ? Json(head) : Json("")});
  }
}

Study histogram_of(const Inspection& inspection, const std::vector<ChosenHead>& chosen) {
  Study study{
      .name = "histogram",
      .title = "Scores beside N(0,1)",
      .formula = "density = count / (all scores x width of a bin)",
      .reads =
          "Scores that are products of independent standard normal vectors, divided by the "
          "root of their length, lie as the dashed line. Drawn is where 99.9 % of the scores "
          "lie; what lies outside the bins is told below, and counted in the density."};
  StudyTable table{.name = "histogram",
                   .title = "Visible scores",
                   .columns = {{"head", Shown::text},
                               {"score_from", Shown::number},
                               {"score_to", Shown::number},
                               {"score_middle", Shown::number},
                               {"count", Shown::count},
                               {"density", Shown::number},
                               {"density_normal", Shown::number},
                               {"drawn_in", Shown::text}}};
  std::vector<std::int64_t> all(static_cast<std::size_t>(inspection.bins) + 2);
  for (const HeadInspection& head : inspection.found) {
    for (std::size_t i = 0; i < std::min(all.size(), head.histogram.size()); ++i) {
      all[i] += head.histogram[i];
    }
  }
  const auto add = [&](const std::string& name, const std::string& title, Span span,
                       const std::vector<std::int64_t>& counts) {
    add_histogram_rows(table, inspection, name, counts);
    study.charts.push_back(
        {.title = title,
         .table = "histogram",
         .x = "score_middle",
         .x_label = "score",
         .y_label = "density",
         .series = {{"density", "scores", Stroke::solid, "drawn_in", name},
                    {"density_normal", "N(0,1)", Stroke::dashed, "drawn_in", name}},
         .span = span});
    const std::int64_t outside = counts.empty() ? 0 : counts.front() + counts.back();
    if (outside > 0) {
      study.findings.push_back(format("%s: %lld scores below %g, %lld at or above %g.",
                                      name.c_str(), static_cast<long long>(counts.front()),
                                      inspection.bin_low, static_cast<long long>(counts.back()),
                                      inspection.bin_high));
    }
  };
  add("all", "All heads", Span::full, all);
  for (const ChosenHead& one : chosen) {
    const HeadInspection& head = inspection.at(one.layer, one.head);
    add(head_name(one.layer, one.head),
        format("%s: mean %.3g, deviation %.3g", head_name(one.layer, one.head).c_str(),
               head.score_mean.mean, head.score_deviation.mean),
        Span::half, head.histogram);
  }
  study.tables.push_back(std::move(table));
  return study;
}

Study distances_of(const Inspection& inspection, const std::vector<ChosenHead>& chosen) {
  Study study{.name = "distance",
              .title = "Mass by distance",
              .formula = "distance = key - position of the query",
              .reads =
                  "How much of its weight a row gives to keys so far away, in the mean; left are "
                  "keys before the query. What lies further away than the chart is told below."};
  StudyTable table{
      .name = "distance",
      .title = "Mass by distance",
      .columns = {{"head", Shown::text}, {"distance", Shown::count}, {"mass", Shown::number}}};
  for (const ChosenHead& one : chosen) {
    const HeadInspection& head = inspection.at(one.layer, one.head);
    const std::string name = head_name(one.layer, one.head);
    const std::size_t count = head.distance_mass.size();
    const auto half = static_cast<std::int64_t>(count / 2);
    for (std::size_t i = 0; i < count; ++i) {
      const bool outermost = count > 1 && (i == 0 || i + 1 == count);
      table.rows.push_back({outermost ? name + " and beyond" : name,
                            static_cast<std::int64_t>(i) - half, shortest(head.distance_mass[i])});
    }
    if (count > 1) {
      study.findings.push_back(format(
          "%s: %.1f %% at %lld and before, %.1f %% at %lld and after.", name.c_str(),
          100 * static_cast<double>(head.distance_mass.front()), static_cast<long long>(-half),
          100 * static_cast<double>(head.distance_mass.back()), static_cast<long long>(half)));
    }
    study.charts.push_back({.title = name + (one.reason.empty() ? "" : ": " + one.reason),
                            .table = "distance",
                            .x = "distance",
                            .x_label = "distance in tokens",
                            .y_label = "mean mass of a row",
                            .series = {{"mass", "mass", Stroke::solid, "head", name}},
                            .span = Span::half});
  }
  study.tables.push_back(std::move(table));
  return study;
}

void add_study(std::vector<Picture>& pictures, const Study& study) {
  pictures.push_back({study.name + ".svg", svg_of(study)});
  pictures.push_back({study.name + ".csv", csv_of({study})});
}

}  // namespace

void add_charts(std::vector<Picture>& pictures, const Inspection& inspection,
                const std::vector<ChosenHead>& chosen) {
  add_study(pictures, histogram_of(inspection, chosen));
  add_study(pictures, distances_of(inspection, chosen));
}

}  // namespace heed::cli

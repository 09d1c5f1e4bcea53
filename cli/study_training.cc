// A model that learns, with scaled and unscaled scores: what saturation costs.
#include <algorithm>
#include <array>
#include <cmath>

#include "study.h"
#include "terminal.h"
#include "training/copy_task.h"

namespace heed::cli {
namespace {

constexpr int kSteps = 400;
constexpr int kEvery = 40;
constexpr std::array<std::int64_t, 3> kSizes{16, 64, 256};
constexpr double kLearnt = 1.0;  // nats

struct Run {
  std::int64_t size;
  bool scaled;
  int learnt = -1;  ///< the first step told whose loss is below kLearnt; -1: none
  double loss = 0, accuracy = 0, began = 0, ended = 0;  ///< of the last; saturation at both ends
};

const char* label_of(bool scaled) { return scaled ? "scaled" : "unscaled"; }

/// Mean of both layers: a saturated head anywhere keeps the gradient from what is below.
double saturation_of(const training::CopyModel& model) {
  return (model.look(0).saturation + model.look(1).saturation) / 2;
}

Run train(std::int64_t size, bool scaled, std::uint64_t seed, StudyTable& steps) {
  training::CopyOptions options{.head_size = size, .seed = seed};
  if (!scaled) options.scale = 1.0;
  training::CopyModel model(options);
  Run run{.size = size, .scaled = scaled};
  for (int step = 0; step <= kSteps; ++step) {
    if (step % kEvery == 0) {
      const training::Loss loss = model.test();
      const double saturation = saturation_of(model);
      steps.rows.push_back({size, label_of(scaled),
                            std::string(label_of(scaled)) + " " + std::to_string(size), step,
                            loss.mean, loss.accuracy, saturation});
      if (step == 0) run.began = saturation;
      if (run.learnt < 0 && loss.mean < kLearnt) run.learnt = step;
      run.loss = loss.mean;
      run.accuracy = loss.accuracy;
      run.ended = saturation;
    }
    if (step < kSteps) (void)model.train();
  }
  return run;
}

/// Both kinds of scores have charts of their own, in which a size has the same colour.
Chart chart_of(const char* column, const char* title, const char* y_label, bool scaled) {
  Chart chart{.title = std::string(title) + ", " + label_of(scaled),
              .table = "by_step",
              .x = "step",
              .x_label = "step",
              .y_label = y_label,
              .series = {}};
  for (const std::int64_t size : kSizes) {
    const std::string run = std::string(label_of(scaled)) + " " + std::to_string(size);
    chart.series.push_back(
        {column, "d_k " + std::to_string(size), Stroke::solid, "run", Json(run)});
  }
  return chart;
}

std::vector<std::string> findings_of(const std::vector<Run>& runs, double chance) {
  std::string scaled, unscaled;
  int stuck = 0;
  for (const Run& run : runs) {
    if (run.scaled) {
      const std::string when =
          run.learnt < 0 ? "not at all" : "at step " + std::to_string(run.learnt);
      scaled += (scaled.empty() ? "" : ", ") +
                format("d_k %d %s", static_cast<int>(run.size), when.c_str());
    } else {
      stuck += run.learnt < 0;
      unscaled += (unscaled.empty() ? "" : ", ") +
                  format("%.2f at d_k %d", run.loss, static_cast<int>(run.size));
    }
  }
  return {
      "Scaled, the loss is first seen below 1 nat: " + scaled + ".",
      format("Unscaled, %d of %zu do not get there in %d steps; their last losses are ", stuck,
             kSizes.size(), kSteps) +
          unscaled + format(", where guessing has ln 12 = %.2f.", chance),
      format(
          "Unscaled weights are saturated before the first step (%.0f, %.0f, %.0f %% of the rows "
          "at "
          "d_k 16, 64, 256): scaled ones become so (up to %.0f %%) by having learnt where to look. "
          "A peak is no fault; a peak that came before any reason for it is.",
          100 * runs[1].began, 100 * runs[3].began, 100 * runs[5].began,
          100 * std::max({runs[0].ended, runs[2].ended, runs[4].ended}))};
}

}  // namespace

Study study_training(const StudyInput& input) {
  StudyTable steps{"by_step",
                   "Loss on new sequences, and saturation",
                   {{"d_k", Shown::count},
                    {"scores", Shown::text},
                    {"run", Shown::text},
                    {"step", Shown::count},
                    {"loss", Shown::number},
                    {"accuracy", Shown::share},
                    {"saturation", Shown::share}},
                   {},
                   Audience::charts};
  StudyTable ends{"runs",
                  "Where each run came to",
                  {{"d_k", Shown::count},
                   {"scores", Shown::text},
                   {"loss", Shown::number},
                   {"accuracy", Shown::share},
                   {"below_1_at_step", Shown::count},
                   {"saturation_at_first", Shown::share},
                   {"saturation_at_last", Shown::share}}};
  std::vector<Run> runs;
  for (const std::int64_t size : kSizes) {
    for (const bool scaled : {true, false}) {
      const Run& run = runs.emplace_back(train(size, scaled, input.seed, steps));
      ends.rows.push_back({size, label_of(scaled), run.loss, run.accuracy,
                           run.learnt < 0 ? Json() : Json(run.learnt), run.began, run.ended});
    }
  }
  const training::CopyOptions task;
  Study study{
      .title = "Scaled scores learn, unscaled ones do not",
      .formula = "copy what followed the last occurrence of this token: C A B A -> B",
      .reads =
          "Two layers of attention learn to copy, once with scores divided by sqrt(d_k) and once "
          "without: all else, the numbers that they begin with included, is equal."};
  study.findings = findings_of(runs, std::log(static_cast<double>(task.vocabulary)));
  study.tables = {std::move(steps), std::move(ends)};
  for (const bool scaled : {true, false}) {
    study.charts.push_back(chart_of("loss", "Loss", "nats", scaled));
    study.charts.push_back(
        chart_of("saturation", "Rows with a weight above 0.99", "share of rows", scaled));
  }
  study.facts = {
      {"generator", "SplitMix64"}, {"seed", input.seed},  {"vocabulary", task.vocabulary},
      {"length", task.length},     {"batch", task.batch}, {"d_model", task.d_model},
      {"heads", task.heads},       {"rate", task.rate},   {"steps", kSteps}};
  return study;
}

}  // namespace heed::cli

// Scaled against unscaled scores: what the division by sqrt(d_k) does to the weights.
#include <cmath>

#include "study.h"
#include "study_math.h"
#include "study_tensors.h"
#include "terminal.h"

namespace heed::cli {
namespace {

constexpr std::int64_t kTokens = 10;

struct Figures {
  Moments scores{};
  Sharpness weights{};
};

Figures figures_of(const Matrix& q, const Matrix& k, double scale) {
  Matrix scores = dot_products(q, k);
  for (double& score : scores.data) score *= scale;
  return {moments_of(scores.data), sharpness_of(weights_of(q, k, {.scale = scale}))};
}

// Heads have equally many scores: the mean of their figures, and the range of all.
Figures mean_of_heads(const StudyTensors& tensors, std::int64_t batch, double scale) {
  Figures all{{0, 0, HUGE_VAL, -HUGE_VAL}, {}};
  const auto share = 1.0 / static_cast<double>(tensors.heads());
  for (std::int64_t head = 0; head < tensors.heads(); ++head) {
    const auto [q, k] = tensors.head(batch, head);
    const Figures one = figures_of(q, k, scale);
    all.scores.mean += share * one.scores.mean;
    all.scores.variance += share * one.scores.variance;
    all.scores.minimum = smaller(all.scores.minimum, one.scores.minimum);
    all.scores.maximum = larger(all.scores.maximum, one.scores.maximum);
    all.weights.entropy += share * one.weights.entropy;
    all.weights.entropy_share += share * one.weights.entropy_share;
    all.weights.largest += share * one.weights.largest;
  }
  return all;
}

std::vector<Json> row_of(std::int64_t first, const char* scores, const Figures& figures) {
  const auto& [moments, weights] = figures;
  return {first,
          scores,
          moments.variance,
          moments.minimum,
          moments.maximum,
          moments.maximum - moments.minimum,
          weights.entropy,
          weights.entropy_share,
          weights.largest};
}

std::vector<StudyColumn> columns_after(const char* first) {
  return {{first, Shown::count},
          {"scores", Shown::text},
          {"score_variance", Shown::number},
          {"minimum", Shown::number},
          {"maximum", Shown::number},
          {"range", Shown::number},
          {"entropy", Shown::number},
          {"entropy_share", Shown::share},
          {"mean_largest_weight", Shown::number}};
}

double scale_for(std::int64_t size) { return 1.0 / std::sqrt(static_cast<double>(size)); }

Chart chart_of(const std::string& title, const char* table, const char* x, const char* column,
               AxisKind x_axis) {
  return {.title = title,
          .table = table,
          .x = x,
          .x_label = x,
          .y_label = column,
          .series = {{column, "unscaled", Stroke::solid, "scores", "unscaled"},
                     {column, "scaled", Stroke::solid, "scores", "scaled"}},
          .x_axis = x_axis};
}

}  // namespace

Study study_scaling(const StudyInput& input) {
  StudyTable random{"random", "10 queries and 10 keys of normal values", columns_after("d_k")};
  for (const std::int64_t size : {4, 64, 512}) {
    Normals normals = input.normals();
    const Matrix q = draw(normals, kTokens, size);
    const Matrix k = draw(normals, kTokens, size);
    random.rows.push_back(row_of(size, "unscaled", figures_of(q, k, 1.0)));
    random.rows.push_back(row_of(size, "scaled", figures_of(q, k, scale_for(size))));
  }
  const StudyTensors& tensors = *input.tensors;
  StudyTable real{"tensors",
                  format("The heads of each %s of %s, d_k = %lld", tensors.entry(),
                         tensors.name() == "sample" ? "the sample" : tensors.name().c_str(),
                         static_cast<long long>(tensors.size())),
                  columns_after(tensors.entry())};
  for (std::int64_t batch = 0; batch < tensors.batch(); ++batch) {
    real.rows.push_back(row_of(batch, "unscaled", mean_of_heads(tensors, batch, 1.0)));
    const double scale = scale_for(tensors.size());
    real.rows.push_back(row_of(batch, "scaled", mean_of_heads(tensors, batch, scale)));
  }

  Study study{.title = "With and without the division by sqrt(d_k)",
              .formula = "softmax(Q K^T)   against   softmax(Q K^T / sqrt(d_k))",
              .reads =
                  "Unscaled scores spread with d_k until one key takes nearly all the "
                  "weight; scaled ones keep the same spread, and the weights stay soft."};
  const auto share = [&random](std::size_t row) {
    return 100 * random.at(row, "entropy_share").get<double>();
  };
  study.findings = {format(
      "Unscaled, the entropy falls from %.1f %% of its maximum at d_k = 4 to %.1f %% at d_k = 512; "
      "scaled, it is %.1f %% and %.1f %%.",
      share(0), share(4), share(1), share(5))};
  study.charts = {
      chart_of("Entropy, share of ln 10", "random", "d_k", "entropy_share", AxisKind::logarithmic),
      chart_of("Mean largest weight", "random", "d_k", "mean_largest_weight",
               AxisKind::logarithmic),
      chart_of("Variance of the scores", "random", "d_k", "score_variance", AxisKind::logarithmic),
      chart_of(tensors.titled("Entropy"), "tensors", tensors.entry(), "entropy_share",
               AxisKind::linear)};
  study.charts[2].y_axis = AxisKind::logarithmic;
  study.tables = {std::move(random), std::move(real)};
  study.facts = facts_of(input);
  study.facts["tensors_from"] = tensors.name();
  return study;
}

}  // namespace heed::cli

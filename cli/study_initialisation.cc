// How projections are drawn, and what spread the scores have before any training.
#include <array>
#include <cmath>

#include "study.h"
#include "study_math.h"
#include "terminal.h"

namespace heed::cli {
namespace {

constexpr std::int64_t kTokens = 10;
constexpr std::int64_t kModel = 64;
constexpr std::int64_t kHead = 16;

struct Initialisation {
  const char* name;
  double deviation;
};

Matrix scaled(Matrix matrix, double factor) {
  for (double& value : matrix.data) value *= factor;
  return matrix;
}

// Q = X W_q, K = X W_k, S = Q K^T
std::vector<Json> row_of(const Initialisation& way, Normals normals) {
  const Matrix x = draw(normals, kTokens, kModel);
  const Matrix w_q = scaled(draw(normals, kModel, kHead), way.deviation);
  const Matrix w_k = scaled(draw(normals, kModel, kHead), way.deviation);
  const Matrix q = product(x, w_q);
  const Matrix scores = dot_products(q, product(x, w_k));
  const double variance = moments_of(scores.data).variance;
  const double root = std::sqrt(static_cast<double>(kHead));
  return {way.name,
          way.deviation,
          moments_of(q.data).variance,
          variance,
          moments_of(scaled(scores, 1.0 / root).data).variance,
          std::sqrt(variance),
          root};
}

}  // namespace

Study study_initialisation(const StudyInput& input) {
  const std::array<Initialisation, 4> ways{
      {{"1/sqrt(d_model)", 1.0 / std::sqrt(static_cast<double>(kModel))},
       {"Xavier", std::sqrt(2.0 / static_cast<double>(kModel + kHead))},
       {"0.01", 0.01},
       {"0.5", 0.5}}};
  StudyTable table{"by_deviation",
                   "10 tokens, d_model = 64, d_k = 16",
                   {{"initialisation", Shown::text},
                    {"deviation", Shown::number},
                    {"q_variance", Shown::number},
                    {"score_variance", Shown::number},
                    {"scaled_variance", Shown::number},
                    {"unit_divisor", Shown::number},
                    {"default_divisor", Shown::number}}};
  for (const auto& way : ways) table.rows.push_back(row_of(way, input.normals()));
  const auto number = [&table](std::size_t row, const char* name) {
    return table.at(row, name).get<double>();
  };

  Study study{.title = "The scale presumes an initialisation",
              .formula =
                  "Q = X W_q,  K = X W_k,  W ~ N(0, std^2)   =>   "
                  "Var(q . k) ~ d_k (d_model std^2)^2",
              .reads =
                  "sqrt(d_k) is the divisor that gives scores unit variance only where the "
                  "projections keep the variance of their input; others need others."};
  study.findings = {format(
      "After scaling, the scores have variance %.3g with 1/sqrt(d_model), %.3g with Xavier, %.3g "
      "with 0.01 (all keys look alike) and %.3g with 0.5 (one key takes all).",
      number(0, "scaled_variance"), number(1, "scaled_variance"), number(2, "scaled_variance"),
      number(3, "scaled_variance"))};
  study.charts = {
      {.title = "Variance of the scores",
       .table = "by_deviation",
       .x = "initialisation",
       .x_label = "std of W",
       .y_label = "variance",
       .series = {{"score_variance", "unscaled"}, {"scaled_variance", "divided by sqrt(16)"}},
       .mark = Mark::bars,
       .y_axis = AxisKind::logarithmic},
      {.title = "The divisor that gives variance 1",
       .table = "by_deviation",
       .x = "initialisation",
       .x_label = "std of W",
       .y_label = "divisor",
       .series = {{"unit_divisor", "measured"}, {"default_divisor", "sqrt(d_k)"}},
       .mark = Mark::bars,
       .y_axis = AxisKind::logarithmic}};
  study.tables = {std::move(table)};
  study.facts = facts_of(input);
  return study;
}

}  // namespace heed::cli

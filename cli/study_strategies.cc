// Other divisors than sqrt(d_k), temperatures, and cosine attention.
#include <array>
#include <cmath>

#include "study.h"
#include "study_math.h"
#include "study_tensors.h"
#include "terminal.h"

namespace heed::cli {
namespace {

constexpr std::int64_t kTokens = 8;

struct Divisor {
  const char* name;
  double (*of)(double size);
};
constexpr std::array<Divisor, 5> kDivisors{
    {{"1", [](double) { return 1.0; }},
     {"sqrt(d)", [](double size) { return std::sqrt(size); }},
     {"d", [](double size) { return size; }},
     {"d^(1/4)", [](double size) { return std::sqrt(std::sqrt(size)); }},
     {"2 sqrt(d)", [](double size) { return 2.0 * std::sqrt(size); }}}};
constexpr std::array<double, 7> kTemperatures{0.1, 0.25, 0.5, 1, 2, 4, 10};
constexpr std::array<double, 7> kCosine{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1};

struct Figures {
  double variance = 0;
  Sharpness weights{};
};

std::vector<Json> row_of(std::vector<Json> row, const Figures& figures) {
  for (const double value : {figures.variance, figures.weights.entropy,
                             figures.weights.entropy_share, figures.weights.largest}) {
    row.emplace_back(value);
  }
  return row;
}

StudyTable table_of(const char* name, const std::string& title, std::vector<StudyColumn> columns) {
  columns.push_back({"score_variance", Shown::number});
  columns.push_back({"entropy", Shown::number});
  columns.push_back({"entropy_share", Shown::share});
  columns.push_back({"mean_largest_weight", Shown::number});
  return {name, title, std::move(columns)};
}

// Of the scores Q K^T / divisor.
Figures divided(const Matrix& q, const Matrix& k, double divisor) {
  Matrix scores = dot_products(q, k);
  for (double& score : scores.data) score /= divisor;
  return {moments_of(scores.data).variance,
          sharpness_of(weights_of(q, k, {.scale = 1.0 / divisor}))};
}

// Of the scores cos(q, k) / temperature.
Figures cosine(const Matrix& q, const Matrix& k, double temperature) {
  Matrix scores = dot_products(q, k);
  for (std::int64_t i = 0; i < q.rows; ++i) {
    for (std::int64_t j = 0; j < k.rows; ++j) {
      const double lengths = std::sqrt(dot(q.row(i), q.row(i)) * dot(k.row(j), k.row(j)));
      scores.row(i)[static_cast<std::size_t>(j)] /= lengths * temperature;
    }
  }
  const AttentionOptions options{.scale = 1.0 / temperature, .normalize_qk = true};
  return {moments_of(scores.data).variance, sharpness_of(weights_of(q, k, options))};
}

Figures mean_of_heads(const StudyTensors& tensors, double divisor) {
  Figures mean;
  const double share = 1.0 / static_cast<double>(tensors.batch() * tensors.heads());
  for (std::int64_t batch = 0; batch < tensors.batch(); ++batch) {
    for (std::int64_t head = 0; head < tensors.heads(); ++head) {
      const auto [q, k] = tensors.head(batch, head);
      const Figures one = divided(q, k, divisor);
      mean.variance += share * one.variance;
      mean.weights.entropy += share * one.weights.entropy;
      mean.weights.entropy_share += share * one.weights.entropy_share;
      mean.weights.largest += share * one.weights.largest;
    }
  }
  return mean;
}

Chart bars_chart(const std::string& title, const char* table, Json size) {
  Chart chart{.title = title,
              .table = table,
              .x = "divisor",
              .x_label = "scores divided by",
              .y_label = "entropy, share of its maximum",
              .series = {{"entropy_share", "entropy, share of its maximum"}},
              .mark = Mark::bars};
  if (!size.is_null()) {
    chart.series[0].where = "d_k";
    chart.series[0].equals = std::move(size);
  }
  return chart;
}

Chart sweep_chart(const char* title, const char* table) {
  return {.title = title,
          .table = table,
          .x = "temperature",
          .x_label = "temperature",
          .y_label = "entropy, share of its maximum",
          .series = {{"entropy_share", "entropy share, d_k = 64", Stroke::solid, "d_k", 64},
                     {"entropy_share", "d_k = 512", Stroke::solid, "d_k", 512}},
          .x_axis = AxisKind::logarithmic};
}

}  // namespace

Study study_strategies(const StudyInput& input) {
  StudyTable divisors =
      table_of("divisors", "Scores divided by ..; 8 queries and 8 keys of normal values",
               {{"d_k", Shown::count}, {"divisor", Shown::text}, {"divisor_value", Shown::number}});
  StudyTable temperatures =
      table_of("temperatures", "softmax(Q K^T / (sqrt(d_k) T)) at temperature T",
               {{"d_k", Shown::count}, {"temperature", Shown::number}});
  StudyTable cosines = table_of("cosine", "softmax(cos(q, k) / T) at temperature T",
                                {{"d_k", Shown::count}, {"temperature", Shown::number}});
  for (const std::int64_t d : {64, 512}) {
    Normals normals = input.normals();
    const Matrix q = draw(normals, kTokens, d);
    const Matrix k = draw(normals, kTokens, d);
    const auto wide = static_cast<double>(d);
    for (const auto& [name, of] : kDivisors) {
      divisors.rows.push_back(row_of({d, name, of(wide)}, divided(q, k, of(wide))));
    }
    for (const double t : kTemperatures) {
      temperatures.rows.push_back(row_of({d, t}, divided(q, k, std::sqrt(wide) * t)));
    }
    for (const double t : kCosine) cosines.rows.push_back(row_of({d, t}, cosine(q, k, t)));
  }
  const StudyTensors& tensors = *input.tensors;
  const auto real_size = static_cast<double>(tensors.size());
  StudyTable real = table_of(
      "tensors",
      format("All heads of %s, d_k = %.0f",
             tensors.name() == "sample" ? "the sample" : tensors.name().c_str(), real_size),
      {{"divisor", Shown::text}, {"divisor_value", Shown::number}});
  for (const auto& [name, of] : kDivisors) {
    real.rows.push_back(row_of({name, of(real_size)}, mean_of_heads(tensors, of(real_size))));
  }

  Study study{.title = "What else scores could be divided by",
              .formula = "softmax(Q K^T / c)   for c = 1, sqrt(d), d, d^(1/4), 2 sqrt(d)",
              .reads =
                  "A divisor is a temperature: small ones give one key nearly all the weight, "
                  "large ones give all keys the same; sqrt(d) keeps the variance near 1 at "
                  "any d."};
  const auto share = [&divisors](std::size_t row) {
    return 100 * divisors.at(row, "entropy_share").get<double>();
  };
  study.findings = {
      format("From d_k = 64 to 512 the entropy goes from %.1f %% to %.1f %% of its maximum with "
             "sqrt(d), from %.1f %% to %.1f %% with d^(1/4), and from %.1f %% to %.1f %% with d.",
             share(1), share(6), share(3), share(8), share(2), share(7)),
      "Cosine attention leaves lengths out. The cosines of random directions have variance "
      "1 / d_k, so the temperature that suits one d_k is too warm for a larger one."};
  study.charts = {bars_chart("Divisors at d_k = 64", "divisors", 64),
                  bars_chart("Divisors at d_k = 512", "divisors", 512),
                  sweep_chart("Temperature", "temperatures"),
                  sweep_chart("Cosine attention", "cosine"),
                  bars_chart(tensors.titled("Divisors"), "tensors", {})};
  study.charts.back().span = Span::full;
  study.tables = {std::move(divisors), std::move(temperatures), std::move(cosines),
                  std::move(real)};
  study.facts = facts_of(input);
  study.facts["tensors_from"] = tensors.name();
  return study;
}

}  // namespace heed::cli

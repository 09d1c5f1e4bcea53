// The Jacobian of softmax, scaled and unscaled: how much gradient comes through the weights.
#include <algorithm>
#include <array>
#include <cmath>

#include "study.h"
#include "study_backward.h"
#include "study_math.h"
#include "study_tensors.h"
#include "terminal.h"

namespace heed::cli {
namespace {

constexpr std::int64_t kSize = kDrawnSize;
constexpr std::int64_t kKeys = kDrawnKeys;

double scale_for(std::int64_t size) { return 1.0 / std::sqrt(static_cast<double>(size)); }

struct Draw {
  Matrix scaled, unscaled;  ///< weights of one query
};

Draw draw_weights(Normals& normals) {
  const Matrix q = draw(normals, 1, kSize);
  const Matrix k = draw(normals, kKeys, kSize);
  return {weights_of(q, k, {.scale = scale_for(kSize)}), weights_of(q, k, {.scale = 1.0})};
}

std::vector<std::string> key_columns() {
  std::vector<std::string> names;
  for (std::int64_t key = 0; key < kKeys; ++key) names.push_back("key_" + std::to_string(key));
  return names;
}

StudyTable table_of_keys(const char* name, const char* title, std::vector<StudyColumn> columns) {
  for (const auto& key : key_columns()) columns.push_back({key, Shown::number});
  return {name, title, std::move(columns)};
}

void add_jacobian(StudyTable& table, const char* scores, const Matrix& weights) {
  const auto p = weights.row(0);
  for (std::size_t i = 0; i < p.size(); ++i) {
    std::vector<Json> row{scores, i};
    for (std::size_t j = 0; j < p.size(); ++j) {
      row.emplace_back(i == j ? p[i] * (1 - p[i]) : -p[i] * p[j]);
    }
    table.rows.push_back(std::move(row));
  }
}

std::vector<Json> size_row(const char* scores, const Matrix& weights) {
  const JacobianSize size = jacobian_of(weights);
  return {scores,
          size.diagonal_mean,
          size.diagonal_maximum,
          size.off_mean,
          size.off_minimum,
          size.mean_size,
          size.maximum_size,
          size.norm,
          size.saturated_share};
}

const std::vector<StudyColumn>& size_columns() {
  static const std::vector<StudyColumn> columns{{"scores", Shown::text},
                                                {"diagonal_mean", Shown::number},
                                                {"diagonal_maximum", Shown::number},
                                                {"off_mean", Shown::number},
                                                {"off_minimum", Shown::number},
                                                {"mean_size", Shown::number},
                                                {"maximum_size", Shown::number},
                                                {"norm", Shown::number},
                                                {"saturated_share", Shown::share}};
  return columns;
}

// Rows: all weights of one kind below each other.
void append(Matrix& all, const Matrix& rows) {
  all.data.insert(all.data.end(), rows.data.begin(), rows.data.end());
  all.rows += rows.rows;
}

// The mean over the heads of a batch entry.
struct RealSize {
  double diagonal = 0, norm = 0, saturated = 0;
};

RealSize mean_of_heads(const StudyTensors& tensors, std::int64_t batch, double scale) {
  RealSize mean;
  for (std::int64_t head = 0; head < tensors.heads(); ++head) {
    const auto [q, k] = tensors.head(batch, head);
    const JacobianSize size = jacobian_of(weights_of(q, k, {.scale = scale}));
    mean.diagonal += size.diagonal_mean / static_cast<double>(tensors.heads());
    mean.norm += size.norm / static_cast<double>(tensors.heads());
    mean.saturated += size.saturated_share / static_cast<double>(tensors.heads());
  }
  return mean;
}

StudyTable real_table(const StudyTensors& tensors) {
  StudyTable table{"tensors",
                   format("The heads of each %s of %s, d_k = %lld", tensors.entry(),
                          tensors.name() == "sample" ? "the sample" : tensors.name().c_str(),
                          static_cast<long long>(tensors.size())),
                   {{tensors.entry(), Shown::count},
                    {"diagonal_scaled", Shown::number},
                    {"diagonal_unscaled", Shown::number},
                    {"diagonal_ratio", Shown::number},
                    {"norm_scaled", Shown::number},
                    {"norm_unscaled", Shown::number},
                    {"norm_ratio", Shown::number},
                    {"dot_product_ratio", Shown::number},
                    {"saturated_scaled", Shown::share},
                    {"saturated_unscaled", Shown::share}}};
  const double scale = scale_for(tensors.size());
  for (std::int64_t batch = 0; batch < tensors.batch(); ++batch) {
    const RealSize scaled = mean_of_heads(tensors, batch, scale);
    const RealSize unscaled = mean_of_heads(tensors, batch, 1.0);
    const double norm_ratio = scaled.norm / unscaled.norm;
    table.rows.push_back({batch, scaled.diagonal, unscaled.diagonal,
                          scaled.diagonal / unscaled.diagonal, scaled.norm, unscaled.norm,
                          norm_ratio, norm_ratio * scale, scaled.saturated, unscaled.saturated});
  }
  return table;
}

std::string percent(double share) { return format("%.0f", 100 * share); }

// Two digits behind the point; three in all of what these do not suit.
std::string ratio(double value) {
  const double size = std::abs(value);
  return format(size == 0 || (size >= 0.01 && size < 1e4) ? "%.2f" : "%.3g", value);
}

// "1.54 to 5.16 times (NaN in 1 of 6)", "1.54 times"; "?" where nothing is a number, as of one
// key, whose Jacobian is 0.
std::string range_of(const StudyTable& table, const char* column, std::string (*text)(double),
                     const char* unit, const char* lacking = "NaN") {
  double low = HUGE_VAL;
  double high = -HUGE_VAL;
  std::size_t unknown = 0;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    const auto value = table.at(row, column).get<double>();
    unknown += std::isnan(value) ? 1 : 0;
    low = std::min(low, value);  // NaN compares as neither
    high = std::max(high, value);
  }
  if (low > high) return std::string("?") + unit;
  const std::string least = text(low);
  const std::string most = text(high);
  const std::string range = (least == most ? most : least + " to " + most) + unit;
  return unknown == 0 ? range
                      : range + format(" (%s in %zu of %zu)", lacking, unknown, table.rows.size());
}

// Of all queries that have a choice; nothing where there is none that could pass something on.
std::string vanishing_in(const StudyTensors& tensors, const StudyTable& backward) {
  const auto share = [&backward](const char* column) {
    return range_of(backward, column, percent, " %", "not known");
  };
  const std::string unscaled = share("vanishing_unscaled");
  const std::string scaled = share("vanishing_scaled");
  if (unscaled == "? %" && scaled == "? %") return "";
  return "; in " + tensors.whose() + " " + unscaled + " and " + scaled;
}

Chart jacobian_chart(const char* title, const char* scores) {
  Chart chart{.title = title,
              .table = "jacobian",
              .x = "row",
              .x_label = "key whose score moves",
              .y_label = "weight",
              .series = {},
              .mark = Mark::cells,
              .span = Span::third};
  for (const auto& key : key_columns()) {
    chart.series.push_back({key, key, Stroke::solid, "scores", scores});
  }
  return chart;
}

}  // namespace

Study study_gradients(const StudyInput& input) {
  Normals normals = input.normals();
  const Draw first = draw_weights(normals);
  StudyTable weights = table_of_keys("weights", "Weights of one query, 4 keys, d_k = 512",
                                     {{"scores", Shown::text}});
  StudyTable jacobian = table_of_keys("jacobian", "Their Jacobian, dP_i / dS_j",
                                      {{"scores", Shown::text}, {"row", Shown::count}});
  StudyTable sizes{"one_draw", "The entries of that Jacobian", size_columns()};
  for (const auto& [scores, one] :
       {std::pair{"scaled", &first.scaled}, std::pair{"unscaled", &first.unscaled}}) {
    std::vector<Json> row{scores};
    for (const double p : one->row(0)) row.emplace_back(p);
    weights.rows.push_back(std::move(row));
    add_jacobian(jacobian, scores, *one);
    sizes.rows.push_back(size_row(scores, *one));
  }

  Matrix scaled(0, kKeys);
  Matrix unscaled(0, kKeys);
  for (int i = 0; i < kDraws; ++i) {
    const Draw one = draw_weights(normals);
    append(scaled, one.scaled);
    append(unscaled, one.unscaled);
  }
  StudyTable draws{"thousand_draws", "1,000 more draws", size_columns()};
  draws.rows = {size_row("scaled", scaled), size_row("unscaled", unscaled)};
  const double scaled_mean = draws.at(0, "diagonal_mean").get<double>();
  const double unscaled_mean = draws.at(1, "diagonal_mean").get<double>();
  StudyTable ratios{"ratio",
                    "Over the 1,000 draws: mean of p (1 - p), and the norm, scaled over unscaled",
                    {{"scaled", Shown::number},
                     {"unscaled", Shown::number},
                     {"scaled_over_unscaled", Shown::number},
                     {"norm_ratio", Shown::number},
                     {"dot_product_ratio", Shown::number}}};
  const double norm_ratio = draws.at(0, "norm").get<double>() / draws.at(1, "norm").get<double>();
  ratios.rows = {{scaled_mean, unscaled_mean, scaled_mean / unscaled_mean, norm_ratio,
                  norm_ratio * scale_for(kSize)}};

  StudyTable backward = backward_of_draws(input, normals);
  const StudyTensors& tensors = *input.tensors;
  StudyTable real = real_table(tensors);
  StudyTable real_backward = backward_of_tensors(tensors, normals);
  Study study{.title = "What the scale does to gradients",
              .formula = "dP_i / dS_j  =  P_i (1 - P_i) where i = j,  -P_i P_j elsewhere",
              .reads =
                  "Where one key has all the weight every entry of softmax's Jacobian is 0 and "
                  "nothing is learned through it; soft weights let gradients through."};
  study.findings = {
      format("Over 1,000 random draws at d_k = 512 the mean of p (1 - p) is %.4f scaled and %.4f "
             "unscaled: %.1f times as much.",
             scaled_mean, unscaled_mean, scaled_mean / unscaled_mean),
      format("In %s the norm of the Jacobian is %s as large with the scale, and %s of the "
             "queries instead of %s have a key with more than 99 %% of the weight.",
             tensors.whose().c_str(), range_of(real, "norm_ratio", ratio, " times").c_str(),
             range_of(real, "saturated_scaled", percent, " %").c_str(),
             range_of(real, "saturated_unscaled", percent, " %").c_str()),
      format("The chain rule divides by sqrt(d_k) once more: with respect to q . k the gradient is "
             "%s that of unscaled scores, and %.2f times in the random draws.",
             range_of(real, "dot_product_ratio", ratio, " times").c_str(),
             ratios.at(0, "dot_product_ratio").get<double>()),
      format("In the backward pass of the draws dQ is %.3g scaled and %.3g unscaled. Without the "
             "scale %.0f %% of the queries pass on less than 0.001 of what uniform weights would, "
             "with it %.0f %%%s.",
             backward.at(0, "dq_norm").get<double>(), backward.at(1, "dq_norm").get<double>(),
             100 * backward.at(1, "vanishing").get<double>(),
             100 * backward.at(0, "vanishing").get<double>(),
             vanishing_in(tensors, real_backward).c_str())};
  const std::string entry = tensors.entry();
  study.charts = {jacobian_chart("Jacobian of one draw, scaled", "scaled"),
                  jacobian_chart("Jacobian of one draw, unscaled", "unscaled"),
                  {.title = "1,000 random draws, d_k = 512",
                   .table = "thousand_draws",
                   .x = "scores",
                   .x_label = "scores",
                   .y_label = "mean of p (1 - p)",
                   .series = {{"diagonal_mean", "mean of p (1 - p)"}},
                   .mark = Mark::bars,
                   .span = Span::third},
                  {.title = tensors.titled("Norm of the Jacobian"),
                   .table = "tensors",
                   .x = entry,
                   .x_label = entry,
                   .y_label = "norm",
                   .series = {{"norm_scaled", "scaled"}, {"norm_unscaled", "unscaled"}},
                   .mark = Mark::bars},
                  {.title = "Queries with a key of more than 99 %",
                   .table = "tensors",
                   .x = entry,
                   .x_label = entry,
                   .y_label = "share of the queries",
                   .series = {{"saturated_scaled", "scaled"}, {"saturated_unscaled", "unscaled"}},
                   .mark = Mark::bars},
                  {.title = tensors.titled("Norm of a row of dQ"),
                   .table = "tensors_backward",
                   .x = entry,
                   .x_label = entry,
                   .y_label = "|dQ|",
                   .series = {{"dq_norm_scaled", "scaled"}, {"dq_norm_unscaled", "unscaled"}},
                   .mark = Mark::bars},
                  {.title = "Queries whose gradient vanishes",
                   .table = "tensors_backward",
                   .x = entry,
                   .x_label = entry,
                   .y_label = "share of the queries",
                   .series = {{"vanishing_scaled", "scaled"}, {"vanishing_unscaled", "unscaled"}},
                   .mark = Mark::bars}};
  study.tables = {std::move(weights), std::move(jacobian),     std::move(sizes),
                  std::move(draws),   std::move(ratios),       std::move(backward),
                  std::move(real),    std::move(real_backward)};
  study.facts = facts_of(input);
  study.facts["tensors_from"] = tensors.name();
  study.facts["d_output_from"] = tensors.d_output().present() ? tensors.name() : "normal numbers";
  return study;
}

}  // namespace heed::cli

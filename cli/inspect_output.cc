// An inspection as people and programs read it: a table with remarks, and JSON.
#include "inspect_output.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "diagnosis.h"
#include "picture_parts.h"
#include "plain_text.h"

namespace heed::cli {
namespace {

std::string number(double value, const char* pattern) {
  return std::isnan(value) ? "nan" : without_sign_of_zero(format(pattern, value));
}

/// A quantile of the scores, of which only so much is known beyond the histogram's bins.
std::string score(double value, const Inspection& all) {
  if (value == -INFINITY) return format("<%g", all.bin_low);
  if (value == INFINITY) return format(">%g", all.bin_high);
  return number(value, "%.1f");
}

std::string full_name(const HeadInspection& head) {
  return format("layer %lld head %lld", static_cast<long long>(head.layer),
                static_cast<long long>(head.head));
}

struct Column {
  const char* name;
  std::string (*of)(const HeadInspection& head, const Inspection& all);
};

std::string gradient(const HeadInspection& head, double HeadGradients::*norm) {
  return number((*head.gradients).*norm, "%.2g");
}

/// Over the counted rows: of none there is no number to tell, unless a NaN is why.
std::string counted(const HeadInspection& head, double value, const char* pattern) {
  const bool nan = head.nan_rows > 0 || head.gradients->nan_rows > 0;
  return head.gradients->ds.count == 0 && !nan ? "-" : number(value, pattern);
}

/// What gradients add: before the last column.
const std::vector<Column>& gradient_columns() {
  using Head = const HeadInspection&;
  using All = const Inspection&;
  static const std::vector<Column> all{
      {"|dQ|", [](Head h, All) { return gradient(h, &HeadGradients::dq); }},
      {"|dK|", [](Head h, All) { return gradient(h, &HeadGradients::dk); }},
      {"|dV|", [](Head h, All) { return gradient(h, &HeadGradients::dv); }},
      {"|dS|", [](Head h, All) { return counted(h, h.gradients->ds.quantiles[2], "%.2g"); }},
      {"passed on",
       [](Head h, All) { return counted(h, h.gradients->passed_on.quantiles[2], "%.2g"); }},
      {"vanishing",
       [](Head h, All) { return counted(h, 100 * h.gradients->vanishing, "%.0f %%"); }}};
  return all;
}

const std::vector<Column>& columns_of_weights() {
  using Head = const HeadInspection&;
  using All = const Inspection&;
  static const std::vector<Column> all{
      {"layer", [](Head h, All) { return std::to_string(h.layer); }},
      {"head", [](Head h, All) { return std::to_string(h.head); }},
      {"scores 1..99 %",
       [](Head h, All a) { return score(h.score_low, a) + " .. " + score(h.score_high, a); }},
      {"deviation", [](Head h, All) { return number(h.score_deviation.mean, "%.2f"); }},
      {"in range", [](Head h, All) { return number(100 * h.in_range, "%.0f %%"); }},
      {"entropy", [](Head h, All) { return number(h.entropy_share.mean, "%.2f"); }},
      {"peaked", [](Head h, All) { return number(100 * h.peaked, "%.0f %%"); }},
      {"uniform", [](Head h, All) { return number(100 * h.uniform, "%.0f %%"); }},
      {"largest", [](Head h, All) { return number(h.max_weight.quantiles[2], "%.2f"); }},
      {"saturated", [](Head h, All) { return number(100 * h.saturated, "%.0f %%"); }},
      {"Jacobian", [](Head h, All) { return number(h.jacobian_norm.quantiles[2], "%.3f"); }},
      {"rests on", [](Head h, All a) {
         return h.sink_key < 0 ? std::string("-")
                               : plain_text(a.label(h.sink_key), kShownToken) +
                                     format(" %.0f %%", 100 * h.sink_share);
       }}};
  return all;
}

std::vector<Column> columns(const Inspection& inspection) {
  std::vector<Column> all = columns_of_weights();
  if (inspection.has_gradients()) {
    all.insert(all.end() - 1, gradient_columns().begin(), gradient_columns().end());
  }
  return all;
}

/// Columns that a narrow terminal is spared, the first ones first.
constexpr std::string_view kSpared[] = {"deviation", "uniform", "peaked",   "largest",  "|dS|",
                                        "|dV|",      "|dK|",    "Jacobian", "in range", "saturated",
                                        "rests on",  "|dQ|",    "vanishing"};

std::string aligned(const std::vector<std::vector<std::string>>& rows, const Terminal& terminal) {
  std::vector<std::size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      widths[c] = std::max(widths[c], length_of(row[c]));
    }
  }
  std::vector<bool> shown(widths.size(), true);
  std::size_t width = 2 * (widths.size() - 1);
  for (const std::size_t column : widths) width += column;
  for (const std::string_view name : kSpared) {
    if (width <= static_cast<std::size_t>(terminal.width)) break;
    const auto at = std::find(rows[0].begin(), rows[0].end(), name);
    if (at == rows[0].end()) continue;
    const auto c = static_cast<std::size_t>(at - rows[0].begin());
    shown[c] = false;
    width -= widths[c] + 2;
  }
  std::string text;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (std::size_t c = 0; c < widths.size(); ++c) {
      if (!shown[c]) continue;
      const std::string gap(widths[c] - length_of(rows[r][c]), ' ');
      const bool last = c + 1 == widths.size();
      line += (c > 0 ? "  " : "") + (last ? rows[r][c] : gap + rows[r][c]);
    }
    text += (r == 0 ? styled(line, "1", terminal.colour) : line) + "\n";
  }
  return text;
}

/// "layer 3 head 1", or "7 heads: 0.2, 0.4-6, 3.1": layer and head, runs of heads in short.
std::string places(const std::vector<const HeadInspection*>& heads, const Inspection& all) {
  if (heads.size() == 1) return full_name(*heads[0]);
  if (heads.size() == all.found.size()) return "all heads";
  std::string text = std::to_string(heads.size()) + " heads: ";
  for (std::size_t first = 0; first < heads.size();) {
    std::size_t last = first;
    const auto follows = [&](std::size_t i) {
      return heads[i]->layer == heads[first]->layer &&
             heads[i]->head == heads[first]->head + static_cast<std::int64_t>(i - first);
    };
    while (last + 1 < heads.size() && follows(last + 1)) ++last;
    text += (first > 0 ? ", " : "") + std::to_string(heads[first]->layer) + "." +
            std::to_string(heads[first]->head);
    if (last > first) text.append(1, '-').append(std::to_string(heads[last]->head));
    first = last + 1;
  }
  return text;
}

/// A remark on some heads; where their numbers differ, from the least to the greatest.
struct Group {
  const Remark* remark;
  double least, most;
  std::vector<const HeadInspection*> heads{};

  [[nodiscard]] std::string sentence() const {
    const auto shown = [this](double amount) { return amount_text(amount, remark->digits); };
    if (remark->form.empty() || shown(least) == shown(most)) return remark->sentence;
    std::string text = remark->form;
    return text.replace(text.find("{}"), 2, shown(least) + " to " + shown(most));
  }
};

/// Remarks of one kind together, in the order in which heads come to them.
std::vector<Group> groups_of(const Inspection& inspection, Severity severity) {
  std::vector<Group> groups;
  std::map<std::pair<std::string, std::string>, std::size_t> known;
  for (const auto& head : inspection.found) {
    for (const auto& remark : head.remarks) {
      if (remark.severity != severity) continue;
      const std::string& kind = remark.form.empty() ? remark.sentence : remark.form;
      const auto [at, added] = known.try_emplace({kind, remark.suggestion}, groups.size());
      if (added) groups.push_back({&remark, remark.amount, remark.amount});
      Group& group = groups[at->second];
      group.least = std::min(group.least, remark.amount);
      group.most = std::max(group.most, remark.amount);
      group.heads.push_back(&head);
    }
  }
  return groups;
}

/// Remarks with the heads that they are about, warnings first.
std::string remarks_text(const Inspection& inspection, const Terminal& terminal) {
  const auto width = static_cast<std::size_t>(terminal.width);
  std::string text;
  for (const Severity severity : {Severity::warning, Severity::note}) {
    for (const Group& group : groups_of(inspection, severity)) {
      text += severity == Severity::warning ? styled("! ", "33", terminal.colour) : "  ";
      text += paragraph(one_line(group.sentence()) + " (" + places(group.heads, inspection) + ")",
                        width - 2, "    ");
      if (group.remark->suggestion.empty()) continue;
      text += "    " + paragraph("try: " + one_line(group.remark->suggestion), width - 4, "    ");
    }
  }
  return text;
}

Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json json_of(const Summary& summary) {
  Json quantiles = Json::array();
  for (const double value : summary.quantiles) quantiles.push_back(finite(value));
  return {{"rows", summary.count}, {"mean", finite(summary.mean)}, {"quantiles", quantiles}};
}

Json json_of(const HeadGradients& gradients) {
  return {{"dq_norm", finite(gradients.dq)},           {"dk_norm", finite(gradients.dk)},
          {"dv_norm", finite(gradients.dv)},           {"ds_norm", json_of(gradients.ds)},
          {"passed_on", json_of(gradients.passed_on)}, {"vanishing", finite(gradients.vanishing)},
          {"silent_rows", gradients.silent_rows},      {"nan_rows", gradients.nan_rows}};
}

/// As the pictures' CSV files print them.
std::vector<double> all_shortest(const std::vector<float>& values) {
  std::vector<double> numbers;
  for (const float value : values) numbers.push_back(shortest(value));
  return numbers;
}

Json json_of(const TopKeys& top) {
  return {{"row", top.row},
          {"keys", top.keys},
          {"weights", all_shortest(top.weights)},
          {"mass", shortest(top.mass)},
          {"visible_keys", top.visible},
          {"entropy_share", finite(top.entropy_share)}};
}

/// What is not known, or not finite, is null, which dump() makes of it.
Json json_of(const RowStory& story) {
  return {{"row", story.row},
          {"products", all_shortest(story.products)},
          {"scores", all_shortest(story.scores)},
          {"visible", story.visible},
          {"weights", all_shortest(story.weights)}};
}

Json json_of(const HeadInspection& head) {
  Json json{{"layer", head.layer},
            {"head", head.head},
            {"max_score", json_of(head.max_score)},
            {"score_mean", json_of(head.score_mean)},
            {"score_deviation", json_of(head.score_deviation)},
            {"entropy", json_of(head.entropy)},
            {"entropy_share", json_of(head.entropy_share)},
            {"effective_keys", json_of(head.effective_keys)},
            {"max_weight", json_of(head.max_weight)},
            {"jacobian_norm", json_of(head.jacobian_norm)},
            {"saturated", head.saturated},
            {"peaked", head.peaked},
            {"uniform", head.uniform},
            {"empty_rows", head.empty_rows},
            {"nan_rows", head.nan_rows},
            {"first_nan_row", head.first_nan_row},
            {"score_low", finite(head.score_low)},
            {"score_high", finite(head.score_high)},
            {"in_range", finite(head.in_range)},
            {"sink_key", head.sink_key},
            {"sink_share", head.sink_share},
            {"histogram", head.histogram},
            {"distance_mass", all_shortest(head.distance_mass)},
            {"column_mass", all_shortest(head.column_mass)}};
  json["top"] = Json::array();
  for (const auto& top : head.top) json["top"].push_back(json_of(top));
  if (head.gradients) json["gradients"] = json_of(*head.gradients);
  json["remarks"] = Json::array();
  for (const auto& remark : head.remarks) {
    json["remarks"].push_back(
        {{"severity", remark.severity == Severity::warning ? "warning" : "note"},
         {"sentence", remark.sentence},
         {"suggestion", remark.suggestion}});
  }
  return json;
}

}  // namespace

std::string inspection_text(const Inspection& inspection, const Terminal& terminal) {
  const std::string about =
      one_line(inspection.source) + ": " + count_text(inspection.layers, "layer", "layers") +
      " x " + count_text(inspection.heads, "head", "heads") + ", " +
      count_text(inspection.queries, "query", "queries") + ", " +
      count_text(inspection.keys, "key", "keys") + ", head size " +
      std::to_string(inspection.head_size) +
      (inspection.options().empty() ? "" : ", " + one_line(inspection.options()));
  const std::string text = paragraph(about, static_cast<std::size_t>(terminal.width), "  ") + "\n";
  std::vector<std::vector<std::string>> rows(1);
  const std::vector<Column> shown = columns(inspection);
  for (const Column& column : shown) rows[0].emplace_back(column.name);
  for (const auto& head : inspection.found) {
    auto& row = rows.emplace_back();
    // No row has scores: there is no number to tell, and none that went wrong either.
    const bool nothing = head.max_score.count == 0 && head.nan_rows == 0;
    for (const Column& column : shown) {
      const std::string cell = column.of(head, inspection);
      row.push_back(nothing && cell.starts_with("nan") ? "-" : cell);
    }
  }
  return text + aligned(rows, terminal) + "\n" + remarks_text(inspection, terminal) +
         rows_text(inspection, terminal);
}

Json inspection_json(const Inspection& inspection) {
  Json json{
      {"source", inspection.source},
      {"settings", inspection.settings},
      {"option_tensors", inspection.option_tensors},
      {"layers", inspection.layers},
      {"heads", inspection.heads},
      {"queries", inspection.queries},
      {"keys", inspection.keys},
      {"head_size", inspection.head_size},
      {"tokens", inspection.tokens},
      {"histogram_bins",
       {{"low", inspection.bin_low}, {"high", inspection.bin_high}, {"count", inspection.bins}}},
      {"tiles_computed", inspection.mask.tiles_computed},
      {"tiles_skipped", inspection.mask.tiles_skipped}};
  json["found"] = Json::array();
  for (const auto& head : inspection.found) {
    Json& one = json["found"].emplace_back(json_of(head));
    if (inspection.rows_asked.empty()) continue;  // all of a sentence: too much unless asked for
    one["stories"] = Json::array();
    for (const auto& story : head.stories) one["stories"].push_back(json_of(story));
  }
  return json;
}

}  // namespace heed::cli

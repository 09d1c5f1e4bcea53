// Which tokens look at which: arcs from rows to the keys with their largest weights.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "csv.h"
#include "picture_parts.h"
#include "plain_text.h"

namespace heed::cli {
namespace {

constexpr std::size_t kMostRows = 48;
constexpr double kName = 14;  // what the name of a key takes of the height
constexpr double kTop = 128;
constexpr double kLeftNames = 200;
constexpr double kRightNames = 550;

// All rows, or so many of them evenly.
std::vector<const TopKeys*> some_rows(const HeadInspection& head) {
  const std::size_t count = std::min(head.top.size(), kMostRows);
  std::vector<const TopKeys*> rows;
  for (std::size_t i = 0; i < count; ++i) rows.push_back(&head.top[i * head.top.size() / count]);
  return rows;
}

// Rows and names of keys have room, where there are as few keys as are all named.
double height_of(std::size_t rows, std::int64_t keys) {
  const auto named = std::min(static_cast<double>(keys), static_cast<double>(kMostRows));
  return std::max({20 * static_cast<double>(rows), kName * named, 60.0});
}

// The keys of the drawn arcs, those with most weight first.
std::vector<std::int64_t> heaviest_keys(const std::vector<const TopKeys*>& rows) {
  std::map<std::int64_t, double> weights;
  for (const TopKeys* top : rows) {
    for (std::size_t j = 0; j < std::min(top->keys.size(), top->weights.size()); ++j) {
      if (top->weights[j] > 0) weights[top->keys[j]] += static_cast<double>(top->weights[j]);
    }
  }
  std::vector<std::int64_t> keys;
  for (const auto& [key, weight] : weights) keys.push_back(key);
  std::ranges::stable_sort(
      keys, [&weights](std::int64_t a, std::int64_t b) { return weights.at(a) > weights.at(b); });
  return keys;
}

// Every key has a name if all have room for one, else the heaviest, as far as names do not meet.
void draw_key_names(Svg& svg, const Inspection& inspection, const std::vector<const TopKeys*>& rows,
                    double height) {
  const double step = height / static_cast<double>(std::max<std::int64_t>(inspection.keys, 1));
  const bool few = inspection.keys <= static_cast<std::int64_t>(kMostRows);
  std::vector<std::int64_t> keys(static_cast<std::size_t>(few ? inspection.keys : 0));
  std::iota(keys.begin(), keys.end(), 0);
  if (!few) keys = heaviest_keys(rows);
  std::set<double> taken;
  for (const std::int64_t key : keys) {
    const double at = kTop + (static_cast<double>(key) + 0.5) * step;
    const auto next = taken.lower_bound(at);
    const bool meets = (next != taken.end() && *next - at < kName) ||
                       (next != taken.begin() && at - *std::prev(next) < kName);
    if (meets && !few) continue;
    taken.insert(at);
    const std::string number = few || inspection.tokens.empty() ? "" : std::to_string(key) + " ";
    svg.text(kRightNames + 10, at + 4, "", Anchor::start,
             number + key_label(inspection, key, few ? 18 : 14));
  }
}

// The mean is of the rows that count, as every number over rows is.
std::string share_sentence(const std::vector<const TopKeys*>& rows) {
  double covered = 0;
  std::size_t count = 0;
  std::size_t most = 0;
  for (const TopKeys* top : rows) {
    if (!top->counts()) continue;
    covered += shortest(top->mass);
    most = std::max(most, top->keys.size());
    ++count;
  }
  if (count == 0) return "No row drawn here has weights: each sees no key, or is NaN.";
  return format("The %zu largest weights of each row hold %.1f %% of its weight in the mean.", most,
                100 * covered / static_cast<double>(count));
}

}  // namespace

void add_arcs(std::vector<Picture>& pictures, const Inspection& inspection,
              const ChosenHead& chosen) {
  const HeadInspection& head = inspection.at(chosen.layer, chosen.head);
  const auto rows = some_rows(head);
  const double height = height_of(rows.size(), inspection.keys);
  const double row_step = height / static_cast<double>(std::max<std::size_t>(rows.size(), 1));
  const double key_step = height / static_cast<double>(std::max<std::int64_t>(inspection.keys, 1));
  Svg svg;
  std::string csv = "query,query_token,mass,key,key_token,weight\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const TopKeys& top = *rows[i];
    const double y = kTop + (static_cast<double>(i) + 0.5) * row_step;
    const auto mass = shortest(top.mass);
    svg.text(kLeftNames - 62, y + 4, "", Anchor::end, row_label(inspection, top.row, 16));
    const std::string title = numbered("row ", top.row) + ": these keys hold " + Json(mass).dump();
    svg.rectangle(kLeftNames - 54, y - 5, 44, 10, "f0", 0.15, title);
    svg.rectangle(kLeftNames - 54, y - 5, 44 * std::clamp(std::isfinite(mass) ? mass : 0, 0.0, 1.0),
                  10, "f0", 0.8, title);
    for (std::size_t j = 0; j < std::min(top.keys.size(), top.weights.size()); ++j) {
      const auto weight = shortest(top.weights[j]);
      csv += csv_line({top.row, csv_text(row_token(inspection, top.row, kWhole)), mass, top.keys[j],
                       csv_text(token_of(inspection, top.keys[j], kWhole)), weight});
      if (!(weight > 0)) continue;
      const double to = kTop + (static_cast<double>(top.keys[j]) + 0.5) * key_step;
      const double bend = (kRightNames - kLeftNames) * 0.45;
      svg.curve(format("M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f", kLeftNames, y, kLeftNames + bend,
                       y, kRightNames - bend, to, kRightNames, to),
                "s0", 0.6 + 6 * weight, std::min(0.1 + 0.85 * std::sqrt(weight), 0.95),
                row_token(inspection, top.row, 24) + " -> " +
                    token_of(inspection, top.keys[j], 24) + ": " + Json(weight).dump());
    }
  }
  draw_key_names(svg, inspection, rows, height);
  svg.text(
      20, 36, "title", Anchor::start,
      numbered("Layer ", chosen.layer) + numbered(", head ", chosen.head) + ": who looks at whom");
  svg.text(20, 60, "prose", Anchor::start, share_sentence(rows));
  svg.text(20, 80, "quiet", Anchor::start,
           rows.size() < static_cast<std::size_t>(inspection.queries)
               ? format("%zu of %lld rows; keys stand by position.", rows.size(),
                        static_cast<long long>(inspection.queries))
               : "Thick and dark is much weight; bars: the share of the row that is drawn.");
  svg.text(kLeftNames - 62, kTop - 12, "panel", Anchor::end, "query");
  svg.text(kLeftNames - 32, kTop - 12, "quiet", Anchor::middle, "covered");
  svg.text(kRightNames + 10, kTop - 12, "panel", Anchor::start, "key");
  const std::string name = "arcs_" + head_file(chosen.layer, chosen.head);
  pictures.push_back({name + ".svg", svg.document(kRightNames + 180, kTop + height + 24,
                                                  head_name(chosen.layer, chosen.head) + " arcs",
                                                  subject_of(inspection))});
  pictures.push_back({name + ".csv", csv});
}

}  // namespace heed::cli

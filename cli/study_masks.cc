// What masks hide, what they save, and a proof that nothing hidden gets through.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "heed/attention.h"
#include "study.h"
#include "study_cell.h"
#include "terminal.h"

namespace heed::cli {
namespace {

constexpr std::int64_t kPictured = 12;
constexpr std::int64_t kWeighted = 8;
constexpr std::int64_t kLong = 4096;
constexpr std::int64_t kProved = 48;

struct NamedMask {
  const char* name;
  CellMask small;  ///< for the picture
  CellMask wide;   ///< for the tiles of a long sequence
};

const std::array<NamedMask, 6>& masks() {
  using enum MaskKind;
  static const std::array<NamedMask, 6> all{
      {{"none", {none}, {none}},
       {"causal", {causal}, {causal}},
       {"window", {window, {2, 2}}, {window, {255, 255}}},
       {"causal window", {causal_window, {3}}, {causal_window, {255}}},
       {"key lengths", {padded}, {padded}},
       {"keep", {keep}, {keep}}}};
  return all;
}

StudyTable key_table(const char* name, const char* title, std::vector<StudyColumn> columns,
                     std::int64_t keys) {
  for (std::int64_t key = 0; key < keys; ++key) {
    columns.push_back({"key_" + std::to_string(key), Shown::number});
  }
  return {name, title, std::move(columns), {}, Audience::charts};
}

Cell cell_of(std::int64_t n, std::int64_t size, const CellMask& mask) {
  return {.queries = n, .keys = n, .d = size, .d_v = size, .mask = mask};
}

/// The weights of a small cell, a row for each query.
std::vector<std::vector<float>> weights_of(std::int64_t n, const CellMask& mask,
                                           const StudyInput& input) {
  Cell cell = cell_of(n, 16, mask);
  cell.weights = true;
  CellData data = draw_cell(cell, input.normals());
  PoolExecutor one(1);
  compute(cell, data, one);
  const auto all = floats_of(data.weights);
  std::vector<std::vector<float>> rows;
  for (std::int64_t i = 0; i < n; ++i) rows.emplace_back(&all[i * n], &all[i * n] + n);
  return rows;
}

// Seen is what has weight: these scores are far from those whose exponential is 0.
StudyTable pictures(const StudyInput& input) {
  StudyTable table = key_table("pictures", "Which keys each query sees",
                               {{"mask", Shown::text}, {"query", Shown::count}}, kPictured);
  for (const auto& mask : masks()) {
    std::int64_t query = 0;
    for (const auto& weights : weights_of(kPictured, mask.small, input)) {
      std::vector<Json> row{mask.name, query++};
      for (const float weight : weights) row.emplace_back(weight > 0 ? 1 : 0);
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

StudyTable causal_weights(const StudyInput& input) {
  StudyTable table = key_table("causal_weights", "Causal weights are lower-triangular",
                               {{"query", Shown::count}}, kWeighted);
  std::int64_t query = 0;
  for (const auto& weights : weights_of(kWeighted, {MaskKind::causal}, input)) {
    std::vector<Json> row{query++};
    for (const float weight : weights) row.emplace_back(static_cast<double>(weight));
    table.rows.push_back(std::move(row));
  }
  return table;
}

StudyTable tiles() {
  StudyTable table{"tiles",
                   "4096 queries and keys, d = 64: tiles computed and skipped",
                   {{"mask", Shown::text},
                    {"as", Shown::text},
                    {"visible_share", Shown::share},
                    {"tiles_computed", Shown::count},
                    {"tiles_skipped", Shown::count},
                    {"skipped_share", Shown::share}}};
  for (const auto& mask : masks()) {
    const Cell cell = cell_of(kLong, 64, mask.wide);
    const CellData data(cell);
    const Explanation told = explain(operand_of(cell, data.q), operand_of(cell, data.k),
                                     operand_of(cell, data.v), options_of(cell, data));
    const auto skipped = static_cast<double>(told.tiles_skipped);
    const auto all = skipped + static_cast<double>(told.tiles_computed);
    table.rows.push_back({mask.name, name_of(mask.wide),
                          visible_pairs(cell, data) / static_cast<double>(kLong * kLong),
                          told.tiles_computed, told.tiles_skipped, skipped / all});
  }
  return table;
}

struct Filler {
  const char* name;
  float value;
};

struct Leak {
  std::int64_t compared = 0, changed = 0;  ///< bits
};

// For each position p the keys and values after p become the filler: do the rows up to p keep their
// bits?
Leak leak_of(const CellMask& mask, float filler, const StudyInput& input) {
  const Cell cell = cell_of(kProved, 16, mask);
  const auto row = static_cast<std::size_t>(cell.d);
  PoolExecutor one(1);
  CellData whole = draw_cell(cell, input.normals());
  compute(cell, whole, one);
  Leak leak;
  for (std::int64_t p = 0; p < kProved; ++p) {
    CellData data = draw_cell(cell, input.normals());
    const std::size_t past = row * static_cast<std::size_t>(p + 1);
    for (Tensor* tensor : {&data.k, &data.v}) {
      for (float& value : floats_of(*tensor).subspan(past)) value = filler;
    }
    compute(cell, data, one);
    for (std::size_t i = 0; i < past; ++i) {
      const auto before = std::bit_cast<std::uint32_t>(floats_of(whole.output)[i]);
      const auto after = std::bit_cast<std::uint32_t>(floats_of(data.output)[i]);
      leak.compared += 32;
      leak.changed += std::popcount(before ^ after);
    }
  }
  return leak;
}

StudyTable leaks(const StudyInput& input) {
  StudyTable table{"leaks",
                   "All keys and values of the future replaced, outputs compared bit by bit",
                   {{"mask", Shown::text},
                    {"future_is", Shown::text},
                    {"bits_compared", Shown::count},
                    {"bits_changed", Shown::count}}};
  constexpr std::array<Filler, 3> kFillers{{{"NaN", std::numeric_limits<float>::quiet_NaN()},
                                            {"infinity", std::numeric_limits<float>::infinity()},
                                            {"1e30", 1e30F}}};
  for (const auto& mask : masks()) {
    const bool causal =
        mask.small.kind == MaskKind::causal || mask.small.kind == MaskKind::causal_window;
    if (!causal && mask.small.kind != MaskKind::none) continue;
    for (const Filler& filler : kFillers) {
      const Leak leak = leak_of(mask.small, filler.value, input);
      table.rows.push_back({mask.name, filler.name, leak.compared, leak.changed});
    }
  }
  return table;
}

std::string leak_finding(const StudyTable& table) {
  std::int64_t causal = 0;
  std::int64_t control = 0;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    const auto changed = table.at(row, "bits_changed").get<std::int64_t>();
    (table.at(row, "mask") == "none" ? control : causal) += changed;
  }
  return format(
      "With causal masks %lld bits changed when the future became NaN, infinity or 1e30. The same "
      "test without a mask changes %lld bits, so it would have seen a leak.",
      static_cast<long long>(causal), static_cast<long long>(control));
}

Chart picture_of(const char* title, const StudyTable& table, const char* mask) {
  Chart chart{.title = title,
              .table = table.name,
              .x = "query",
              .x_label = "keys, to the right; queries, down",
              .y_label = "query",
              .series = {},
              .mark = Mark::cells,
              .span = Span::third};
  for (const auto& [name, shown] : table.columns) {
    if (!name.starts_with("key_")) continue;
    Series& series = chart.series.emplace_back(Series{name, "key " + name.substr(4)});
    if (mask == nullptr) continue;
    series.where = "mask";
    series.equals = mask;
  }
  return chart;
}

}  // namespace

Study study_masks(const StudyInput& input) {
  Study study{.title = "What masks hide, and what they save",
              .formula = "S_ij = -inf where the mask forbids (i, j)   =>   P_ij = 0",
              .reads =
                  "A hidden key has weight 0 exactly; tiles that no query may see are neither "
                  "read nor computed; and nothing hidden can reach an output."};
  study.tables = {pictures(input), causal_weights(input), tiles(), leaks(input)};
  for (const auto& mask : masks()) {
    study.charts.push_back(picture_of(mask.name, study.tables[0], mask.name));
  }
  study.charts.push_back(picture_of("Causal weights", study.tables[1], nullptr));
  study.charts.back().span = Span::half;
  study.charts.push_back({.title = "Tiles skipped at n = 4096",
                          .table = "tiles",
                          .x = "mask",
                          .x_label = "mask",
                          .y_label = "share of all tiles",
                          .series = {{"skipped_share", "share of all tiles"}},
                          .mark = Mark::bars});
  study.findings = {leak_finding(study.tables[3]),
                    "A random keep mask leaves no tile empty, so it saves nothing; a mask with "
                    "whole blocks hidden would."};
  study.facts = facts_of(input);
  return study;
}

}  // namespace heed::cli

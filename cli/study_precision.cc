// How far float32 is from float64, over lengths and head sizes.
#include <algorithm>
#include <array>

#include "bench_accuracy.h"
#include "heed/runtime.h"
#include "study.h"
#include "study_cell.h"
#include "terminal.h"

namespace heed::cli {
namespace {

constexpr std::array<std::int64_t, 4> kLengths{64, 256, 1024, 4096};
constexpr std::array<std::int64_t, 3> kSizes{16, 64, 256};
constexpr double kUnitRoundoff = 0x1p-24;

Accuracy accuracy(std::int64_t n, std::int64_t size, Normals normals, Executor& pool) {
  const Cell cell{.queries = n, .keys = n, .d = size, .d_v = size};
  CellData data = draw_cell(cell, normals);
  compute(cell, data, pool);
  return accuracy_of(cell, data, pool);
}

}  // namespace

Study study_precision(const StudyInput& input) {
  StudyTable table{"float32",
                   "Greatest error of an element of the output, float32 against float64",
                   {{"n", Shown::count},
                    {"d", Shown::count},
                    {"max_error", Shown::small},
                    {"in_units", Shown::number},
                    {"rows_compared", Shown::count}}};
  PoolExecutor pool;
  double worst = 0;
  for (const std::int64_t size : kSizes) {
    for (const std::int64_t n : kLengths) {
      const Accuracy found = accuracy(n, size, input.normals(), pool);
      const double error = found.max_error;
      table.rows.push_back({n, size, error, error / kUnitRoundoff, found.rows});
      worst = std::max(worst, error);
    }
  }
  Study study{.title = "How exact float32 is",
              .formula = "max |O_float32 - O_float64|,   unit = 2^-24",
              .reads =
                  "An output is a mean of values: over long sequences it becomes smaller, and its "
                  "error with it."};
  study.findings = {format("The greatest error of all is %.2e, %.1f units of 2^-24.", worst,
                           worst / kUnitRoundoff)};
  Chart chart{.title = "Greatest error against n",
              .table = "float32",
              .x = "n",
              .x_label = "n",
              .y_label = "error",
              .series = {},
              .x_axis = AxisKind::logarithmic,
              .y_axis = AxisKind::logarithmic,
              .span = Span::full};
  for (const std::int64_t size : kSizes) {
    chart.series.push_back({"max_error", "d = " + std::to_string(size), Stroke::solid, "d", size});
  }
  study.charts = {std::move(chart)};
  study.tables = {std::move(table)};
  study.facts = facts_of(input);
  return study;
}

}  // namespace heed::cli

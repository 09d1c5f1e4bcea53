// What attention costs: operations from the shapes, time and memory measured.
#include <algorithm>
#include <array>
#include <chrono>
#include <functional>

#include "heed/attention.h"
#include "machine.h"
#include "study.h"
#include "study_cell.h"
#include "terminal.h"

namespace heed::cli {
namespace {

constexpr std::int64_t kSize = 64;
constexpr std::array<std::int64_t, 5> kMeasured{128, 256, 512, 1024, 2048};
constexpr std::int64_t kLongest = 131072;

// Multiplications, additions and exponentials count one each. Softmax: maximum, difference,
// exponential, sum, division.
StudyTable operations() {
  StudyTable table{"operations",
                   "Operations of each step, d = 64",
                   {{"n", Shown::count},
                    {"QK^T", Shown::number},
                    {"scale", Shown::number},
                    {"softmax", Shown::number},
                    {"PV", Shown::number},
                    {"total", Shown::number},
                    {"softmax_share", Shown::share}}};
  for (const std::int64_t n : kMeasured) {
    const std::int64_t pairs = n * n;
    const std::int64_t product = 2 * pairs * kSize;
    const std::int64_t softmax = 5 * pairs;
    const std::int64_t total = 2 * product + pairs + softmax;
    table.rows.push_back({n, product, pairs, softmax, product, total,
                          static_cast<double>(softmax) / static_cast<double>(total)});
  }
  return table;
}

Cell cell_of(std::int64_t n) { return {.queries = n, .keys = n, .d = kSize, .d_v = kSize}; }

// Enough calls for a fifth of a second, at least three; short ones many at a time.
double median_seconds(const std::function<void()>& call) {
  constexpr double kLongEnough = 0.2;
  constexpr double kShortest = 1e-3;
  constexpr std::size_t kFewest = 3;
  std::vector<double> samples;
  double total = 0;
  std::int64_t calls = 1;
  while (total < kLongEnough || samples.size() < kFewest) {
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < calls; ++i) call();
    const double elapsed =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (elapsed < kShortest) {
      calls *= 2;
      continue;
    }
    total += elapsed;
    samples.push_back(elapsed / static_cast<double>(calls));
  }
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

StudyTable measured() {
  keep_one_heap();
  StudyTable table{"measured",
                   "Measured: float32, d = 64, one thread",
                   {{"n", Shown::count},
                    {"seconds", Shown::seconds},
                    {"time_factor", Shown::number},
                    {"square_factor", Shown::number},
                    {"seconds_if_square", Shown::seconds},
                    {"gflops", Shown::number},
                    {"added_bytes", Shown::bytes},
                    {"matrix_bytes", Shown::bytes}}};
  PoolExecutor one(1);
  double before = 0;
  for (const std::int64_t n : kMeasured) {
    const Cell cell = cell_of(n);
    CellData data(cell);
    const std::function<void()> call = [&] { compute(cell, data, one); };
    const auto added = memory_added_by(call);
    const double seconds = median_seconds(call);
    const double flops = 4.0 * static_cast<double>(n * n * kSize);
    table.rows.push_back({n, seconds, before > 0 ? Json(seconds / before) : Json(),
                          before > 0 ? Json(4) : Json(), Json(), flops / seconds * 1e-9,
                          added ? Json(*added) : Json(), 4 * n * n});
    before = seconds;
  }
  // The line that ends where the measurement does.
  const double last = before;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    const double share =
        static_cast<double>(kMeasured[row]) / static_cast<double>(kMeasured.back());
    table.rows[row][table.column("seconds_if_square")] = last * share * share;
  }
  return table;
}

StudyTable memory() {
  StudyTable table{"memory",
                   "Memory from the shapes: float32, d = 64, one head, one thread",
                   {{"n", Shown::count},
                    {"heed_bytes", Shown::bytes},
                    {"tensor_bytes", Shown::bytes},
                    {"matrix_bytes", Shown::bytes},
                    {"matrix_over_heed", Shown::number}}};
  PoolExecutor one(1);
  for (std::int64_t n = kMeasured.front(); n <= kLongest; n *= 2) {
    const void* none = nullptr;
    const ConstTensorView shape = view(none, DType::f32, {n, kSize});
    const std::int64_t scratch = explain(shape, shape, shape, {}, {.executor = &one}).scratch_bytes;
    const std::int64_t matrix = 4 * n * n;
    table.rows.push_back({n, scratch, n * kSize * 4 * 4, matrix,
                          static_cast<double>(matrix) / static_cast<double>(scratch)});
  }
  return table;
}

}  // namespace

Study study_complexity(const StudyInput&) {
  Study study{.title = "What attention costs as sequences grow",
              .formula = "operations = 2 n^2 d + n^2 + 5 n^2 + 2 n^2 d_v,   matrix = 4 n^2 bytes",
              .reads =
                  "Time grows with n^2 however attention is computed; memory need not: heed "
                  "never holds the matrix of scores."};
  study.tables = {operations(), measured(), memory()};
  const StudyTable& times = study.tables[1];
  const StudyTable& bytes = study.tables[2];
  const std::size_t last = bytes.rows.size() - 1;
  study.findings = {
      format("From n = 1024 to 2048 the time grew %.2f-fold; n^2 says 4.",
             times.at(times.rows.size() - 1, "time_factor").get<double>()),
      format("At n = 131,072 the matrix of one head would take %s in float32 (%.1f GB); heed takes "
             "%s beside the tensors.",
             human_bytes(bytes.at(last, "matrix_bytes").get<double>()).c_str(),
             bytes.at(last, "matrix_bytes").get<double>() * 1e-9,
             human_bytes(bytes.at(last, "heed_bytes").get<double>()).c_str())};
  const auto chart = [](const char* title, const char* table, std::vector<Series> series) {
    return Chart{.title = title,
                 .table = table,
                 .x = "n",
                 .x_label = "n",
                 .y_label = title,
                 .series = std::move(series),
                 .x_axis = AxisKind::logarithmic,
                 .y_axis = AxisKind::logarithmic,
                 .span = Span::third};
  };
  study.charts = {chart("Time of a call", "measured",
                        {{"seconds", "measured"}, {"seconds_if_square", "n^2", Stroke::dashed}}),
                  chart("Memory", "memory",
                        {{"heed_bytes", "heed"},
                         {"matrix_bytes", "matrix"},
                         {"tensor_bytes", "tensors", Stroke::dashed}}),
                  chart("Operations of each step", "operations",
                        {{"QK^T", "Q K^T"},
                         {"PV", "P V", Stroke::dashed},
                         {"softmax", "softmax"},
                         {"scale", "scale"}})};
  return study;
}

}  // namespace heed::cli

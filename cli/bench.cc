// heed bench: how fast and how exact one shape of attention is on this machine.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "bench_cell.h"
#include "commands.h"
#include "flags.h"
#include "heed/heed.h"
#include "machine.h"
#include "peak.h"
#include "progress.h"
#include "terminal.h"

namespace heed::cli {
namespace {

constexpr double kSteady = 1.05;     // median / minimum below which a timing counts as steady
constexpr double kPeakMoved = 0.03;  // of the FMA peak, between before and after
constexpr double kMaxSeconds = 3600;

constexpr const char* kExamples =
    "Examples:\n"
    "  heed bench                                        n 2048, d 64, one head\n"
    "  heed bench --heads 32/8 --n 1024 --d 128 --causal --threads 2\n"
    "  heed bench --n 777x1333 --d 33x50 --json\n";

struct BenchFlags {
  std::int64_t batch = 1;
  Pair<'/'> heads;
  Pair<'x'> n{2048, 2048};
  Pair<'x'> d{64, 64};
  DType dtype = DType::f32;
  bool causal = false;
  Window window;
  int threads = 1;
  double seconds = 2.0;
  bool json = false;

  template <typename Visitor>
  void visit(Visitor& flag) {
    flag.group("Cell");
    flag("--batch", batch, "B", "batch entries (default 1)");
    flag("--heads", heads, "H|H/Hk",
         "query heads and, if fewer, heads of keys and values (default 1)");
    flag("--n", n, "N|NQxNK", "queries and, if they differ, keys (default 2048)");
    flag("--d", d, "D|DxDv", "size of a head and, if it differs, of its values (default 64)");
    flag("--dtype", dtype, "TYPE", "float32 (f32, default) or float64 (f64)");
    flag("--causal", causal, "", "keys after the query's position are not seen");
    flag("--window", window, "L,R", "keys from p - L to p + R are seen; inf = no limit");
    flag.group("Running");
    flag("--threads", threads, "N", "number of threads (default 1; 0: see heed info)");
    flag("--seconds", seconds, "S", "how long to measure, at least (default 2)");
    flag("--json", json, "", "print JSON");
  }
};

struct Times {
  double median, minimum, deviation;  ///< seconds; median absolute deviation
};

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

Times times_of(const std::vector<double>& samples) {
  const double median = median_of(samples);
  std::vector<double> away;
  for (const double sample : samples) away.push_back(std::abs(sample - median));
  return {median, *std::min_element(samples.begin(), samples.end()), median_of(away)};
}

struct Row {
  Cell cell;
  Explanation explanation;
  std::vector<double> samples;
  Times times;
  double flops;
  double peak_before, peak_after;  ///< GFLOP/s, of the cell's type
  Accuracy accuracy;
  std::uint64_t hash;

  [[nodiscard]] double peak() const { return std::max(peak_before, peak_after); }
  [[nodiscard]] double speed(double seconds) const { return flops / seconds * 1e-9; }
  [[nodiscard]] double percent(double seconds) const { return 100.0 * speed(seconds) / peak(); }

  [[nodiscard]] std::vector<std::string> doubts() const {
    std::vector<std::string> all;
    if (times.median / times.minimum >= kSteady) {
      all.push_back(
          format("unstable timing: median / minimum is %.3f", times.median / times.minimum));
    }
    const double moved = std::abs(peak_after / peak_before - 1.0);
    if (moved > kPeakMoved) {
      all.push_back(format("the FMA peak moved by %.1f %% while the cell ran", 100.0 * moved));
    }
    return all;
  }
};

Cell cell_of(const BenchFlags& flags) {
  if (flags.batch < 1) throw UsageError("--batch: expected at least 1");
  if (flags.heads.first % flags.heads.second != 0) {
    throw UsageError("--heads: the number of query heads must be a multiple of that of key heads");
  }
  if (flags.dtype != DType::f32 && flags.dtype != DType::f64) {
    throw UsageError("--dtype: expected float32 or float64, got " +
                     std::string(name_of(flags.dtype)));
  }
  if (flags.threads < 0 || flags.threads > 4096) {
    throw UsageError("--threads: expected 0 to 4096, got " + std::to_string(flags.threads));
  }
  if (!(flags.seconds > 0) || flags.seconds > kMaxSeconds) {
    throw UsageError("--seconds: expected a number above 0, at most 3600");
  }
  return {.batch = flags.batch,
          .heads = flags.heads.first,
          .kv_heads = flags.heads.second,
          .queries = flags.n.first,
          .keys = flags.n.second,
          .d = flags.d.first,
          .d_v = flags.d.second,
          .dtype = flags.dtype,
          .causal = flags.causal,
          .window = flags.window};
}

Row measure(const Cell& cell, int threads, double seconds) {
  StatusLine status("bench", false);
  status.stage("preparing");
  PoolExecutor pool(threads);
  CellData data(cell);
  Row row{.cell = cell,
          .explanation = explain(view_of(data.q), view_of(data.k), view_of(data.v),
                                 options_of(cell), {.executor = &pool}),
          .samples = {},
          .times = {},
          .flops = flops_of(cell),
          .peak_before = 0,
          .peak_after = 0,
          .accuracy = {},
          .hash = 0};
  const Isa isa = row.explanation.isa;
  // A vector holds half as many float64 numbers.
  const double share = cell.dtype == DType::f64 && isa != Isa::scalar ? 0.5 : 1.0;
  status.stage("measuring");
  row.peak_before = share * measure_fma_peak(isa, pool.workers());
  row.samples = time_cell(cell, data, seconds, pool);
  row.peak_after = share * measure_fma_peak(isa, pool.workers());
  row.times = times_of(row.samples);
  status.stage("checking");
  row.accuracy = accuracy_of(cell, data, pool);
  row.hash = hash_of(data.output);
  return row;
}

Json json_of(const Row& row, const CLI::App& app, BenchFlags& flags) {
  Json json;
  json["cell"] = describe(row.cell);
  json["options"] = echo_flags(app, flags);
  json["samples"] = row.samples.size();
  json["median_seconds"] = row.times.median;
  json["minimum_seconds"] = row.times.minimum;
  json["median_absolute_deviation_seconds"] = row.times.deviation;
  json["gflops"] = row.speed(row.times.median);
  json["gflops_best"] = row.speed(row.times.minimum);
  json["percent_of_peak"] = row.percent(row.times.median);
  json["percent_of_peak_best"] = row.percent(row.times.minimum);
  json["fma_peak_gflops"] = {row.peak_before, row.peak_after};
  json["max_error"] = row.accuracy.max_error;
  json["error_against"] = row.accuracy.against;
  json["error_rows"] = row.accuracy.rows;
  json["rows"] = row.cell.queries;
  json["instruction_set"] = name_of(row.explanation.isa);
  json["path"] = row.explanation.path;
  json["tiles_computed"] = row.explanation.tiles_computed;
  json["tiles_skipped"] = row.explanation.tiles_skipped;
  json["threads"] = row.explanation.threads;
  json["compiler"] = compiler();
  json["cpu"] = cpu_model();
  json["version"] = version();
  json["hash"] = format("%016llx", static_cast<unsigned long long>(row.hash));
  json["stable"] = row.doubts().empty();
  json["doubts"] = row.doubts();
  return json;
}

std::string text_of(const Row& row) {
  const auto& explanation = row.explanation;
  std::string text = "cell     " + describe(row.cell) + "\n";
  text += format("path     %s; %s, %d thread%s\n", explanation.path.c_str(),
                 std::string(name_of(explanation.isa)).c_str(), explanation.threads,
                 explanation.threads == 1 ? "" : "s");
  text += format("time     median %s, minimum %s, deviation %s, %zu samples\n",
                 human_seconds(row.times.median).c_str(), human_seconds(row.times.minimum).c_str(),
                 human_seconds(row.times.deviation).c_str(), row.samples.size());
  text += format("speed    %.1f GFLOP/s median, %.1f best\n", row.speed(row.times.median),
                 row.speed(row.times.minimum));
  text += format("peak     %.1f %% median, %.1f %% best, of %.1f GFLOP/s measured in this run\n",
                 row.percent(row.times.median), row.percent(row.times.minimum), row.peak());
  text += format("error    %.2e at most, against %s", row.accuracy.max_error, row.accuracy.against);
  if (row.accuracy.rows < row.cell.queries) {
    text += format(", on a sample of %lld of %lld rows", static_cast<long long>(row.accuracy.rows),
                   static_cast<long long>(row.cell.queries));
  }
  text += format("\noutput   hash %016llx\n", static_cast<unsigned long long>(row.hash));
  text += "machine  " + one_line(cpu_model()) + "; " + compiler() + "; heed " +
          std::string(version()) + "\n";
  for (const auto& doubt : row.doubts()) text += "doubt    " + doubt + "\n";
  return text;
}

}  // namespace

Action add_bench(CLI::App& root) {
  auto* app = root.add_subcommand("bench", "speed and accuracy of one shape on this machine");
  app->footer(kExamples);
  auto flags = std::make_shared<BenchFlags>();
  AddFlags add(*app);
  flags->visit(add);
  return [app, flags] {
    const Row row = measure(cell_of(*flags), flags->threads, flags->seconds);
    print(flags->json ? json_of(row, *app, *flags).dump(2) + "\n" : text_of(row));
  };
}

}  // namespace heed::cli

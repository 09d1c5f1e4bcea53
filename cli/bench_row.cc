// Timing of a benchmark's cell.
#include "bench_row.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "bandwidth.h"
#include "machine.h"
#include "peak.h"
#include "progress.h"
#include "terminal.h"

namespace heed::cli {
namespace {

constexpr double kSteady = 1.05;     // median / minimum below which a timing counts as steady
constexpr double kPeakMoved = 0.03;  // of the FMA peak, between before and after
constexpr int kMaxAttempts = 3;

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
  return {median, *std::min_element(samples.begin(), samples.end()), median_of(away),
          samples.size()};
}

class Call {
 public:
  Call(const Cell& cell, CellData& data, int threads)
      : q_(operand_of(cell, data.q)),
        k_(operand_of(cell, data.k)),
        v_(operand_of(cell, data.v)),
        outputs_(outputs_of(cell, data)),
        options_(options_of(cell, data)),
        execution_{.threads = threads, .decode_order = cell.decode_order} {}

  [[nodiscard]] Explanation explanation() const {
    return explain(q_, k_, v_, options_, execution_);
  }

  void operator()() const { attention_forward(q_, k_, v_, outputs_, options_, execution_); }

  /// Seconds per call: at least three samples and at least `seconds` in all. Calls that take less
  /// than a millisecond are timed many at a time.
  [[nodiscard]] Times time(double seconds) const {
    constexpr double kShortest = 1e-3;
    constexpr std::size_t kFewest = 3;
    std::int64_t calls = 1;
    while (time_calls(calls) < kShortest) calls *= 2;
    std::vector<double> samples;
    double total = 0;
    while (total < seconds || samples.size() < kFewest) {
      const double elapsed = time_calls(calls);
      total += elapsed;
      samples.push_back(elapsed / static_cast<double>(calls));
    }
    return times_of(samples);
  }

 private:
  double time_calls(std::int64_t calls) const {
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t call = 0; call < calls; ++call) (*this)();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  ConstTensorView q_, k_, v_;
  ForwardOutputs outputs_;
  AttentionOptions options_;
  Execution execution_;
};

// GFLOP/s of the cell's type. A vector holds half as many float64 numbers.
double fma_peak(const Cell& cell, Isa isa, int threads, double seconds) {
  const double share = cell.dtype == DType::f64 && isa != Isa::scalar ? 0.5 : 1.0;
  return share * measure_fma_peak(isa, threads, seconds);
}

// A disturbed timing is taken again; the peak after one attempt is that before the next.
void time_steadily(const Call& call, double seconds, Row& row) {
  const auto peak = [&row, seconds] {
    return fma_peak(row.cell, row.explanation.isa, row.threads, seconds);
  };
  Row attempt = row;
  attempt.peak_after = peak();
  while (attempt.attempts < kMaxAttempts) {
    ++attempt.attempts;
    attempt.peak_before = attempt.peak_after;
    attempt.times = call.time(seconds);
    attempt.peak_after = peak();
    if (attempt.attempts == 1 || attempt.unsteadiness() < row.unsteadiness()) row = attempt;
    row.attempts = attempt.attempts;
    if (row.unsteadiness() < 1) return;
  }
}

}  // namespace

double Row::flops() const { return 2.0 * static_cast<double>(cell.d + cell.d_v) * pairs; }

double Row::peak() const { return std::max(peak_before, peak_after); }

double Row::percent_of_peak(double seconds) const { return 100.0 * gflops(seconds) / peak(); }

double Row::gb_per_second() const { return traffic_of(cell) / times.median * 1e-9; }

std::optional<double> Row::percent_of_read() const {
  if (read_bandwidth <= 0) return std::nullopt;
  return 100.0 * gb_per_second() / read_bandwidth;
}

double Row::unsteadiness() const {
  const double slower = times.median / times.minimum - 1.0;
  const double moved = std::abs(peak_after / peak_before - 1.0);
  return std::max(slower / (kSteady - 1.0), moved / kPeakMoved);
}

std::vector<std::string> Row::doubts() const {
  std::vector<std::string> all;
  if (times.median / times.minimum >= kSteady) {
    all.push_back(
        format("unstable timing: median / minimum is %.3f", times.median / times.minimum));
  }
  const double moved = std::abs(peak_after / peak_before - 1.0);
  if (moved >= kPeakMoved) {
    all.push_back(format("the FMA peak moved by %.1f %% while the cell ran", 100.0 * moved));
  }
  return all;
}

Bench::Bench(double seconds) : seconds_(seconds) { keep_one_heap(); }

Row Bench::measure(const Cell& cell, const std::string& place) {
  StatusLine status("bench", false);
  Row row{.cell = cell};
  PoolExecutor pool(cell.threads);
  row.threads = pool.workers();
  if (!read_bandwidths_.contains(row.threads)) {
    status.stage(place + ": read bandwidth");
    read_bandwidths_[row.threads] = measure_read_bandwidth(row.threads);
  }
  row.read_bandwidth = read_bandwidths_[row.threads];

  status.stage(place + ": preparing");
  CellData data(cell);
  const Call call(cell, data, pool.workers());
  row.explanation = call.explanation();
  row.pairs = visible_pairs(cell, data);
  status.stage(place + ": measuring");
  row.peak_bytes = memory_added_by(call);
  time_steadily(call, seconds_, row);
  status.stage(place + ": checking");
  row.accuracy = accuracy_of(cell, data, pool);
  row.hash = hash_of(cell, data.output);
  return row;
}

}  // namespace heed::cli

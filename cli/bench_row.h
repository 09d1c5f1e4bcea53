// A measured cell: times, speeds, memory, error, and what of it is in doubt.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench_accuracy.h"
#include "bench_cell.h"
#include "heed/attention.h"

namespace heed::cli {

struct Times {
  double median = 0, minimum = 0, deviation = 0;  ///< seconds; median absolute deviation
  std::size_t samples = 0;
};

struct Row {
  Cell cell{};
  Explanation explanation{};
  int threads = 1;   ///< workers that the call could have
  int attempts = 0;  ///< how often the cell was timed; the steadiest counts
  Times times{};
  double pairs = 0;
  double peak_before = 0, peak_after = 0;  ///< FMA peak, GFLOP/s, of the cell's type
  double read_bandwidth = 0;               ///< GB/s; 0: not known
  std::optional<std::int64_t> peak_bytes{};
  Accuracy accuracy{};
  std::uint64_t hash = 0;

  /// 2 (d + d_v) per visible pair: a multiply-add of the scores and one of the output.
  [[nodiscard]] double flops() const;
  [[nodiscard]] double peak() const;
  [[nodiscard]] double gflops(double seconds) const { return flops() / seconds * 1e-9; }
  [[nodiscard]] double percent_of_peak(double seconds) const;
  [[nodiscard]] double gb_per_second() const;
  [[nodiscard]] std::optional<double> percent_of_read() const;

  /// Below 1 the timing counts as steady.
  [[nodiscard]] double unsteadiness() const;
  /// Why a reader should not lean on the timing; empty if it is steady.
  [[nodiscard]] std::vector<std::string> doubts() const;
};

/// Measures cells one after the other, and what the machine can do beside them.
class Bench {
 public:
  explicit Bench(double seconds);

  /// `place` is what the status line says, such as "cell 2 of 8".
  [[nodiscard]] Row measure(const Cell& cell, const std::string& place);

 private:
  double seconds_;                         // per cell, at least
  std::map<int, double> read_bandwidths_;  // by threads: slow to measure, and the same all along
};

}  // namespace heed::cli

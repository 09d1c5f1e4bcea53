// One cell of a benchmark: its shape, its values, how long it takes and how exact it is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heed/attention.h"
#include "heed/io.h"

namespace heed::cli {

struct Cell {
  std::int64_t batch = 1, heads = 1, kv_heads = 1;
  std::int64_t queries = 1, keys = 1;
  std::int64_t d = 1, d_v = 1;
  DType dtype = DType::f32;
  bool causal = false;
  Window window;
};

/// "float32, batch 1, heads 32/8, n 1024, d 128, causal"
[[nodiscard]] std::string describe(const Cell& cell);

[[nodiscard]] AttentionOptions options_of(const Cell& cell);

/// Pairs of query and key that the mask lets see each other, all heads and batch entries together.
[[nodiscard]] double visible_pairs(const Cell& cell);

/// 2 (d + d_v) per visible pair: a multiply-add of the scores and one of the output.
[[nodiscard]] double flops_of(const Cell& cell);

/// q, k and v of one cell: about normal, the same on every machine.
struct CellData {
  explicit CellData(const Cell& cell);
  Tensor q, k, v, output;
};

/// Seconds per call, at least three samples and at least `seconds` in all. Calls that take less than
/// a millisecond are timed many at a time.
[[nodiscard]] std::vector<double> time_cell(const Cell& cell, CellData& data, double seconds,
                                            Executor& executor);

struct Accuracy {
  double max_error = 0;   ///< of the output's elements, absolute
  std::int64_t rows = 0;  ///< query rows that were compared, of each head
  const char* against = "";
};

/// Compares data.output with attention on the same values in float64 (a float64 cell: in long
/// double). Long cells are compared on blocks of rows at the start, in the middle and at the end.
[[nodiscard]] Accuracy accuracy_of(const Cell& cell, const CellData& data, Executor& executor);

/// FNV-1a of the output's bytes: two runs with equal hashes gave equal bits.
[[nodiscard]] std::uint64_t hash_of(const Tensor& tensor);

}  // namespace heed::cli

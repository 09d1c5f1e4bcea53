// One cell of a benchmark: what is computed, how much work that is, and on what values.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "flag_values.h"
#include "heed/attention.h"
#include "heed/inspect.h"
#include "heed/io.h"

namespace heed::cli {

/// Which keys a cell hides, and by which of the library's means.
enum class MaskKind : std::uint8_t {
  none,
  causal,
  window,         ///< Window
  causal_window,  ///< causal and Window.left
  keep,           ///< keep [Tq, Tk], about half of it true, at least one key in each row
  bias,           ///< bias [Tq, Tk] of normal values, of the cell's type; hides nothing
  padded          ///< key_lengths: the first half of the keys, in each batch entry
};

struct CellMask {
  MaskKind kind = MaskKind::none;
  Window window{};
};

/// "none", "causal", "window=L:R", "causal-window=L", "keep", "bias", "padded"
void parse(const std::string& word, CellMask& value);
[[nodiscard]] std::string name_of(const CellMask& mask);

struct Cell {
  std::int64_t batch = 1, heads = 1, kv_heads = 1;
  std::int64_t queries = 1, keys = 1;
  std::int64_t d = 1, d_v = 1;
  DType dtype = DType::f32;
  CellMask mask{};
  Layout layout = Layout::bhtd;  ///< of q, k, v and the output in memory
  DecodeOrder decode_order = DecodeOrder::of_prefill;
  bool weights = false;     ///< the weights are returned too
  bool statistics = false;  ///< all statistics of the rows are returned too
  int threads = 1;          ///< 0: default_threads()
};

/// "8", or "8x16" where the two differ.
[[nodiscard]] std::string pair_text(std::int64_t a, std::int64_t b, char between);

/// "float32, batch 1, heads 32/8, n 1024, d 128, causal"
[[nodiscard]] std::string describe(const Cell& cell);

/// Keys that a query row may see, were there no keep mask: begin == end if there are none.
struct KeyRange {
  std::int64_t begin, end;
};
[[nodiscard]] KeyRange keys_of(const Cell& cell, std::int64_t row);

/// Bytes of q, k, v that some query needs and of the output, each counted once.
[[nodiscard]] double traffic_of(const Cell& cell);

/// Bytes that measuring and checking the cell take, about.
[[nodiscard]] double memory_of(const Cell& cell);

/// The tensors of one cell, as they lie in memory: about normal, the same on every machine and in
/// every layout.
struct CellData {
  explicit CellData(const Cell& cell);
  Tensor q, k, v, keep, bias, output, weights;
  std::array<Tensor, 10> rows;  ///< behind the views of `statistics`
  RowStatistics statistics;
};

/// q, k, v or output as [B, H, T, D], whatever its layout.
[[nodiscard]] ConstTensorView operand_of(const Cell& cell, const Tensor& tensor);
[[nodiscard]] TensorView operand_of(const Cell& cell, Tensor& tensor);

[[nodiscard]] AttentionOptions options_of(const Cell& cell, const CellData& data);
[[nodiscard]] ForwardOutputs outputs_of(const Cell& cell, CellData& data);

/// Pairs of query and key that the mask lets see each other, all heads and batch entries together.
[[nodiscard]] double visible_pairs(const Cell& cell, const CellData& data);

/// The type of what is float32 beside 16-bit tensors: weights and statistics.
[[nodiscard]] constexpr DType wide_of(DType dtype) {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}

/// An element of a float32 or float64 tensor, `offset` elements from its start.
[[nodiscard]] double real_at(const ConstTensorView& tensor, std::int64_t offset);

/// FNV-1a of the output's bytes in the order [B, H, T, D]: equal hashes, equal bits.
[[nodiscard]] std::uint64_t hash_of(const Cell& cell, const Tensor& output);

}  // namespace heed::cli

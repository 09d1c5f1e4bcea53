// One call of attention, checked: sizes, strides and options with nothing left to decide.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "attention/row_statistics.h"
#include "heed/attention.h"

namespace heed {

/// A tensor over the axes batch, head, row, column; broadcast axes have stride 0 (in elements).
struct View4 {
  std::byte* data = nullptr;  ///< never written through where the caller gave a ConstTensorView
  DType dtype = DType::f32;
  bool present = false;
  std::array<std::int64_t, 4> stride{};

  [[nodiscard]] std::byte* at(std::int64_t b, std::int64_t h, std::int64_t i,
                              std::int64_t j = 0) const {
    const std::int64_t offset = b * stride[0] + h * stride[1] + i * stride[2] + j * stride[3];
    return data + offset * static_cast<std::int64_t>(size_of(dtype));
  }
};

struct Problem {
  const char* function;  ///< for messages
  DType element;         ///< type of q, k, v, output, and of their gradients and tangents
  DType dtype;           ///< that is computed in: of lse, weights, statistics and all else
  std::int64_t batches, heads, kv_heads, queries, keys, head_size, value_size;
  View4 q, k, v;
  View4 output, lse, weights;
  View4 bias, keep, drop;
  std::array<View4, kStatisticFields.size()> statistics;  ///< in the order of kStatisticFields
  bool counting = false;                                  ///< some of them are asked for
  std::uint32_t drop_below = 0;  ///< draws of 16 bits below are dropped weights; 0: no dropout
  double keep_factor = 1;        ///< of the weights that are kept
  AttentionOptions options;  ///< scalars, one-or-each values, score_mod; views in it are checked

  /// Query heads that read one KV head.
  [[nodiscard]] std::int64_t group() const { return kv_heads == 0 ? 0 : heads / kv_heads; }
  /// Query rows that share the keys of one (batch entry, KV head): row r is query r % queries of
  /// query head r / queries of the group.
  [[nodiscard]] std::int64_t rows() const { return group() * queries; }
  [[nodiscard]] bool dense_mask() const { return keep.present || drop.present; }
};

}  // namespace heed

// A call of attention between rows: what it is made of, and its memory.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "attention/carver.h"
#include "attention/checker.h"
#include "heed/modules.h"
#include "modules/rows.h"

namespace heed {

/// A call, checked: sizes, rows, and options as attention will see them.
struct AttendingCall {
  std::int64_t batches = 0, queries = 0, keys = 0;
  Rows x, context, values;
  std::vector<double> scales;  ///< of the heads, where there is a temperature
  AttentionOptions options;
};

/// Throws heed::Error unless the rows fit the module; options are left to attention.
[[nodiscard]] AttendingCall check_attending(const Checker& check,
                                            const MultiHeadAttentionOptions& o,
                                            std::span<const float> temperature,
                                            const AttendingRows& rows,
                                            const AttentionOptions& options);

/// Attention's tensors of one call, as views of rows of all heads.
struct HeadViews {
  TensorView q, k, v, attended, lse;
};

struct Buffers {
  float *q, *k, *v, *attended, *lse;
};

[[nodiscard]] HeadViews views_of(const MultiHeadAttentionOptions& o, const AttendingCall& c,
                                 const Buffers& at);

/// Elements of each buffer, in their order.
[[nodiscard]] std::array<std::int64_t, 5> sizes_of(const char* function,
                                                   const MultiHeadAttentionOptions& o,
                                                   const AttendingCall& c);

[[nodiscard]] Buffers carve_buffers(Carver& carver, const std::array<std::int64_t, 5>& sizes);
[[nodiscard]] Buffers buffers_in(SavedAttention& saved);
[[nodiscard]] std::array<std::vector<float>*, 5> vectors_of(SavedAttention& saved);

}  // namespace heed

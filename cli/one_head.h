// Tensors and options with four axes, and the part of them that belongs to one head.
#pragma once

#include <cstdint>

#include "heed/attention.h"

namespace heed::cli {

/// [T, X] as [1, 1, T, X], [B, T, X] as [B, 1, T, X]; broadcasting views of fewer axes stay.
[[nodiscard]] ConstTensorView with_four_axes(const ConstTensorView& view);

/// q, k and options of inputs of any rank, with four axes.
struct Call {
  ConstTensorView q, k;
  AttentionOptions options;

  [[nodiscard]] std::int64_t layers() const { return q.shape[0]; }
  [[nodiscard]] std::int64_t heads() const { return q.shape[1]; }
  [[nodiscard]] std::int64_t queries() const { return q.shape[2]; }
  [[nodiscard]] std::int64_t keys() const { return k.shape[2]; }
  [[nodiscard]] std::int64_t head_size() const { return q.shape[3]; }
};
[[nodiscard]] Call call_of(const ConstTensorView& q, const ConstTensorView& k,
                           const AttentionOptions& options);

/// One head of a call, as a call of its own: [1, 1, T, D].
[[nodiscard]] Call one_head(const Call& call, std::int64_t layer, std::int64_t head);

/// A head without what is in q and k: its scores are its bias, and -inf where a row may not see a
/// key.
[[nodiscard]] Call mask_alone(const Call& head);

/// The view of one entry of its first two axes.
[[nodiscard]] ConstTensorView entry_of(const ConstTensorView& view, std::int64_t layer,
                                       std::int64_t head);

/// An element of a view of float32 or float64.
[[nodiscard]] double element(const ConstTensorView& view, std::int64_t layer, std::int64_t head,
                             std::int64_t row, std::int64_t column);

/// A layer's number of a setting that all share or each has; `otherwise` where it is not set.
[[nodiscard]] std::int64_t number_of(const PerBatch& setting, std::int64_t layer,
                                     std::int64_t otherwise);

/// The position of a layer's first query.
[[nodiscard]] std::int64_t query_start(const Call& call, std::int64_t layer);

}  // namespace heed::cli

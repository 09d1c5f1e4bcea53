// A tensor seen as rows of its last axis, wherever they lie.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "attention/checker.h"
#include "attention/staging.h"
#include "kernels/order.h"

namespace heed {

/// float32 rows [count][size] over up to three axes before the last one.
struct Rows {
  View4 view{};
  std::array<std::int64_t, 3> sizes{1, 1, 1};
  std::int64_t count = 0;
  std::int64_t size = 0;

  [[nodiscard]] std::byte* at(std::int64_t n, std::int64_t column = 0) const {
    const std::int64_t outer = n / sizes[2];
    return view.at(outer / sizes[1], outer % sizes[1], n % sizes[2], column);
  }
  /// Elements from each row to the next, where that is one number.
  [[nodiscard]] std::optional<std::int64_t> step() const {
    const auto& s = view.stride;
    if (sizes[0] > 1 && s[0] != sizes[1] * sizes[2] * s[2]) return {};
    if (sizes[1] > 1 && s[1] != sizes[2] * s[2]) return {};
    return s[2];
  }
};

/// The rows of a view of rank 2 to 4, checked before.
inline Rows rows_of(const ConstTensorView& tensor) {
  Rows rows{Checker::canonical(tensor, tensor.rank)};
  for (int axis = 0; axis + 1 < tensor.rank; ++axis) {
    rows.sizes[canonical_axis(tensor.rank, axis)] = tensor.shape[static_cast<std::size_t>(axis)];
  }
  rows.count = rows.sizes[0] * rows.sizes[1] * rows.sizes[2];
  rows.size = tensor.shape[static_cast<std::size_t>(tensor.rank - 1)];
  return rows;
}

/// Dense rows.
inline Rows rows_of(float* data, std::int64_t count, std::int64_t size) {
  return rows_of(view(data, {count, size}));
}

/// Rows [begin, end) of some.
struct RowRange {
  std::int64_t begin, end;
};

/// Pointers to the columns [column, column + size) of some rows: where they are, or as copies.
class RowPointers {
 public:
  /// `copies`: room for rows of `stride` elements, used where rows cannot be read in place.
  RowPointers(float* copies, std::int64_t stride) : copies_(copies), stride_(stride) {}

  const float* const* read(const Rows& rows, std::int64_t first, int count, std::int64_t column,
                           std::int64_t size) {
    const bool in_place = usable_in_place<float>(rows.view);
    for (int r = 0; r < count; ++r) {
      const std::byte* const at = rows.at(first + r, column);
      float* const copy = copies_ + r * stride_;
      if (!in_place) gather_row(at, rows.view.stride[3], size, copy);
      row_[r] = in_place ? reinterpret_cast<const float*>(at) : copy;
    }
    return row_;
  }

 private:
  float* copies_;
  std::int64_t stride_;
  const float* row_[kernels::kMaxTileRows] = {};
};

}  // namespace heed

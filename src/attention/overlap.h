// Do views share memory?
#pragma once

#include "heed/tensor.h"

namespace heed {

/// True if two elements of the view may be one: an exact answer for sorted, nested strides, and
/// "may" for layouts that interleave in more intricate ways.
[[nodiscard]] bool may_overlap_itself(const ConstTensorView& view);

/// True if the views may share a byte. Columns of one buffer, as in packed q | k | v | output rows,
/// are told apart; more intricate interleaving counts as sharing.
[[nodiscard]] bool may_overlap(const ConstTensorView& a, const ConstTensorView& b);

}  // namespace heed

// Merging: attention over parts of the keys, computed apart, becomes attention over all of them.
#pragma once

#include <span>

#include "heed/attention.h"
#include "heed/export.h"

namespace heed {

/// What attention_forward gave for some of the keys: output of any floating type, lse of float32,
/// or of float64 with such an output.
struct AttentionPart {
  ConstTensorView output;  ///< [B, H, Tq, Dv]
  ConstTensorView lse;  ///< [B, H, Tq]; -inf: the part is empty, and its output is never looked at
};

/// Where the result goes, in the parts' type.
struct MergeOutputs {
  TensorView output;  ///< [B, H, Tq, Dv]
  TensorView lse{};   ///< [B, H, Tq], optional
};

/// The output and lse of the same queries over the keys of all parts, row by row:
///
///     lse = m + ln l,  m = max lse_p,  l = sum_p e^(lse_p - m)
///     O   = sum_p e^(lse_p - m) / l  O_p
///
/// Sums run over the parts in the order given. A part that is empty for a row (lse_p = -inf)
/// changes no bit of it; a row with one part that is not empty has that part's bits (but an lse of
/// -0, which no call writes, becomes +0); one with none gets output 0, lse -inf. A NaN in lse_p, or
/// an infinite one, makes the row NaN; one in O_p reaches its own column.
///
/// Parts must not share keys, and all have the rank of the first, 2 to 4. A sink belongs to one
/// part only. The result is close to one call's over all keys (docs/numerics.md), not the same
/// bits: a call hands on more than output and lse from split to split. Same bits for any number of
/// threads and executors, and on every instruction set.
///
/// Throws heed::Error before anything is written if an argument does not fit.
HEED_API void merge(std::span<const AttentionPart> parts, const MergeOutputs& merged,
                    const Execution& execution = {});

/// The same for two parts.
HEED_API void merge(const ConstTensorView& output_a, const ConstTensorView& lse_a,
                    const ConstTensorView& output_b, const ConstTensorView& lse_b,
                    const MergeOutputs& merged, const Execution& execution = {});

}  // namespace heed

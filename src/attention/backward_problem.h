// One call of the backward pass, checked.
#pragma once

#include <cstdint>

#include "attention/checker.h"
#include "attention/problem.h"
#include "heed/backward.h"

namespace heed {

struct BackwardProblem {
  Problem forward;  ///< `output` and `lse` of it are inputs here
  View4 d_output;
  View4 dq, dk, dv;
  View4 dbias;                         ///< stride 0 along axes that are summed over
  std::array<std::int64_t, 4> bias{};  ///< sizes of dbias
  View4 dscale, dalibi, dsinks;        ///< one axis, the last
  View4 ds_norms;                      ///< [B, H, Tq]
  bool one_scale = false;              ///< dscale is one number for all heads

  /// dQ before its factors: also what the gradient of the scale is made of.
  [[nodiscard]] bool wants_dq() const { return dq.present || dscale.present; }
  [[nodiscard]] bool wants_scores() const {
    return wants_dq() || dk.present || dalibi.present || dbias.present || ds_norms.present;
  }
  /// Anything that takes tiles of scores.
  [[nodiscard]] bool wants_tiles() const { return wants_scores() || dv.present; }
  /// What a row has, beside its place in dK and dV.
  [[nodiscard]] bool wants_rows() const {
    return wants_dq() || dalibi.present || dsinks.present || ds_norms.present;
  }
  /// Whether a KV head gives or gets anything. Where none does, as without elements, no memory
  /// bounds how many there are.
  [[nodiscard]] bool has_work() const {
    const auto any = [](const View4& gradient, std::int64_t size) {
      return gradient.present && size > 0;
    };
    const bool rows = forward.rows() > 0;
    const bool of_rows = any(dq, forward.head_size) || dscale.present || dalibi.present ||
                         dsinks.present || ds_norms.present;
    const bool of_keys = any(dk, forward.head_size) || any(dv, forward.value_size);
    return (rows && of_rows) || (forward.keys > 0 && (of_keys || (rows && dbias.present)));
  }
  /// True if dbias is summed along this axis.
  [[nodiscard]] bool sums(std::size_t axis) const {
    const std::array<std::int64_t, 4> sizes{forward.batches, forward.heads, forward.queries,
                                            forward.keys};
    // Packed sequences have blocks of it to themselves, unless it has neither rows nor columns.
    const bool apart = axis == 0 && dbias.first_row != nullptr && (bias[2] > 1 || bias[3] > 1);
    return dbias.present && bias[axis] == 1 && sizes[axis] > 1 && !apart;
  }
  [[nodiscard]] bool sums_dbias() const { return sums(0) || sums(1) || sums(2) || sums(3); }
};

/// Checks a backward call and resolves it. Throws heed::Error.
[[nodiscard]] BackwardProblem check_backward(const Checker& check, const BackwardInputs& inputs,
                                             const Gradients& gradients,
                                             const AttentionOptions& options);

}  // namespace heed

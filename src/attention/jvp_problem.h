// One call of the forward-mode derivative, checked.
#pragma once

#include "attention/problem.h"
#include "heed/jvp.h"

namespace heed {

struct JvpProblem {
  Problem forward;          ///< `output` and `lse` of it are inputs here
  View4 dq, dk, dv, dbias;  ///< tangents
  View4 d_output, d_lse;    ///< where derivatives go

  /// An element is to be computed.
  [[nodiscard]] bool asks() const {
    return d_lse.present || (d_output.present && forward.value_size > 0);
  }
  /// Scores move.
  [[nodiscard]] bool moves_scores() const { return dq.present || dk.present || dbias.present; }
};

/// Checks a call and resolves it. Throws heed::Error.
[[nodiscard]] JvpProblem check_jvp(const JvpInputs& inputs, const Tangents& tangents,
                                   const JvpOutputs& outputs, const AttentionOptions& options);

}  // namespace heed

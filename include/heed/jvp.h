// Forward-mode derivative of attention: how the output moves when inputs move.
#pragma once

#include "heed/attention.h"
#include "heed/export.h"

namespace heed {

/// What a forward call had and gave; all have q's rank and, but for lse, q's type.
struct JvpInputs {
  ConstTensorView q, k, v;
  ConstTensorView output;  ///< [B, H, Tq, Dv], of attention_forward with the same options
  ConstTensorView lse;     ///< [B, H, Tq], of the same call
};

/// Directions in which inputs move. One that is not given does not move, and costs nothing; strides
/// of 0 are allowed.
struct Tangents {
  ConstTensorView q{};  ///< [B, H, Tq, D], of q's type
  ConstTensorView k{};  ///< [B, Hk, Tk, D]
  ConstTensorView v{};  ///< [B, Hk, Tk, Dv]
  ConstTensorView
      bias{};  ///< any float type, broadcasts to [B, H, Tq, Tk]; options.bias may be absent
};

/// Where the derivatives go, in the types of output and lse; both are optional.
struct JvpOutputs {
  TensorView output{};  ///< [B, H, Tq, Dv]
  TensorView lse{};     ///< [B, H, Tq]
};

/// The Jacobian of (output, lse), applied to tangents, in O(Tq + Tk) memory. With a stroke for
/// what moves, P = exp(S - lse):
///
///     t' = scale * (q'_i . k_j + q_i . k'_j)      with normalize_qk of the vectors of length 1
///     t' = t' (1 - (t / softcap)^2)
///     t' = t' + bias'_ij
///     S' = t' f'(t)                               f = score_mod
///
///     lse'_i = sum_j P_ij S'_ij
///     O'_i   = sum_j P_ij S'_ij v_j + sum_j P_ij v'_j - lse'_i O_i       both P under dropout
///
/// Scores are computed again, P from lse. Where the mask hides a place, S' is 0, whatever stands
/// there; a row that sees no key moves nowhere. Options do not move. options.score_mod needs its
/// derivative where q, k or bias move.
///
/// Same bits for any number of threads and executors, and on every instruction set.
///
/// Throws heed::Error before anything is written if an argument does not fit; ErrorKind::memory if
/// scratch memory cannot be had.
HEED_API void attention_jvp(const JvpInputs& inputs, const Tangents& tangents,
                            const JvpOutputs& outputs, const AttentionOptions& options = {},
                            const Execution& execution = {});

}  // namespace heed

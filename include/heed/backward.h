// Gradients of attention: the backward pass.
#pragma once

#include "heed/attention.h"
#include "heed/export.h"

namespace heed {

/// What a forward call had and gave, and the gradient of the loss with respect to its output. All
/// have q's rank and, but for lse, q's type; d_output may have strides of 0, as an expanded
/// gradient has.
struct BackwardInputs {
  ConstTensorView q, k, v;
  ConstTensorView output;    ///< [B, H, Tq, Dv], of attention_forward with the same options
  ConstTensorView lse;       ///< [B, H, Tq], of the same call
  ConstTensorView d_output;  ///< [B, H, Tq, Dv]: dO
};

/// Where gradients go: dq, dk and dv in q's type, all else in the type of lse. All are optional;
/// one that is not given costs nothing, and changes no bit of the others.
struct Gradients {
  TensorView dq{};      ///< [B, H, Tq, D]
  TensorView dk{};      ///< [B, Hk, Tk, D]: summed over the query heads that read a KV head
  TensorView dv{};      ///< [B, Hk, Tk, Dv]
  TensorView dscale{};  ///< [H], or [1]: the sum of these; 1 / scale is the temperature
  TensorView dalibi{};  ///< [H], with options.alibi
  TensorView dbias{};  ///< the shape of options.bias: summed along the axes that it broadcasts over
  TensorView dsinks{};    ///< [H], with options.sinks
  TensorView ds_norms{};  ///< [B, H, Tq]: |dS_i|, how much of the gradient reaches a row's scores
};

/// Gradients of a loss whose gradient with respect to O is dO, in O(Tq + Tk) memory: scores are
/// computed again, P from lse.
///
///     D_i = sum_x dO_ix O_ix   P = exp(S - lse)              dV = P' dO
///     dP  = dO V'              dS = P (dP - D), by element   dsinks = -sum_i exp(sink - lse_i) D_i
///     dropout: P in dV and dP in dS are 0 where the weight was dropped, else divided by 1 - p
///
///     ds_norms = sqrt(sum_j dS_ij^2), of this dS: of the final scores
///
///     from dS backwards through the order of AttentionOptions, by element:
///       score_mod  dS = dS f'(t)
///       bias       dbias = dS
///       alibi      dalibi = -sum dS |p - j|
///       softcap    dS = dS (1 - (t / softcap)^2)
///       scale      dscale = sum dS (q . k)      dQ = scale dS K      dK = scale dS' Q
///       normalize_qk, for each row x of q and k with the gradient g of x / |x|:
///                  dx = (g - x (x . g) / |x|^2) / |x|, and 0 for a row of zeros
///
/// Where the mask hides a place, dS is 0: a row that sees no key gives no gradient and gets 0, as
/// does a key that no row sees, whatever NaN or infinity stands there. A NaN in row i of q, output,
/// lse or d_output reaches dQ_i, the dK of keys that i may see, and sums over rows; one of q or lse
/// also their dV, but for weights that are dropped, and one of d_output its column of dV. dV takes
/// nothing from output, a sink whose weight is 0 nothing from its row.
///
/// Squares of dS are added up in the type of ds_norms: in float32 a dS below 1e-19 loses digits in
/// ds_norms, one below 1e-23 counts as 0, and norms beyond 1.8e19 are infinite; in float64 1e-154,
/// 1e-162 and 1.3e154.
///
/// Gradients of options are for parameters of any value that the option may have; q, k, v, options
/// and lengths are those of the forward call. options.score_mod needs its derivative.
///
/// Same bits for any number of threads and executors, and from run to run.
///
/// Throws heed::Error before anything is written if an argument does not fit; ErrorKind::memory if
/// scratch memory cannot be had. Beside scratch of fixed size for each worker it takes memory for
/// dQ of some KV heads, and for dbias, in twice the precision, where it broadcasts.
HEED_API void attention_backward(const BackwardInputs& inputs, const Gradients& gradients,
                                 const AttentionOptions& options = {},
                                 const Execution& execution = {});

}  // namespace heed

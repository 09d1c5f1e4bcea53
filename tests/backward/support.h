// Running the backward pass, and the comparison with the oracle.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "forward/cases.h"
#include "forward/support.h"
#include "heed/backward.h"
#include "oracle/gradients.h"

namespace heed_test {

/// Which gradients are asked for; those of options that are not set are not there to ask for.
struct Wish {
  bool dq = true, dk = true, dv = true, dscale = true, dalibi = true, dbias = true, dsinks = true;
  bool ds_norms = true;
  bool one_scale = false;  // dscale for all heads together
  Layout layout = Layout::bhtd;

  static Wish none() { return {false, false, false, false, false, false, false, false}; }
};

template <typename T>
struct Gradients {
  Tensor<T> dq, dk, dv, dbias;       // dbias has the shape of bias
  Tensor<T> dscale, dalibi, dsinks;  // [1, 1, 1, H]
  Tensor<T> ds_norms;                // [B, H, Tq, 1]
};

/// f(gradient, name) for each.
template <typename G, typename F>
void each_gradient(G& g, const F& f) {
  f(g.dq, "dq");
  f(g.dk, "dk");
  f(g.dv, "dv");
  f(g.dbias, "dbias");
  f(g.dscale, "dscale");
  f(g.dalibi, "dalibi");
  f(g.dsinks, "dsinks");
  f(g.ds_norms, "ds_norms");
}

/// Normal numbers of the output's shape.
template <typename T>
Tensor<T> draw_d_output(const Call<T>& call, std::uint64_t seed, Layout layout = Layout::bhtd);

/// As many of the last axes as `rank` says: a bias may be passed without its leading axes of length
/// 1.
heed::TensorView without_leading_axes(heed::TensorView view, int rank);

/// Forward and backward. Gradients are 0xFF before; fails the test if an element was not written,
/// or anything beside them was.
template <typename T>
Gradients<T> run_backward(const Call<T>& call, const Tensor<T>& d_output, const Wish& wish = {},
                          const heed::Execution& execution = {});

/// The same on an output and lse of somebody else.
template <typename T>
Gradients<T> run_backward(const Call<T>& call, const Result<T>& forward, const Tensor<T>& d_output,
                          const Wish& wish = {}, const heed::Execution& execution = {});

/// Bit for bit, of what both have.
template <typename T>
testing::AssertionResult same_bits(const Gradients<T>& a, const Gradients<T>& b);

/// What becomes of an element whose bound is infinite, as where a score is too large for one: no
/// case of a list has any, so there it is a failure; where problems may be anything it must not be
/// NaN, nor infinite, but where a scale is too large for a square: dq and dk are multiplied by it.
enum class Unbounded { fails, is_finite };

/// Every element within the oracle's bound, and zero positive.
template <typename T>
testing::AssertionResult within_bounds(const Call<T>& call, const Gradients<T>& got,
                                       const oracle::Gradients& truth,
                                       Unbounded unbounded = Unbounded::fails);

/// The largest error that within_bounds has seen, as a share of its bound, by the gradient's name.
template <typename T>
std::map<std::string, double>& worst_shares();

/// Every element within `tolerance` times the largest of its tensor (at least 1); where that is 0
/// by cancellation, of what cancels.
testing::AssertionResult near_steps(const Call<double>& call, const Gradients<double>& got,
                                    const oracle::Gradients& truth, double tolerance);

/// The oracle's dbias, summed along the axes that bias broadcasts over.
template <typename T>
oracle::Truth summed_dbias(const Call<T>& call, const oracle::Truth& full);

/// The oracle, by the formula.
template <typename T>
oracle::Gradients true_gradients(const Call<T>& call, const Tensor<T>& d_output);

}  // namespace heed_test

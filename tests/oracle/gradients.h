// The oracle of gradients: by complex steps, which know no derivative, and by the formula in twice
// the precision, with how far off one may be.
#pragma once

#include <vector>

#include "attention.h"

namespace oracle {

/// Gradients of sum dO . O. dbias is of [batch, heads, queries, keys]: sums over what broadcasts
/// are the caller's. dscale, dalibi and dsinks have one number per head. ds_norms are of the final
/// scores' gradient, one per row; complex steps leave them out.
struct Gradients {
  Truth dq, dk, dv, dscale, dalibi, dbias, dsinks, ds_norms;
};

/// Which ones a caller wants; dbias takes as many elements as there are scores.
struct GradientAsk {
  bool dbias = false;
};

/// f(x + ih) = f(x) + ih f'(x) - h^2 ...: with h = 1e-30 the imaginary part is h f'(x) to the last
/// bit, and no difference is taken. Every number that a gradient is asked for takes a step of its
/// own, and attention is computed again: O((Tk (D + Dv))^2) for each row. Bounds are left empty.
Gradients gradients_by_complex_steps(const Problem<double>& problem, const View<double>& d_output,
                                     const GradientAsk& ask);

/// The formula of the backward pass, in Wide<T>. A bound is infinite where it says nothing: a score
/// whose own error is large.
template <typename T>
Gradients gradients(const Problem<T>& problem, const View<T>& d_output, const GradientAsk& ask);

}  // namespace oracle

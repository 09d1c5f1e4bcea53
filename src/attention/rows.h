// Small things that passes over rows share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/order.h"

namespace heed {

/// One number for every row of a tile.
template <typename Real>
struct Filled {
  explicit Filled(Real number) { std::fill_n(of, kernels::kMaxTileRows, number); }
  Real of[kernels::kMaxTileRows];
};

/// The Jacobian of x / |x|, which is symmetric, on g: g = (g - x (x . g) / |x|^2) / |x|. What lies
/// along x is lost. 0 for a row of zeros, as the squares of a shorter or longer one may be, and
/// where g is 0.
template <typename Real>
void tangent_of_row(const Real* x, std::int64_t size, Real* g) {
  Real squares = 0;
  Real along = 0;
  bool zeros = true;
  for (std::int64_t i = 0; i < size; ++i) {
    squares += x[i] * x[i];
    along += x[i] * g[i];
    zeros &= g[i] == 0;
  }
  if (zeros) return;
  const Real norm = squares == 0 ? Real{0} : Real{1} / std::sqrt(squares);
  if (norm == 0) along = 0;  // squares overflowed: along may have, too, and 0 * inf is NaN
  for (std::int64_t i = 0; i < size; ++i) {
    g[i] = (g[i] - x[i] * norm * (along * norm)) * norm + Real{0};
  }
}

}  // namespace heed

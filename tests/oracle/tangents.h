// The oracle of forward-mode derivatives: by one complex step along all tangents, which knows no
// derivative, and by the formula in twice the precision, with how far off one may be.
#pragma once

#include "attention.h"

namespace oracle {

/// Directions; what has no data does not move. bias is of [batch, heads, queries, keys].
template <typename T>
struct Directions {
  View<T> q{}, k{}, v{};
  View<double> bias{};
};

struct Moved {
  Truth o;    // [batch, heads, queries, value_size]
  Truth lse;  // [batch, heads, queries]
};

/// f(x + ih u) = f(x) + ih f'(x) u - h^2 ...: the imaginary part over h, to the last bit. No
/// bounds.
Moved moved_by_complex_step(const Problem<double>& problem, const Directions<double>& along);

/// The formula, in Wide<T>.
template <typename T>
Moved moved(const Problem<T>& problem, const Directions<T>& along);

}  // namespace oracle

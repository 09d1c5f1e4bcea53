// Marsaglia's polar method, in the order of operations of NumPy's legacy_gauss.
#include "normals.h"

#include <cmath>

namespace heed::cli {

// 53 bits of two words: legacy_double.
double NumpyNormals::uniform() {
  const auto high = static_cast<double>(bits_() >> 5U);
  const auto low = static_cast<double>(bits_() >> 6U);
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

// A pair of values comes of each point in the circle: the second first, the other one kept.
double NumpyNormals::next() {
  if (has_kept_) {
    has_kept_ = false;
    return kept_;
  }
  double x = 0;
  double y = 0;
  double square = 0;
  do {
    x = 2.0 * uniform() - 1.0;
    y = 2.0 * uniform() - 1.0;
    square = x * x + y * y;
  } while (square >= 1.0 || square == 0.0);
  const double factor = std::sqrt(-2.0 * std::log(square) / square);
  kept_ = factor * x;
  has_kept_ = true;
  return factor * y;
}

}  // namespace heed::cli

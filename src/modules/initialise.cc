// Numbers that weights begin with: drawn by counter, without a function of libm that might differ.
#include <cmath>
#include <cstdint>

#include "attention/checker.h"
#include "heed/modules.h"
#include "modules/checks.h"
#include "modules/random.h"
#include "runtime/float_environment.h"

namespace heed {
namespace {

/// Within (0, 1), the middle of one of 2^24 parts.
double uniform(std::uint64_t seed, std::uint64_t counter) {
  return (static_cast<double>(random_bits(seed, counter) >> 40U) + 0.5) * 0x1p-24;
}

/// Mean 0, variance 1.
double normal(std::uint64_t seed, std::uint64_t index) {
  double sum = -6.0;
  for (std::uint64_t i = 0; i < 12; ++i) sum += uniform(seed, 12 * index + i);
  return sum;
}

double deviation_of(const Initialisation& initialisation, double outputs, double inputs) {
  switch (initialisation.draw) {
    case Draw::xavier_normal:
      return std::sqrt(2 / (inputs + outputs));
    case Draw::inverse_sqrt_inputs:
      return 1 / std::sqrt(inputs);
    default:
      return initialisation.deviation;
  }
}

}  // namespace

void initialise(std::span<float> weight, std::int64_t outputs, std::int64_t inputs,
                const Initialisation& initialisation) {
  const runtime::DefaultFloatEnvironment environment;
  const Checker check("initialise");
  std::int64_t count = 0;
  const bool fits = outputs >= 1 && inputs >= 1 && !__builtin_mul_overflow(outputs, inputs, &count);
  check.require(fits && static_cast<std::size_t>(count) == weight.size(), "weight has ",
                static_cast<std::int64_t>(weight.size()), " elements; expected ", outputs, " x ",
                inputs, ", both 1 or more");
  check_initialisation(check, initialisation);
  const auto rows = static_cast<double>(outputs);
  const auto columns = static_cast<double>(inputs);
  const double bound = std::sqrt(6 / (rows + columns));
  const double spread = deviation_of(initialisation, rows, columns);
  for (std::size_t i = 0; i < weight.size(); ++i) {
    weight[i] = static_cast<float>(initialisation.draw == Draw::xavier_uniform
                                       ? bound * (2 * uniform(initialisation.seed, i) - 1)
                                       : spread * normal(initialisation.seed, i));
  }
}

}  // namespace heed

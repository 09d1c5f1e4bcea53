// What the gradients of a case must hold, in each type, and the lists of cases that only tests/full
// takes as a whole.
#pragma once

#include "backward/support.h"
#include "forward/bases.h"

namespace heed_test {

/// The gradients of the case on every instruction set within the oracle's bounds, those of float32
/// with the same bits on all. Of packed sequences those of each alone. Fails the test, and returns
/// false, if not.
template <typename T>
bool judge_gradients(const Case& c, std::size_t n);

/// float64: 1e-13 of the largest element from the oracle's complex steps, on every instruction set.
void judge_steps(const Case& c, std::uint64_t seed);
void judge_steps(const Call<double>& call, std::uint64_t seed);

/// In 16 bits, on every instruction set: a forward pass in the type, by dot products of bfloat16
/// where they are, and a backward pass on its results, within the bounds and what rounding an
/// output may cost.
void judge_half_gradients(const Case& c, heed::DType dtype);

/// The backward pass in 16 bits on results of somebody else; dq, dk and dv come back as floats.
Gradients<float> run_half_backward(const Call<float>& call, const Result<float>& forward,
                                   const Tensor<float>& d_output, Layout layout, heed::DType dtype,
                                   const heed::Execution& execution = {});

inline constexpr std::size_t kStepSizes = 10, kGradientSizes = 12;
/// Of a size in either list: 12 lengths, each with 14 maskings.
inline constexpr std::size_t kGradientsOfSize = 12 * kBaseMaskings;
/// At most 33 rows, keys and columns, for complex steps.
std::vector<Case> step_cases(std::size_t size);
std::vector<Case> gradient_cases(std::size_t size);

}  // namespace heed_test

// What a run stores: which tensors, how large, and whether they are finite.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "heed/attention.h"
#include "run_flags.h"
#include "run_inputs.h"

namespace heed::cli {

struct ResultPlan {
  const char* name;
  std::vector<std::int64_t> shape;  ///< as it is stored
  DType computed, stored;
  bool written = true;  ///< to the file
};

/// The type that q, k, v and the output have in the call: 16 bits where the output shall be of such
/// inputs' own type. Gradients are stored as float32, and so computed.
[[nodiscard]] DType element_dtype(const RunInputs& inputs, const RunFlags& flags);

/// The output and, if asked for, lse, weights and gradients, which take lse too. Shapes have q's
/// rank; the output, dq, dk and dv have the order of axes of q, k and v. All but the output are
/// float32, or float64 where that is computed in.
[[nodiscard]] std::vector<ResultPlan> plan_results(const RunInputs& inputs, const RunFlags& flags);

/// Bytes that a run takes, known before it allocates.
struct Estimate {
  double inputs = 0, results = 0;
  double scratch = 0;  ///< of the forward pass, and of the backward pass if it is to run
  [[nodiscard]] double total() const { return inputs + results + scratch; }
  [[nodiscard]] std::string text() const;
};
[[nodiscard]] Estimate estimate(const RunInputs& inputs, const std::vector<ResultPlan>& plans,
                                DType computed, const Explanation& explanation);

/// Results of the backward pass.
inline constexpr std::array kGradientNames{"dq", "dk", "dv", "dscale", "dalibi", "dbias", "dsinks"};

/// Throws Failure with ExitCode::not_finite, naming the first index, if a result holds NaN or
/// infinity, and says whether an input does.
void check_finite(const RunInputs& inputs, const char* name, const Tensor& result);

}  // namespace heed::cli

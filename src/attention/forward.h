// The forward pass of a checked problem.
#pragma once

#include "attention/problem.h"
#include "heed/attention.h"

namespace heed {

void run_forward(const Problem& p, const Execution& execution);

[[nodiscard]] Explanation explain_forward(Problem p, const Execution& execution);

}  // namespace heed

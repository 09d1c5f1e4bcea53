// How much memory an inspection and its pictures take, known before they take any.
#pragma once

#include "inspect_flags.h"
#include "run_inputs.h"

namespace heed::cli {

/// Throws Failure if inputs, results, page and pictures take more than the budget, by the shapes
/// of q and k; before anything is converted. Returns how many bytes a text of tokens may have, at
/// least 1, so that it and what is made of it take no more than what is left.
[[nodiscard]] std::int64_t check_memory(const RunInputs& inputs, const InspectFlags& flags,
                                        DType dtype, std::int64_t budget);

}  // namespace heed::cli

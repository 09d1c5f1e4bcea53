// The one gate: a call that passes can be computed, whatever its arguments.
#pragma once

#include <array>
#include <memory>
#include <span>

#include "attention/checker.h"
#include "attention/problem.h"
#include "attention/ragged.h"

namespace heed {

/// What a call reads of q, k, v and bias: for `sizes` their data may be null.
enum class Reads { sizes, elements };

/// Checks tensors and options and resolves them, `ragged` in place of options.packing where it is
/// given; outputs, and then place_entries, are left to the caller.
[[nodiscard]] Problem check_inputs(const Checker& check, const ConstTensorView& q,
                                   const ConstTensorView& k, const ConstTensorView& v,
                                   const AttentionOptions& options, Reads reads,
                                   std::shared_ptr<const Ragged> ragged = nullptr);

/// Checks what rows may have beside their output, and makes it the problem's: lse, statistics and
/// weights.
void check_row_outputs(const Checker& check, Problem* p, const ForwardOutputs& outputs, int rank);

/// Checks outputs and makes them the problem's. `read`: tensors that they must not overlap.
void check_outputs(const Checker& check, Problem* p, const ForwardOutputs& outputs, int rank,
                   std::span<const NamedView> read);

/// The views of the options, by their names.
[[nodiscard]] std::array<NamedView, 11> option_views(const AttentionOptions& options);

/// Checks a forward call and resolves it. Throws heed::Error.
[[nodiscard]] Problem check_forward(const ConstTensorView& q, const ConstTensorView& k,
                                    const ConstTensorView& v, const ForwardOutputs& outputs,
                                    const AttentionOptions& options);

}  // namespace heed

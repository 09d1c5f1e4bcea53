// How the instruction set is chosen; the public functions in heed/runtime.h apply it to this CPU.
#pragma once

#include <string_view>
#include <vector>

#include "heed/runtime.h"
#include "kernels/targets.h"

namespace heed::runtime {

/// The instruction set that HEED_MAX_ISA means by this word; throws an Error that lists the words.
[[nodiscard]] Isa parse_isa(std::string_view word);

/// The architecture's instruction sets, with what the kernels say of each.
[[nodiscard]] std::vector<InstructionSet> instruction_sets(const kernels::Targets& targets);

/// The best one that is compiled, supported and not above the cap, and not slow unless it is the
/// cap. There is always scalar.
[[nodiscard]] Isa choose_isa(const kernels::Targets& targets, Isa cap) noexcept;

}  // namespace heed::runtime

// Which instruction sets the kernels were compiled for and which of them this CPU can run.
#pragma once

#include <cstdint>

namespace heed::kernels {

/// Bit i stands for the instruction set with number i of heed::Isa (the kernels see no public header).
struct Targets {
  std::uint32_t compiled;
  std::uint32_t supported;  ///< scalar is always among them
};

Targets targets() noexcept;

}  // namespace heed::kernels

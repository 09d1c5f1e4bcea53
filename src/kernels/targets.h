// Which instruction sets the kernels were compiled for and which of them this CPU can run.
#pragma once

#include <cstdint>

namespace heed::kernels {

/// Bit i stands for the instruction set with number i in heed::Isa.
struct Targets {
  std::uint32_t compiled;
  std::uint32_t supported;  ///< scalar is always among them
  std::uint32_t slow = 0;   ///< supported, but slower here than the ones below it
};

/// What of a CPU decides.
struct Cpu {
  std::int64_t highway;    ///< the targets that it runs, in Highway's bits
  bool bf16_dots;          ///< it multiplies pairs of bfloat16
  bool slow_dots = false;  ///< no faster than it multiplies float32
};

Cpu this_cpu() noexcept;

Targets targets(Cpu cpu = this_cpu()) noexcept;

/// Numbers in heed::Isa, which the kernels do not see; src/attention checks that they agree.
inline constexpr int kScalar = 0;
inline constexpr int kNeon = 1;
inline constexpr int kAvx2 = 2;
inline constexpr int kAvx512 = 3;
inline constexpr int kAvx512Bf16 = 4;
inline constexpr int kNeonBf16 = 5;

/// The instruction set whose tables of kernels this one uses: all kernels but those over pairs of
/// bfloat16 are those of the set without them.
constexpr int table_of(int target) {
  return target == kAvx512Bf16 ? kAvx512 : target == kNeonBf16 ? kNeon : target;
}

}  // namespace heed::kernels

// Which instruction sets the kernels were compiled for and which of them this CPU can run.
#include "kernels/targets.h"

#include "kernels/target_list.h"
// after target_list.h
#include <hwy/targets.h>

#include "kernels/target_number.h"
#if HEED_NEON_BF16
#include <sys/auxv.h>
#endif

namespace heed::kernels {
namespace {

// Highway 1.0.3 knows no dot products of bfloat16: they are a number of their own, wherever one of
// its targets is compiled and the CPU says that it has them.
#if HWY_ARCH_X86
constexpr std::int64_t kDotsTarget = HWY_AVX3;
constexpr int kDots = kAvx512Bf16;
#elif HEED_NEON_BF16
constexpr std::int64_t kDotsTarget = HWY_NEON;
constexpr int kDots = kNeonBf16;
#else
constexpr std::int64_t kDotsTarget = 0;
constexpr int kDots = kScalar;
#endif

}  // namespace

Cpu this_cpu() noexcept {
  Cpu cpu{hwy::SupportedTargets(), false};
#if HWY_ARCH_X86
  __builtin_cpu_init();
  cpu.bf16_dots = __builtin_cpu_supports("avx512bf16") != 0;
  // Intel's start one VDPBF16PS of 512 bits in two cycles and two multiply-adds of float32 in each:
  // half as many products (measured, docs/performance.md). AMD's start as many of these as of
  // those: twice as many.
  cpu.slow_dots = __builtin_cpu_is("intel") != 0;
#elif HEED_NEON_BF16
  constexpr unsigned long kBf16 = 1UL << 14;  // HWCAP2_BF16
  cpu.bf16_dots = (getauxval(AT_HWCAP2) & kBf16) != 0;
#endif
  return cpu;
}

Targets targets(Cpu cpu) noexcept {
  Targets found{0, 1u << kScalar};
  for (std::int64_t bits = HWY_TARGETS; bits != 0; bits &= bits - 1) {
    const std::int64_t target = bits & -bits;
    found.compiled |= 1u << target_number(target);
    if ((cpu.highway & target) != 0) found.supported |= 1u << target_number(target);
  }
  if ((HWY_TARGETS & kDotsTarget) != 0) {
    found.compiled |= 1u << kDots;
    // Highway has asked the system whether it keeps the registers; the CPU alone does not know.
    if ((cpu.highway & kDotsTarget) != 0 && cpu.bf16_dots) {
      found.supported |= 1u << kDots;
      if (cpu.slow_dots) found.slow |= 1u << kDots;
    }
  }
  return found;
}

}  // namespace heed::kernels

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

Targets targets() noexcept {
  const std::int64_t cpu = hwy::SupportedTargets();
  Targets found{0, 1u << kScalar};
  for (std::int64_t bits = HWY_TARGETS; bits != 0; bits &= bits - 1) {
    const std::int64_t target = bits & -bits;
    found.compiled |= 1u << target_number(target);
    if ((cpu & target) != 0) found.supported |= 1u << target_number(target);
  }
#if HWY_ARCH_X86
  // Highway 1.0.3 does not know this extension; the builtin asks the system for its registers too.
  if ((HWY_TARGETS & HWY_AVX3) != 0) {
    found.compiled |= 1u << kAvx512Bf16;
    __builtin_cpu_init();
    if ((cpu & HWY_AVX3) != 0 && __builtin_cpu_supports("avx512bf16")) {
      found.supported |= 1u << kAvx512Bf16;
    }
  }
#elif HEED_NEON_BF16
  if ((HWY_TARGETS & HWY_NEON) != 0) {
    found.compiled |= 1u << kNeonBf16;
    constexpr unsigned long kBf16 = 1UL << 14;  // HWCAP2_BF16
    if ((cpu & HWY_NEON) != 0 && (getauxval(AT_HWCAP2) & kBf16) != 0) {
      found.supported |= 1u << kNeonBf16;
    }
  }
#endif
  return found;
}

}  // namespace heed::kernels

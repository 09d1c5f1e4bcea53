// Which of Highway's targets are compiled. Included before any header of Highway.
#pragma once

// The scalar reference is always compiled, also where the baseline of the architecture is better.
#define HWY_COMPILE_ALL_ATTAINABLE

// Left out: targets without a fused multiply-add (the scalar reference runs there: slower, the same
// bits), SVE (its vectors cannot form arrays), and what would add nothing to these kernels.
#define HWY_DISABLED_TARGETS                                                                    \
  (HWY_SSE2 | HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_AVX3_ZEN4 | HWY_AVX3_SPR | HWY_AVX10_2 | \
   HWY_NEON_WITHOUT_AES | HWY_NEON_BF16 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#include <hwy/detect_targets.h>

// Whether BFDOT can be asked for in functions of their own: GCC can, on Linux, which says if it is
// there.
#if HWY_ARCH_ARM_A64 && HWY_COMPILER_GCC_ACTUAL && HWY_OS_LINUX
#define HEED_NEON_BF16 1
#else
#define HEED_NEON_BF16 0
#endif

// Names that Highway 1.0.3 does not have yet.
#ifndef HWY_SSE2
#define HWY_SSE2 0
#endif
#ifndef HWY_AVX3_ZEN4
#define HWY_AVX3_ZEN4 0
#endif
#ifndef HWY_AVX3_SPR
#define HWY_AVX3_SPR 0
#endif
#ifndef HWY_AVX10_2
#define HWY_AVX10_2 0
#endif
#ifndef HWY_NEON_WITHOUT_AES
#define HWY_NEON_WITHOUT_AES 0
#endif
#ifndef HWY_NEON_BF16
#define HWY_NEON_BF16 0
#endif

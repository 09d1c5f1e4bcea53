// The kernels over pairs of bfloat16, compiled where there is an instruction set that has them.
#include "kernels/bf16.h"

#include "kernels/target_list.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/bf16.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "kernels/bf16_few-inl.h"

#if HWY_ONCE
namespace heed::kernels {

template <>
const Bf16Kernels<float>* bf16_kernels_for<float>([[maybe_unused]] int target) noexcept {
#if HWY_TARGETS & HWY_AVX3
  if (target == kAvx512Bf16) return &N_AVX3::paired::kKernels;
#endif
#if (HWY_TARGETS & HWY_NEON) && HEED_NEON_BF16
  if (target == kNeonBf16) return &N_NEON::paired::kKernels;
#endif
  return nullptr;
}

}  // namespace heed::kernels
#endif

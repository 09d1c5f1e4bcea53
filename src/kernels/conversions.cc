// The conversions between float and the 16-bit types, compiled once per target.
#include "kernels/conversions.h"

#include "kernels/target_list.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/conversions.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "kernels/conversions-inl.h"

#if HWY_ONCE
namespace heed::kernels {

const Conversions* conversions_for(int target) noexcept {
#define HEED_TARGET(name) \
  if (table_of(target) == name::kConversions.target) return &name::kConversions;
#include "kernels/each_target.inc"
#undef HEED_TARGET
  return nullptr;
}

}  // namespace heed::kernels
#endif

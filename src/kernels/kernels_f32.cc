// The kernels for float, compiled once per target.
#define HEED_REAL float

#include "kernels/target_list.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/kernels_f32.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "kernels/tables-inl.h"

#if HWY_ONCE
namespace heed::kernels {

template <>
const Kernels<float>* kernels_for<float>(int target) noexcept {
#define HEED_TARGET(name) \
  if (table_of(target) == name::kTable.target) return &name::kTable;
#include "kernels/each_target.inc"
#undef HEED_TARGET
  return nullptr;
}

}  // namespace heed::kernels
#endif

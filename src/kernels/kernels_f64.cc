// The kernels for double, compiled once per target.
#define HEED_REAL double

#include "kernels/target_list.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/kernels_f64.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "kernels/tables-inl.h"

#if HWY_ONCE
namespace heed::kernels {

template <>
const Kernels<double>* kernels_for<double>(int target) noexcept {
#define HEED_TARGET(name) \
  if (table_of(target) == name::kTable.target) return &name::kTable;
#include "kernels/each_target.inc"
#undef HEED_TARGET
  return nullptr;
}

}  // namespace heed::kernels
#endif

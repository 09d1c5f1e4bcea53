// One table of kernels per target: what HEED_KERNELS lists, in the namespace of the target.

#if defined(HEED_KERNELS_TABLES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_TABLES_INL_H_
#undef HEED_KERNELS_TABLES_INL_H_
#else
#define HEED_KERNELS_TABLES_INL_H_
#endif

#include "kernels/by_key-inl.h"
#include "kernels/dropout-inl.h"
#include "kernels/few-inl.h"
#include "kernels/gradients-inl.h"
#include "kernels/kernels.h"
#include "kernels/math-inl.h"
#include "kernels/products-inl.h"
#include "kernels/rows-inl.h"
#include "kernels/softmax-inl.h"
#include "kernels/statistics-inl.h"
#include "kernels/steps-inl.h"
#include "kernels/target_number.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

// Not inline: the tables of the two types bear one name, and must stay in their own files.
#define HEED_ENTRY(name, result, parameters) &HWY_NAMESPACE::name<HEED_REAL>,
constexpr Kernels<HEED_REAL> kTable = {target_number(HWY_TARGET), kLanes<HEED_REAL>,
                                       kHighestVectors, HEED_KERNELS(HEED_ENTRY)};
#undef HEED_ENTRY

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target

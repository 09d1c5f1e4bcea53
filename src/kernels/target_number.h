// Highway's name of a target as a number of heed::Isa.
#pragma once

#include <hwy/detect_targets.h>

#include <cstdint>

#include "kernels/targets.h"

namespace heed::kernels {

constexpr int target_number(std::int64_t highway_target) {
  if (highway_target == HWY_NEON) return kNeon;
  if (highway_target == HWY_AVX2) return kAvx2;
  if (highway_target == HWY_AVX3) return kAvx512;
  return kScalar;
}

}  // namespace heed::kernels

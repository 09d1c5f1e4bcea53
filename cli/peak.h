// The fastest that this machine can multiply and add: what a kernel's speed is a share of.
#pragma once

#include <string_view>

#include "heed/runtime.h"

namespace heed::cli {

/// Operations per second, in 10^9, of nothing but independent fused multiply-adds of float32 in
/// registers, with the vectors of `isa`, on `threads` threads of heed's pool: the best of 3 to 12
/// short measurements, as many as fit into `seconds`. A multiply-add counts as two. Of avx512_bf16
/// and neon_bf16: dot products of bfloat16, which count as four for each pair.
[[nodiscard]] double measure_fma_peak(Isa isa, int threads, double seconds);

/// What it measures, in words.
[[nodiscard]] std::string_view fma_peak_of(Isa isa);

}  // namespace heed::cli

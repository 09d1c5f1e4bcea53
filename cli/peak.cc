// FMA loops in registers, one per instruction set.
//
// What must hold for the figure to be the machine's peak: enough independent sums to cover the
// latency of the units (4 cycles x 2 units = 8 vectors on Zen 5 and Skylake, 4 x 4 on Neoverse V2;
// 12 to 16 are used), none of them spilled, and nothing in the loop but the multiply-adds and its
// counter. The attribute, and not a compiler flag, enables the instructions: each function is the
// only one in this program that holds them, and is called only where the CPU has them.
#include "peak.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace heed::cli {
namespace {

constexpr double kSliceSeconds = 0.015;
constexpr double kFewestSlices = 3;
constexpr double kMostSlices = 12;

// sum = sum * kFactor + kStep tends to 1: no denormal, no infinity.
constexpr float kFactor = 0.999F;
constexpr float kStep = 0.001F;

struct Loop {
  float (*run)(std::int64_t rounds);  ///< returns what it summed, so that nothing can be left out
  double flops_per_round;
  std::string_view of;  ///< what it runs
};

// The compiler must take the sums as they are, in registers, before and after each round.
#define HEED_KEEP_IN_REGISTER(kind, x) __asm__ volatile("" : "+" kind(x))

float scalar_loop(std::int64_t rounds) {
  constexpr int kSums = 8;
  float sums[kSums] = {0, 1, 2, 3, 4, 5, 6, 7};  // equal ones would be one to the compiler
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (float& sum : sums) sum = std::fma(sum, kFactor, kStep);
  }
  float total = 0;
  for (const float sum : sums) total += sum;
  return total;
}

#if defined(__x86_64__)
[[gnu::target("avx512f")]] float avx512_loop(std::int64_t rounds) {
  constexpr int kSums = 16;
  __m512 factor = _mm512_set1_ps(kFactor);
  __m512 step = _mm512_set1_ps(kStep);
  HEED_KEEP_IN_REGISTER("v", factor);
  HEED_KEEP_IN_REGISTER("v", step);
  __m512 sums[kSums];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) sums[i] = _mm512_fmadd_ps(sums[i], factor, step);
  }
  float total = 0;
  for (const __m512& sum : sums) total += _mm512_cvtss_f32(sum);
  return total;
}

[[gnu::target("avx512f,avx512bf16")]] float avx512_bf16_loop(std::int64_t rounds) {
  constexpr int kSums = 16;
  __m512i pairs = _mm512_set1_epi32(0x00003F80);  // 1 and 0: sums grow by 1 until they stay
  HEED_KEEP_IN_REGISTER("v", pairs);
  __m512 sums[kSums];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) {
      sums[i] = _mm512_dpbf16_ps(sums[i], (__m512bh)pairs, (__m512bh)pairs);
    }
  }
  float total = 0;
  for (const __m512& sum : sums) total += _mm512_cvtss_f32(sum);
  return total;
}

[[gnu::target("avx2,fma")]] float avx2_loop(std::int64_t rounds) {
  constexpr int kSums = 12;
  __m256 factor = _mm256_set1_ps(kFactor);
  __m256 step = _mm256_set1_ps(kStep);
  HEED_KEEP_IN_REGISTER("x", factor);
  HEED_KEEP_IN_REGISTER("x", step);
  __m256 sums[kSums];
  for (__m256& sum : sums) sum = _mm256_setzero_ps();
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) sums[i] = _mm256_fmadd_ps(sums[i], factor, step);
  }
  float total = 0;
  for (const __m256& sum : sums) total += _mm256_cvtss_f32(sum);
  return total;
}
#elif defined(__aarch64__)
float neon_loop(std::int64_t rounds) {
  constexpr int kSums = 16;
  const float32x4_t factor = vdupq_n_f32(kFactor);
  // vfmaq adds to its first argument, so the sums grow by step * factor each round.
  const float32x4_t step = vdupq_n_f32(kStep);
  float32x4_t sums[kSums];
  for (float32x4_t& sum : sums) sum = vdupq_n_f32(0.0F);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) sums[i] = vfmaq_f32(sums[i], step, factor);
  }
  float total = 0;
  for (const float32x4_t& sum : sums) total += vgetq_lane_f32(sum, 0);
  return total;
}

#if defined(__GNUC__) && !defined(__clang__)
#define HEED_NEON_BF16_LOOP
[[gnu::target("arch=armv8.2-a+bf16")]] float neon_bf16_loop(std::int64_t rounds) {
  constexpr int kSums = 16;
  const bfloat16x8_t pairs = vreinterpretq_bf16_u32(vdupq_n_u32(0x00003F80));  // as on x86
  float32x4_t sums[kSums];
  for (float32x4_t& sum : sums) sum = vdupq_n_f32(0.0F);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) sums[i] = vbfdotq_f32(sums[i], pairs, pairs);
  }
  float total = 0;
  for (const float32x4_t& sum : sums) total += vgetq_lane_f32(sum, 0);
  return total;
}
#endif
#endif

Loop loop_of([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::avx512) return {avx512_loop, 2.0 * 16 * 16, "AVX-512 multiply-adds of float32"};
  if (isa == Isa::avx512_bf16)
    return {avx512_bf16_loop, 4.0 * 16 * 16, "AVX-512 dot products of bfloat16"};
  if (isa == Isa::avx2) return {avx2_loop, 2.0 * 12 * 8, "AVX2 multiply-adds of float32"};
#elif defined(__aarch64__)
  if (isa == Isa::neon) return {neon_loop, 2.0 * 16 * 4, "NEON multiply-adds of float32"};
#if defined(HEED_NEON_BF16_LOOP)
  if (isa == Isa::neon_bf16) return {neon_bf16_loop, 4.0 * 16 * 4, "NEON dot products of bfloat16"};
#endif
#endif
  return {scalar_loop, 2.0 * 8, "std::fma of float32"};
}

struct Work {
  Loop loop;
  std::int64_t rounds;
  std::atomic<float> result{0};
};

// Seconds for `threads` tasks of `rounds` rounds each.
double time_slice(Executor& pool, Work& work, int threads) {
  const auto begin = std::chrono::steady_clock::now();
  pool.run(
      threads,
      [](void* raw, std::int64_t, int) {
        auto& mine = *static_cast<Work*>(raw);
        mine.result.store(mine.loop.run(mine.rounds), std::memory_order_relaxed);
      },
      &work);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

std::string_view fma_peak_of(Isa isa) { return loop_of(isa).of; }

double measure_fma_peak(Isa isa, int threads, double seconds) {
  PoolExecutor pool(threads);
  Work work{loop_of(isa), 1 << 12};
  double taken = time_slice(pool, work, threads);
  while (taken < kSliceSeconds / 2) {
    work.rounds *= 2;
    taken = time_slice(pool, work, threads);
  }
  work.rounds = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(static_cast<double>(work.rounds) * kSliceSeconds / taken));
  const double slices = std::clamp(seconds / kSliceSeconds, kFewestSlices, kMostSlices);
  double best = 0;
  for (int slice = 0; slice < static_cast<int>(slices); ++slice) {
    const double flops = work.loop.flops_per_round * static_cast<double>(work.rounds) * threads;
    best = std::max(best, flops / time_slice(pool, work, threads));
  }
  return best * 1e-9;
}

}  // namespace heed::cli

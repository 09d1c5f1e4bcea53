// The two products over pairs of bfloat16 for tiles of few rows: few-inl.h says why and how. The
// same chains as in bf16-inl.h, so the same bits.

#if defined(HEED_KERNELS_BF16_FEW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_BF16_FEW_INL_H_
#undef HEED_KERNELS_BF16_FEW_INL_H_
#else
#define HEED_KERNELS_BF16_FEW_INL_H_
#endif

#include "kernels/bf16-inl.h"
#include "kernels/by_key-inl.h"
#include "kernels/few-inl.h"

#ifdef HEED_PAIRS_TARGET
HWY_PUSH_ATTRIBUTES(HEED_PAIRS_TARGET)
namespace heed::kernels::HWY_NAMESPACE {
namespace paired {

/// s[j][r] for one vector of keys.
template <int Rows>
HWY_NOINLINE void few_scores_of_keys(RowsOfKeys<kLane> k, const float* q, std::int64_t pairs,
                                     const float* c, float* s, Tops& tops, const Distances& ahead) {
  const Floats d;
  constexpr std::int64_t kChain = kChainSize / 2;
  Vec<float> total[Rows], acc[Rows];
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) total[r] = hn::Zero(d);
  for (std::int64_t first = 0; first < pairs; first += kChain) {
    const std::int64_t end = pairs - first > kChain ? first + kChain : pairs;
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) acc[r] = hn::Zero(d);
    for (std::int64_t x = first; x < end; x += kLane) {
      Vec<float> t[kLane];
#pragma GCC unroll 16
      for (int i = 0; i < kLane; ++i) {
        t[i] = hn::BitCast(d, load_halves(k.row(i)));
      }
      k.template advance<4 * kLane>(x / kLane, ahead);
      transpose(t);
#pragma GCC unroll 16
      for (int i = 0; i < kLane; ++i) {
        const auto* const pair = reinterpret_cast<const std::byte*>(q + (x + i) * kLane);
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) acc[r] = dot(t[i], broadcast(pair + 4 * r), acc[r]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) total[r] = first == 0 ? acc[r] : hn::Add(total[r], acc[r]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) total[r] = hn::Mul(total[r], hn::Set(d, c[r]));
  store_scores(total, k, s, tops);
}

template <int Rows>
void scores_few_of(const std::byte* k, std::int64_t k_step, int keys, const float* q,
                   std::int64_t size, const float* c, float* s, float* highest,
                   const std::byte* next) {
  const Lookahead lookahead(k, k_step, 2 * size, keys, next);
  Distances ahead;
  Tops tops;
  clear_tops(tops);
  for (int j = 0; j < keys; j += kLane) {
    lookahead.from(j, kLane, ahead);
    few_scores_of_keys<Rows>(RowsOfKeys<kLane>(k + j * k_step, k_step, keys - j), q, size / 2, c,
                             s + j * kLane, tops, ahead);
  }
  store_tops<Rows>(tops, highest);
}

void scores_few(const std::byte* k, std::int64_t k_step, int keys, const float* q, int rows,
                std::int64_t size, const float* c, float* s, float* highest,
                const std::byte* next) noexcept {
  switch (rows) {
    case 4:
      return scores_few_of<4>(k, k_step, keys, q, size, c, s, highest, next);
    case 3:
      return scores_few_of<3>(k, k_step, keys, q, size, c, s, highest, next);
    case 2:
      return scores_few_of<2>(k, k_step, keys, q, size, c, s, highest, next);
    default:
      return scores_few_of<1>(k, k_step, keys, q, size, c, s, highest, next);
  }
}

void scores_by_key(const std::byte* k, std::int64_t k_step, int keys, const float* q,
                   std::int64_t size, float c, float* s, float* highest) noexcept {
  const Floats d;
  const std::int64_t pairs = size / 2;
  scores_of_chains(keys, c, s, highest, [&](int j) {
    const std::byte* const row = k + j * k_step;
    auto acc = hn::Zero(d);
    for (std::int64_t x = 0; x < pairs; x += kLane) {
      acc = dot(hn::BitCast(d, load_halves(row + 4 * x)), hn::LoadU(d, q + x), acc);
    }
    return acc;
  });
}

/// Coordinates x .. of o, two vectors to each of `Loads`. Two rows of V become pairs in registers:
/// blocks of four coordinates, the even ones in one vector and the odd ones in the other.
template <int Rows, int Loads>
HWY_NOINLINE void few_columns(const std::byte* v, std::int64_t v_step, int keys, const float* p,
                              const float* a, float* o, std::int64_t size, std::uintptr_t ahead) {
  const Floats d;
  const Halves halves;
  constexpr int kBytes = 4 * kLane;
  const std::uintptr_t second = ahead == 0 ? 0 : ahead + static_cast<std::uintptr_t>(v_step);
  Vec<float> acc[Rows][2 * Loads];
  begin(acc);
  for (int j = 0; j < keys; j += 2, v += 2 * v_step, p += kLane) {
    const bool two = j + 1 < keys;
    Vec<float> pairs[2 * Loads];
#pragma GCC unroll 4
    for (int n = 0; n < Loads; ++n) {
      const auto low = load_halves(v + kBytes * n);
      const auto high = two ? load_halves(v + v_step + kBytes * n) : hn::Zero(halves);
      pairs[2 * n] = hn::BitCast(d, hn::InterleaveLower(halves, low, high));
      pairs[2 * n + 1] = hn::BitCast(d, hn::InterleaveUpper(halves, low, high));
    }
    ask_for_row<kBytes * Loads>(v, ahead);
    ask_for_row<kBytes * Loads>(v, second);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      const auto weights = broadcast(reinterpret_cast<const std::byte*>(p + r));
#pragma GCC unroll 8
      for (int n = 0; n < 2 * Loads; ++n) acc[r][n] = dot(pairs[n], weights, acc[r][n]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) {
    const auto decay = a == nullptr ? hn::Zero(d) : hn::Set(d, a[r]);
#pragma GCC unroll 4
    for (int n = 0; n < Loads; ++n) in_order(acc[r][2 * n], acc[r][2 * n + 1]);
#pragma GCC unroll 8
    for (int n = 0; n < 2 * Loads; ++n) {
      float* const at = o + r * size + n * kLane;
      const auto old = a == nullptr ? hn::Zero(d) : hn::LoadU(d, at);
      hn::StoreU(fma(d, old, decay, acc[r][n]), d, at);
    }
  }
}

/// o[r][x] from x on, as many vectors at a time as there are registers for, then fewer.
template <int Rows, int Loads>
void few_columns_from(const std::byte* v, std::int64_t v_step, int keys, const float* p,
                      std::int64_t size, const float* a, float* o, std::uintptr_t ahead,
                      std::int64_t x) {
  constexpr std::int64_t kColumns = 2 * kLane * Loads;
  for (; x + kColumns <= size; x += kColumns) {
    few_columns<Rows, Loads>(v + 2 * x, v_step, keys, p, a, o + x, size, ahead);
  }
  if constexpr (Loads > 1) {
    few_columns_from<Rows, Loads / 2>(v, v_step, keys, p, size, a, o, ahead, x);
  }
}

void values_few(const std::byte* v, std::int64_t v_step, int keys, const float* p, int rows,
                std::int64_t size, const float* a, float* o, const std::byte* next) noexcept {
  const int loads = rows > 2 ? 2 : 4;
  const Lookahead lookahead(v, v_step, 2 * size, keys, next);
  const std::uintptr_t ahead = lookahead.of_values(4 * kLane * loads);
  switch (rows) {
    case 4:
      return few_columns_from<4, 2>(v, v_step, keys, p, size, a, o, ahead, 0);
    case 3:
      return few_columns_from<3, 2>(v, v_step, keys, p, size, a, o, ahead, 0);
    case 2:
      return few_columns_from<2, 4>(v, v_step, keys, p, size, a, o, ahead, 0);
    default:
      return few_columns_from<1, 4>(v, v_step, keys, p, size, a, o, ahead, 0);
  }
}

constexpr Bf16Kernels<float> kKernels = {&scores,     &scores_few,    &scores_by_key, &softmax,
                                         &pairs,      &interleave,    &all_finite,    &values,
                                         &values_few, &values_visible};

}  // namespace paired
}  // namespace heed::kernels::HWY_NAMESPACE
HWY_POP_ATTRIBUTES
#endif  // HEED_PAIRS_TARGET

#endif  // include guard per target

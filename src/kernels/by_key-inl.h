// q . k of one row with keys one after another and coordinates in lanes: memory is read in the
// order of addresses, where the CPU looks ahead by itself. Another order of sums than that of
// products-inl.h, so on request only (docs/numerics.md, "Decoding key by key").

#if defined(HEED_KERNELS_BY_KEY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_BY_KEY_INL_H_
#undef HEED_KERNELS_BY_KEY_INL_H_
#else
#define HEED_KERNELS_BY_KEY_INL_H_
#endif

#include "kernels/few-inl.h"
#include "kernels/order.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
/// The vectors of a key's chains.
inline constexpr int kParts = kKeyChains / kLanes<float>;

/// t[i]: the chains of key i, of a vector of keys. Returns their sums by halves, key i's in lane i.
HWY_INLINE Vec<float> add_halves(Vec<float> (&t)[kLanes<float>]) {
  const Tag<float> d;
  int half = kLanes<float>;
  if constexpr (kLanes < float >> 8) {  // two halves of blocks
    half /= 2;
    for (int i = 0; i < half; ++i) {
      t[i] = hn::Add(hn::ConcatLowerLower(d, t[i + half], t[i]),
                     hn::ConcatUpperUpper(d, t[i + half], t[i]));
    }
  }
  if constexpr (kLanes < float >> 4) {  // neighbouring blocks of four lanes
    half /= 2;
    for (int i = 0; i < half; ++i) {
      t[i] = hn::Add(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(t[i + half]), t[i]),
                     hn::OddEvenBlocks(t[i + half], hn::SwapAdjacentBlocks(t[i])));
    }
  }
  while (half > 1) {
    half /= 2;
    for (int i = 0; i < half; ++i) {
      t[i] = hn::Add(hn::InterleaveLower(d, t[i], t[i + half]),
                     hn::InterleaveUpper(d, t[i], t[i + half]));
    }
  }
  return t[0];
}

/// Halves of the chains add up until they are one vector.
HWY_INLINE Vec<float> to_one_vector(Vec<float> (&acc)[kParts]) {
#pragma GCC unroll 2
  for (int half = kParts / 2; half > 0; half /= 2) {
#pragma GCC unroll 2
    for (int i = 0; i < half; ++i) acc[i] = hn::Add(acc[i], acc[i + half]);
  }
  return acc[0];
}

/// The chains of q . k, as one vector.
template <Element kElement>
HWY_INLINE Vec<float> chains_of_key(const std::byte* k, const float* q, std::int64_t size) {
  const Tag<float> d;
  Vec<float> acc[kParts];
#pragma GCC unroll 4
  for (auto& part : acc) part = hn::Zero(d);
#pragma GCC unroll 4
  for (std::int64_t x = 0; x < size; x += kKeyChains) {
#pragma GCC unroll 4
    for (int i = 0; i < kParts; ++i) {
      const std::int64_t at = x + std::int64_t{i} * kLanes<float>;
      acc[i] =
          fma(d, load_elements<kElement>(k + at * kSizeOf<kElement>), hn::LoadU(d, q + at), acc[i]);
    }
  }
  return to_one_vector(acc);
}

/// The scores of one row, [keys][lanes] with all but the first lane 0, and their highest.
/// chains(j): those of key j as one vector.
template <typename Chains>
HWY_INLINE void scores_of_chains(int keys, float c, float* s, float* highest,
                                 const Chains& chains) {
  const Tag<float> d;
  constexpr int kL = kLanes<float>;
  auto top = hn::Set(d, -kInf<float>);
  float lanes[kL][kL];  // through memory: there are not registers for all
  for (int j = 0; j < keys; j += kL) {
    const int count = keys - j < kL ? keys - j : kL;
    // Past the last key that one again, which changes no maximum.
    for (int i = 0; i < kL; ++i) {
      hn::StoreU(chains(j + (i < count ? i : count - 1)), d, lanes[i]);
    }
    Vec<float> t[kL];
#pragma GCC unroll 16
    for (int i = 0; i < kL; ++i) t[i] = hn::LoadU(d, lanes[i]);
    const auto scores = hn::Mul(add_halves(t), hn::Set(d, c));
    top = running_max(top, scores);
    hn::StoreU(scores, d, lanes[0]);
    for (int i = 0; i < count; ++i) {
      float* const at = s + std::int64_t{j + i} * kL;
      hn::StoreU(hn::Zero(d), d, at);
      at[0] = lanes[0][i];
    }
  }
  hn::StoreU(top, d, lanes[0]);
  highest[0] = lanes[0][0];
  for (int i = 1; i < kL; ++i) {
    if (lanes[0][i] > highest[0]) highest[0] = lanes[0][i];
    highest[i] = 0;
  }
}
#endif

template <typename Real>
void scores_by_key(const std::byte* k, std::int64_t k_step, Element element, int keys,
                   const Real* q, std::int64_t size, Real c, Real* s, Real* highest) noexcept {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(Real) == 4) {
    return with_element(element, [&](auto e) HWY_ATTR {
      constexpr auto kElement = static_cast<Element>(decltype(e)::value);
      scores_of_chains(keys, c, s, highest, [&](int j) HWY_ATTR {
        return chains_of_key<kElement>(k + j * k_step, q, size);
      });
    });
  }
#endif
  constexpr int kL = kLanes<Real>;
  for (int i = 0; i < keys * kL; ++i) s[i] = 0;
  for (int j = 0; j < keys; ++j) {
    Real chain[kKeyChains] = {};
    for (std::int64_t x = 0; x < size; ++x) {
      Real& acc = chain[x % kKeyChains];
      acc = std::fma(element_at<Real>(k + j * k_step, element, x), q[x], acc);
    }
    for (int half = kKeyChains / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) chain[i] += chain[i + half];
    }
    s[std::int64_t{j} * kL] = chain[0] * c;
  }
  maxima(s, keys, 1, highest);
}

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target

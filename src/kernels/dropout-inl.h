// Dropout: which weights are kept follows from the seed and their place alone (docs/numerics.md).

#if defined(HEED_KERNELS_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_DROPOUT_INL_H_
#undef HEED_KERNELS_DROPOUT_INL_H_
#else
#define HEED_KERNELS_DROPOUT_INL_H_
#endif

#include "kernels/kernels.h"
#include "kernels/math-inl.h"
#include "kernels/products-inl.h"
#include "kernels/steps-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011).
inline constexpr int kPhiloxRounds = 10;
inline constexpr std::uint64_t kPhiloxFactor[2] = {0xD2511F53u, 0xCD9E8D57u};
inline constexpr std::uint32_t kPhiloxStep[2] = {0x9E3779B9u, 0xBB67AE85u};

/// Keys that one call of the generator serves: its four words are eight draws of 16 bits.
inline constexpr int kDrawnKeys = 8;

/// The two words of the key in each round, in 64 bits as the counters are.
struct PhiloxKeys {
  std::uint64_t of[kPhiloxRounds][2];

  explicit PhiloxKeys(std::uint64_t seed) {
    std::uint32_t low = static_cast<std::uint32_t>(seed);
    std::uint32_t high = static_cast<std::uint32_t>(seed >> 32);
    for (auto& round : of) {
      round[0] = low;
      round[1] = high;
      low += kPhiloxStep[0];
      high += kPhiloxStep[1];
    }
  }
};

// Counters are 32 bits of 64-bit lanes, so that a product needs no second register; what stands
// above the 32 bits is ignored, and need not be cleared.
using Tag64 = hn::Repartition<std::uint64_t, Tag<double>>;
using Vec64 = hn::Vec<Tag64>;

/// The product of the low halves of two lanes.
HWY_INLINE Vec64 multiply_low(Vec64 a, Vec64 b) {
#if HWY_TARGET == HWY_SCALAR
  const std::uint64_t low = 0xFFFFFFFFu;
  return hn::Set(Tag64(), (hn::GetLane(a) & low) * (hn::GetLane(b) & low));
#else
  const hn::Repartition<std::uint32_t, Tag64> d32;
  return hn::MulEven(hn::BitCast(d32, a), hn::BitCast(d32, b));
#endif
}

/// c = the words that the generator makes of Count counters c, side by side: a round waits for the
/// one before.
template <int Count>
HWY_INLINE void philox(const PhiloxKeys& keys, Vec64 (&c)[Count][4]) {
  const Tag64 d;
  const auto first = hn::Set(d, kPhiloxFactor[0]);
  const auto second = hn::Set(d, kPhiloxFactor[1]);
#pragma GCC unroll 10
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const auto low = hn::Set(d, keys.of[round][0]);
    const auto high = hn::Set(d, keys.of[round][1]);
#pragma GCC unroll 4
    for (int i = 0; i < Count; ++i) {
      const auto a = multiply_low(first, c[i][0]);
      const auto b = multiply_low(second, c[i][2]);
      c[i][0] = hn::Xor3(hn::ShiftRight<32>(b), c[i][1], low);
      c[i][2] = hn::Xor3(hn::ShiftRight<32>(a), c[i][3], high);
      c[i][1] = b;
      c[i][3] = a;
    }
  }
}

/// The lanes' counters, in as many vectors of 64-bit lanes as a vector of Real takes.
template <typename Real>
inline constexpr int kHalves = static_cast<int>(hn::MaxLanes(Tag<Real>()) / hn::MaxLanes(Tag64()));

/// Numbers of one vector of rows, widened: even rows in the first half and odd ones in the second.
template <typename Real>
HWY_INLINE void load_counters(const std::uint32_t* from, Vec64 (&to)[kHalves<Real>]) {
  const Tag64 d;
  if constexpr (kHalves<Real> == 2) {
    const hn::RebindToUnsigned<Tag<Real>> d32;
    to[0] = hn::BitCast(d, hn::LoadU(d32, from));
    to[1] = hn::ShiftRight<32>(to[0]);
  } else {
    std::uint64_t wide[kLanes<double>];
    for (int r = 0; r < kLanes<double>; ++r) wide[r] = from[r];
    to[0] = hn::LoadU(d, wide);
  }
}

/// Adds bits of the rows of vector n whose draw of word w is not below the threshold; of its low
/// half to the words of one key, of its high half to those of the next.
template <typename Real>
HWY_INLINE void keep_pair(const Vec64 (&half)[kHalves<Real>], std::uint32_t below, int n,
                          std::uint64_t* low_key, std::uint64_t* high_key) {
  using Bits = hn::TFromD<hn::RebindToSigned<Tag<Real>>>;
  const hn::Rebind<Bits, Tag<Real>> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const auto last = hn::Set(d, static_cast<Bits>(below) - 1);
  const auto draws = hn::Set(du, 0xFFFFu);
  auto word = hn::Zero(du);
  if constexpr (kHalves<Real> == 2) {
    word = hn::OddEven(hn::BitCast(du, hn::ShiftLeft<32>(half[1])), hn::BitCast(du, half[0]));
  } else if constexpr (sizeof(Real) == 8) {
    word = half[0];
  } else {  // the scalar target has one lane of either size
    word = hn::Set(du, static_cast<std::uint32_t>(hn::GetLane(half[0])));
  }
  const auto add = [&](auto draw, std::uint64_t* words) HWY_ATTR {
    std::uint8_t bytes[8] = {};
    hn::StoreMaskBits(d, hn::Gt(hn::BitCast(d, draw), last), bytes);
    std::uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) bits |= std::uint64_t{bytes[i]} << (8 * i);
    *words |= bits << (n * kLanes<Real>);
  };
  if (low_key != nullptr) add(hn::And(word, draws), low_key);
  if (high_key != nullptr) add(hn::And(hn::ShiftRight<16>(word), draws), high_key);
}

template <typename Real>
void kept(const Draws& draws, std::int64_t first, int keys, int vectors,
          std::uint64_t* words) noexcept {
  const Tag64 d;
  const PhiloxKeys philox_keys(draws.seed);
  for (int j = 0; j < keys; ++j) words[j] = 0;
  first += draws.first_key;
  const auto word_of = [&](std::int64_t key) {
    return first <= key && key < first + keys ? words + (key - first) : nullptr;
  };
  for (int n = 0; n < vectors; ++n) {
    constexpr int kH = kHalves<Real>;
    Vec64 query[kH], head[kH];
    load_counters<Real>(draws.query + n * kLanes<Real>, query);
    load_counters<Real>(draws.head + n * kLanes<Real>, head);
    for (std::int64_t j = first / kDrawnKeys * kDrawnKeys; j < first + keys; j += kDrawnKeys) {
      Vec64 c[kH][4];
      for (int i = 0; i < kH; ++i) {
        c[i][0] = query[i];
        c[i][1] = hn::Set(d, static_cast<std::uint64_t>(j / kDrawnKeys));
        c[i][2] = head[i];
        c[i][3] = hn::Zero(d);
      }
      philox(philox_keys, c);
#pragma GCC unroll 4
      for (int w = 0; w < 4; ++w) {
        Vec64 half[kH];
        for (int i = 0; i < kH; ++i) half[i] = c[i][w];
        const std::int64_t key = j + std::int64_t{2} * w;
        keep_pair<Real>(half, draws.drop_below, n, word_of(key), word_of(key + 1));
      }
    }
  }
}

template <typename Real>
void drop(Real* s, int keys, int vectors, const std::uint64_t* kept, Real f) noexcept {
  const Tag<Real> d;
  const auto factor = hn::Set(d, f);
  each_vector(s, keys, vectors, [&](auto p, int j, int lane) HWY_ATTR {
    return hn::IfThenElseZero(mask_of<Real>(kept[j], lane / kLanes<Real>), hn::Mul(p, factor));
  });
}

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target

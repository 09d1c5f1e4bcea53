// The bitwise bases: problems, each of them also run in 23 other ways that may change no bit
// of its results.
#pragma once

#include "forward/cases.h"
#include "forward/draws.h"
#include "forward/half.h"

namespace heed_test {

/// How keys that nobody may see are hidden.
enum class Hiding { length, keep, drop, bias, window };
inline constexpr int kHidings = 5;

/// The problem with `more` keys of NaN, infinities and `large` behind its own, hidden. (float16 can
/// hold the default.) A window can hide them from one row: it is the problem of the last one, and
/// its keys are hidden by length if it stands behind them.
template <typename T>
Call<T> with_hidden_keys(Call<T> call, std::int64_t more, Hiding how, T large = T(0x1p15));

/// The same of a call whose batch entries lie end to end, as sequences of a packed call of theirs.
template <typename T>
Call<T> packed(const Call<T>& call);

struct Base {
  Case problem;
  bool packed = false;  // masked as causal_at_end, each entry a sequence
};

/// The case with one of 14 masks; the last is that of packed sequences.
Base masked(Case problem, std::size_t masking);

/// [B, H, T, X] as [1, H, B T, X].
template <typename T>
Tensor<T> end_to_end(const Tensor<T>& from) {
  Tensor<T> to({1, from.shape[1], from.shape[0] * from.shape[2], from.shape[3]});
  from.each([&](auto b, auto h, auto i, auto x) {
    to.at(0, h, b * from.shape[2] + i, x) = from.at(b, h, i, x);
  });
  return to;
}

/// And back.
template <typename T>
Tensor<T> apart(const Tensor<T>& from, std::int64_t batch) {
  if (!from.present()) return from;
  Tensor<T> to({batch, from.shape[1], from.shape[2] / batch, from.shape[3]});
  to.each([&](auto b, auto h, auto i, auto x) {
    to.at(b, h, i, x) = from.at(0, h, b * to.shape[2] + i, x);
  });
  return to;
}

inline constexpr std::size_t kBaseSizes = 8, kBaseLengths = 10, kBaseMaskings = 14;
inline constexpr std::size_t kBasesOfSize = kBaseLengths * kBaseMaskings;
/// Comparisons of a base: threads, places in a batch, subsets of rows, padding.
inline constexpr std::size_t kBaseThreads = 8;
inline constexpr std::size_t kComparisons = kBaseThreads + 4 + 6 + 5;

/// Every length with every masking at one size: 140 of 1,120.
std::vector<Base> bases_of_size(std::size_t size);

/// Compares the base's results in all ways, in turns on the instruction sets that the type can have
/// here; n decides who begins. Fails the test where a bit differs.
struct Compared {
  std::size_t all = 0;
  std::size_t busy =
      0;  ///< of those with threads: all of up to 8, now and then of up to 64, had work
};
Compared compare_base(const Base& base, heed::DType dtype, std::size_t n);

}  // namespace heed_test

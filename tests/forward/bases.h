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

/// The case with one of 14 masks; the last is that of packed sequences.
Case masked(Case problem, std::size_t masking);

inline constexpr std::size_t kBaseSizes = 8, kBaseLengths = 10, kBaseMaskings = 14;
inline constexpr std::size_t kBasesOfSize = kBaseLengths * kBaseMaskings;
/// Comparisons of a base: threads, places in a batch, subsets of rows, padding.
inline constexpr std::size_t kBaseThreads = 8;
inline constexpr std::size_t kComparisons = kBaseThreads + 4 + 6 + 5;

/// Every length with every masking at one size: 140 of 1,120.
std::vector<Case> bases_of_size(std::size_t size);

/// Compares the base's results in all ways, in turns on the instruction sets that the type can have
/// here; n decides who begins. Fails the test where a bit differs.
struct Compared {
  std::size_t all = 0;
  std::size_t busy =
      0;  ///< of those with threads: all of up to 8, now and then of up to 64, had work
};
Compared compare_base(const Case& base, heed::DType dtype, std::size_t n);

}  // namespace heed_test

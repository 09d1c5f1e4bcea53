// Tiles of random numbers for the tests of kernels, and how their results are compared.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include "kernels/kernels.h"

namespace heed::kernels {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

inline bool same_bits(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

/// One kernel table and one tile of random numbers, for each number of vectors.
class Bench {
 public:
  Bench(const Kernels<float>& table, int vectors_in)
      : kernels(table), vectors(vectors_in), width(vectors_in * table.lanes), random_(7) {}

  std::vector<float> draw(int count, float spread = 1.0f) {
    std::normal_distribution<float> normal(0.0f, spread);
    std::vector<float> numbers(static_cast<std::size_t>(count));
    for (float& x : numbers) x = normal(random_);
    return numbers;
  }
  std::vector<std::uint64_t> draw_words() {
    std::vector<std::uint64_t> words(kBlockKeys);
    for (auto& word : words) word = random_();
    return words;
  }
  std::vector<const float*> rows(const std::vector<float>& dense, int count, std::int64_t size) {
    std::vector<const float*> pointers;
    for (int r = 0; r < count; ++r) pointers.push_back(dense.data() + r * size);
    return pointers;
  }

  const Kernels<float>& kernels;
  int vectors;
  int width;

 private:
  std::mt19937_64 random_;
};

/// EXPECTs that every element of `got` has the bits that `want(j, r)` says, [key][row].
template <typename Want>
void expect_tile(const std::vector<float>& got, int width, const Want& want) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    const int j = static_cast<int>(i) / width;
    const int r = static_cast<int>(i) % width;
    const float expected = want(j, r);
    ASSERT_TRUE(same_bits(got[i], expected)) << "key or coordinate " << j << ", row " << r << ": "
                                             << got[i] << ", expected " << expected;
  }
}

/// All keys for all vectors, or the stairs of a causal mask: `below` fewer from vector to vector.
struct Stairs {
  KeysSeen seen;

  Stairs(int keys, int vectors, int below) {
    for (int n = 0; n < kMostVectors; ++n) {
      seen[n] = std::clamp(keys - below * (vectors - 1 - n), 0, keys);
    }
  }
};

inline constexpr int kSizes[] = {0, 1, 2, 3, 5, 6, 7, 8, 11, 12, 13, 14, 15, 16, 17, 29, 64, 96};

/// |got - want| in units of the last place of want, for normal want. NaN is infinitely far off, so
/// that the largest of these knows of it.
inline double ulps(float got, double want) {
  if (std::isnan(got)) return INFINITY;
  const int exponent = std::max(std::ilogb(want), -126);
  return std::fabs(got - want) / std::ldexp(1.0, exponent - 23);
}

/// The figures that docs/numerics.md quotes.
inline void report(const char* function, double worst) {
  std::printf("%s: at most %.3f units in the last place\n", function, worst);
}

// One test for each kernel of the list: a kernel without one does not link.
#define HEED_DECLARE(name, result, parameters) void test_##name(Bench& b);
#define Real float
HEED_KERNELS(HEED_DECLARE)
#undef Real
#undef HEED_DECLARE

}  // namespace heed::kernels

// The kernels over pairs of bfloat16, each against its definition: rounding and interleaving bit by
// bit, sums of products within a rounding for each addition. Skipped where the CPU has no such dot
// product.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "heed/runtime.h"
#include "kernels/bf16.h"
#include "kernels/half.h"
#include "kernels_support.h"

namespace heed::kernels {
namespace {

class bf16_kernels : public testing::Test {
 protected:
  void SetUp() override {
    for (const InstructionSet& set : instruction_sets()) {
      const int number = static_cast<int>(set.isa);
      if (table_of(number) == number || !set.compiled || !set.supported) continue;
      kernels = bf16_kernels_for<float>(number);
      floats = kernels_for<float>(table_of(number));
      unit = set.isa == Isa::neon_bf16 ? 0x1p-23 : 0x1p-24;
    }
    if (kernels == nullptr) GTEST_SKIP() << "this CPU has no dot products of bfloat16";
  }
  /// test(bench, keys, size) for every number of vectors and some sizes.
  template <typename Test>
  void on_tiles(const Test& test) {
    for (int vectors = 1; vectors <= floats->highest_vectors; ++vectors) {
      for (const int keys : {1, 2, 3, 7, 12, 25, 191, 192}) {
        for (const int size : {1, 2, 15, 16, 33, 64, 257}) {
          Bench bench(*floats, vectors);
          test(bench, keys, size);
          if (HasFailure()) return;
        }
      }
    }
  }
  static std::uint32_t pair_of(float low, float high) {
    return to_bf16(low) | static_cast<std::uint32_t>(to_bf16(high)) << 16;
  }
  static std::vector<std::uint16_t> halves(const std::vector<float>& numbers) {
    std::vector<std::uint16_t> bits;
    for (const float x : numbers) bits.push_back(to_bf16(x));
    return bits;
  }
  static float half(float words, int part) {
    return from_bf16(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(words) >> 16 * part));
  }

  const Bf16Kernels<float>* kernels = nullptr;
  const Kernels<float>* floats = nullptr;
  double unit = 0;  ///< of an addition: half of the last place, all of it where rounding is to odd
};

TEST_F(bf16_kernels, weights_are_rounded_in_pairs_and_an_odd_last_one_meets_zero) {
  on_tiles([&](Bench& b, int keys, int) {
    std::vector<float> p = b.draw(keys * b.width);
    for (float& x : p) x = std::fabs(x);
    p[0] = 0x1.01p0f, p[static_cast<std::size_t>(b.width) - 1] = 0x1.03p0f;  // ties
    std::vector<float> got = p;
    kernels->pairs(got.data(), keys, b.vectors);
    for (int j = 0; j < keys; j += 2) {
      for (int r = 0; r < b.width; ++r) {
        const auto at = [&](int key) { return p[static_cast<std::size_t>(key * b.width + r)]; };
        const std::uint32_t want = pair_of(at(j), j + 1 < keys ? at(j + 1) : 0.0f);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(got[static_cast<std::size_t>(j / 2 * b.width + r)]),
                  want)
            << "key " << j << " of " << keys << ", row " << r;
      }
    }
  });
}

TEST_F(bf16_kernels, the_softmax_step_is_that_of_float_then_rounded) {
  on_tiles([&](Bench& b, int keys, int) {
    const auto rows = static_cast<std::size_t>(b.width);
    std::vector<float> s = b.draw(keys * b.width, 4.0f), want = s;
    s[0] = want[0] = kNan;
    if (keys > 2) s[rows] = want[rows] = -kInf;
    std::vector<float> highest(rows), m = b.draw(b.width), l = b.draw(b.width), a(rows);
    floats->maxima(s.data(), keys, b.vectors, highest.data());
    auto m2 = m, l2 = l, a2 = a;
    floats->softmax(want.data(), keys, b.vectors, highest.data(), m2.data(), l2.data(), a2.data());
    kernels->pairs(want.data(), keys, b.vectors);
    kernels->softmax(s.data(), keys, b.vectors, highest.data(), m.data(), l.data(), a.data());
    for (std::size_t r = 0; r < rows; ++r) {
      ASSERT_TRUE(same_bits(m[r], m2[r]) && same_bits(l[r], l2[r]) && same_bits(a[r], a2[r])) << r;
    }
    for (std::size_t n = 0; n < static_cast<std::size_t>((keys + 1) / 2) * rows; ++n) {
      const bool nan = std::isnan(half(want[n], 0)) && std::isnan(half(s[n], 0));
      ASSERT_TRUE(nan ||
                  std::bit_cast<std::uint32_t>(s[n]) == std::bit_cast<std::uint32_t>(want[n]))
          << n << ", " << keys << " keys";
    }
  });
}

TEST_F(bf16_kernels, rows_are_interleaved_and_an_odd_last_one_meets_zero) {
  on_tiles([&](Bench& b, int keys, int size) {
    const auto v = halves(b.draw(keys * (size + 3)));
    std::vector<float> got(static_cast<std::size_t>((keys + 1) / 2 * size), kNan);
    kernels->interleave(reinterpret_cast<const std::byte*>(v.data()), std::int64_t{2} * (size + 3),
                        keys, size, got.data());
    for (int j = 0; j < keys; ++j) {
      for (int x = 0; x < size; ++x) {
        const float word = got[static_cast<std::size_t>(j / 2 * size + x)];
        ASSERT_EQ(to_bf16(half(word, j % 2)), v[static_cast<std::size_t>(j * (size + 3) + x)]);
        if (j + 1 == keys && keys % 2 == 1) {
          ASSERT_EQ(to_bf16(half(word, 1)), 0) << keys;
        }
      }
    }
    EXPECT_TRUE(kernels->all_finite(got.data(), static_cast<std::int64_t>(got.size())));
    for (const std::uint32_t bits : {0x7F800000u, 0xFF800000u, 0x00007F80u, 0x0000FFC1u}) {
      got.back() = std::bit_cast<float>(bits);
      EXPECT_FALSE(kernels->all_finite(got.data(), static_cast<std::int64_t>(got.size())));
    }
  });
}

TEST_F(bf16_kernels, scores_are_sums_of_products_of_all_pairs) {
  on_tiles([&](Bench& b, int keys, int size) {
    const int padded = size + size % 2;
    std::vector<float> k = b.draw(keys * padded), q = b.draw(b.width * padded);
    const std::vector<float> c(static_cast<std::size_t>(b.width), 1.0f);
    for (std::size_t n = 0; size % 2 == 1 && n < k.size(); ++n) {
      if (n % static_cast<std::size_t>(padded) == static_cast<std::size_t>(size)) k[n] = 0;
    }
    const auto bits = halves(k);
    std::vector<float> packed(static_cast<std::size_t>(padded / 2 * b.width));
    const auto at = [&](int r, int x) {
      return from_bf16(to_bf16(x < size ? q[static_cast<std::size_t>(r * padded + x)] : 0.0f));
    };
    for (int x = 0; x < padded / 2; ++x) {
      for (int r = 0; r < b.width; ++r) {
        packed[static_cast<std::size_t>(x * b.width + r)] =
            std::bit_cast<float>(pair_of(at(r, 2 * x), at(r, 2 * x + 1)));
      }
    }
    std::vector<float> s(static_cast<std::size_t>(keys * b.width)),
        highest(static_cast<std::size_t>(b.width));
    const Stairs all(keys, b.vectors, 0);
    kernels->scores(reinterpret_cast<const std::byte*>(bits.data()), std::int64_t{2} * padded, keys,
                    all.seen, packed.data(), size, b.vectors, c.data(), s.data(), highest.data());
    // Longer heads are chains of 128 coordinates, added up in their order.
    std::vector<float> sum(s.size()), chain(s.size()), ignored(highest.size());
    for (int x = 0; x < size; x += kChainSize) {
      kernels->scores(reinterpret_cast<const std::byte*>(bits.data() + x), std::int64_t{2} * padded,
                      keys, all.seen, packed.data() + std::int64_t{x / 2} * b.width,
                      std::min(kChainSize, size - x), b.vectors, c.data(), chain.data(),
                      ignored.data());
      for (std::size_t n = 0; n < s.size(); ++n) sum[n] = x == 0 ? chain[n] : sum[n] + chain[n];
    }
    for (std::size_t n = 0; n < s.size(); ++n) ASSERT_TRUE(same_bits(s[n], sum[n])) << n;
    for (int j = 0; j < keys; ++j) {
      for (int r = 0; r < b.width; ++r) {
        double want = 0, sizes = 0;
        for (int x = 0; x < size; ++x) {
          const double product =
              double{from_bf16(bits[static_cast<std::size_t>(j * padded + x)])} * at(r, x);
          want += product;
          sizes += std::fabs(product);
        }
        const float got = s[static_cast<std::size_t>(j * b.width + r)];
        ASSERT_NEAR(got, want, unit * (padded + 3) * sizes) << "key " << j << ", row " << r;
        ASSERT_LE(got, highest[static_cast<std::size_t>(r)]);
      }
    }
  });
}

/// Few rows have kernels of their own with the chains of all others.
TEST_F(bf16_kernels, scores_of_few_rows_have_the_same_bits) {
  for (int rows = 1; rows <= kFewRows; ++rows) {
    for (const int keys : {1, 2, 15, 16, 17, 191, 192}) {
      for (const int size : {32, 64, 128, 160, 288}) {
        Bench b(*floats, 1);
        const int stride = size + 3;  // odd: rows begin at any multiple of two bytes
        const auto k = halves(b.draw(keys * stride + size));
        std::vector<float> q(static_cast<std::size_t>(size / 2 * b.width));
        for (float& pair : q) pair = std::bit_cast<float>(pair_of(b.draw(1)[0], b.draw(1)[0]));
        const std::vector<float> c = b.draw(b.width);
        std::vector<float> want(static_cast<std::size_t>(keys * b.width), kNan), got = want;
        std::vector<float> want_top(static_cast<std::size_t>(b.width), kNan), top = want_top;
        const auto* const bytes = reinterpret_cast<const std::byte*>(k.data());
        const Stairs all(keys, 1, 0);
        kernels->scores(bytes, std::int64_t{2} * stride, keys, all.seen, q.data(), size, 1,
                        c.data(), want.data(), want_top.data());
        kernels->scores_few(bytes, std::int64_t{2} * stride, keys, q.data(), rows, size, c.data(),
                            got.data(), top.data(), bytes);
        for (int j = 0; j < keys; ++j) {
          for (int r = 0; r < b.width; ++r) {
            const auto n = static_cast<std::size_t>(j * b.width + r);
            ASSERT_TRUE(same_bits(got[n], r < rows ? want[n] : 0.0f)) << j << ", row " << r;
          }
        }
        for (int r = 0; r < rows; ++r) {
          const auto n = static_cast<std::size_t>(r);
          ASSERT_TRUE(same_bits(top[n], want_top[n])) << r;
        }
      }
    }
  }
}

TEST_F(bf16_kernels, values_of_few_rows_have_the_same_bits) {
  for (int rows = 1; rows <= kFewRows; ++rows) {
    for (const int keys : {1, 2, 3, 31, 192}) {
      for (const int size : {32, 64, 96, 128, 256}) {
        Bench b(*floats, 1);
        const int stride = size + 1;
        const auto v = halves(b.draw(keys * stride + size));
        const auto* const bytes = reinterpret_cast<const std::byte*>(v.data());
        std::vector<float> p = b.draw(keys * b.width);
        kernels->pairs(p.data(), keys, 1);
        std::vector<float> words(static_cast<std::size_t>((keys + 1) / 2 * size));
        kernels->interleave(bytes, std::int64_t{2} * stride, keys, size, words.data());
        const auto a = b.draw(b.width);
        const Stairs all(keys, 1, 0);
        for (const bool empty : {false, true}) {
          const float* const decay = empty ? nullptr : a.data();
          std::vector<float> want = b.draw(size * b.width), got(static_cast<std::size_t>(4 * size));
          for (int r = 0; r < 4; ++r) {
            for (int x = 0; x < size; ++x) {
              got[static_cast<std::size_t>(r * size + x)] =
                  want[static_cast<std::size_t>(x * b.width + r)];
            }
          }
          const auto before = got;
          kernels->values(words.data(), all.seen, p.data(), size, 1, decay, want.data());
          kernels->values_few(bytes, std::int64_t{2} * stride, keys, p.data(), rows, size, decay,
                              got.data(), bytes);
          for (int r = 0; r < 4; ++r) {
            for (int x = 0; x < size; ++x) {
              const auto n = static_cast<std::size_t>(r * size + x);
              ASSERT_TRUE(same_bits(
                  got[n], r < rows ? want[static_cast<std::size_t>(x * b.width + r)] : before[n]))
                  << "coordinate " << x << ", row " << r << ", " << keys << " keys";
            }
          }
        }
      }
    }
  }
}

TEST_F(bf16_kernels, values_are_sums_of_products_of_all_pairs_and_what_is_hidden_meets_zero) {
  on_tiles([&](Bench& b, int keys, int size) {
    if (keys > 30 && size > 40) return;  // the plain sums take long
    const int pairs = (keys + 1) / 2;
    std::vector<float> p = b.draw(keys * b.width), v = b.draw(keys * size);
    std::vector<std::uint64_t> visible(static_cast<std::size_t>(kMostBlockKeys));
    std::mt19937_64 bits(3);
    for (int j = 0; j < keys; ++j) {
      visible[static_cast<std::size_t>(j)] = bits();
      for (int r = 0; r < b.width; ++r) {
        float& weight = p[static_cast<std::size_t>(j * b.width + r)];
        const bool sees = (visible[static_cast<std::size_t>(j)] >> r & 1) != 0;
        weight = sees ? from_bf16(to_bf16(std::fabs(weight))) : 0.0f;
      }
    }
    for (float& x : v) x = from_bf16(to_bf16(x));
    std::vector<float> words(static_cast<std::size_t>(pairs * size));
    kernels->interleave(reinterpret_cast<const std::byte*>(halves(v).data()),
                        std::int64_t{2} * size, keys, size, words.data());
    std::vector<float> paired = p;
    kernels->pairs(paired.data(), keys, b.vectors);
    const std::vector<float> old = b.draw(size * b.width), a = b.draw(b.width);
    std::vector<float> plain = old, seen = old;
    const Stairs all(keys, b.vectors, 0);
    kernels->values(words.data(), all.seen, paired.data(), size, b.vectors, a.data(), plain.data());
    // A NaN where nobody sees it, and in the place of the partner that an odd last key lacks.
    visible[0] = 0;
    for (int r = 0; r < b.width; ++r) p[static_cast<std::size_t>(r)] = 0;
    paired = p;
    kernels->pairs(paired.data(), keys, b.vectors);
    std::vector<float> clean = old;
    kernels->values(words.data(), all.seen, paired.data(), size, b.vectors, a.data(), clean.data());
    for (int x = 0; x < size; ++x) {
      const auto nan = [](float word, int part) {
        const std::uint32_t keep = part == 0 ? 0xFFFF0000u : 0x0000FFFFu;
        return std::bit_cast<float>((std::bit_cast<std::uint32_t>(word) & keep) |
                                    (part == 0 ? 0x00007FC0u : 0x7FC00000u));
      };
      words[static_cast<std::size_t>(x)] = nan(words[static_cast<std::size_t>(x)], 0);
      float& last = words[static_cast<std::size_t>((pairs - 1) * size + x)];
      if (keys % 2 == 1) last = nan(last, 1);
    }
    kernels->values_visible(words.data(), keys, paired.data(), size, b.vectors, a.data(),
                            visible.data(), seen.data());
    for (int x = 0; x < size; ++x) {
      for (int r = 0; r < b.width; ++r) {
        const auto n = static_cast<std::size_t>(x * b.width + r);
        ASSERT_TRUE(same_bits(seen[n], clean[n])) << "coordinate " << x << ", row " << r;
        double want = double{old[n]} * a[static_cast<std::size_t>(r)], sizes = std::fabs(want);
        for (int j = 1; j < keys; ++j) {
          const double product = double{p[static_cast<std::size_t>(j * b.width + r)]} *
                                 v[static_cast<std::size_t>(j * size + x)];
          want += product;
          sizes += std::fabs(product);
        }
        ASSERT_NEAR(clean[n], want, 0x1p-24 * (keys + 4) * sizes) << "coordinate " << x;
      }
    }
  });
}

}  // namespace
}  // namespace heed::kernels

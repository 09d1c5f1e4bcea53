// The fold: maxima, weights, merging states, the last division.
#include <cstdlib>
#include <string>

#include "heed/runtime.h"
#include "kernels_support.h"

namespace heed::kernels {
namespace {

/// 2^x of the numbers with these bits, as weights of keys whose maximum is 0, as many as a tile
/// holds.
std::vector<float> exp2_of(const Kernels<float>& kernels, const std::vector<float>& x) {
  const int vectors = kernels.highest_vectors, width = vectors * kernels.lanes;
  const std::size_t tile = static_cast<std::size_t>(kBlockKeys * width);
  std::vector<float> all, s(tile);
  const std::vector<float> zero(static_cast<std::size_t>(width), 0.0f);
  for (std::size_t first = 0; first < x.size(); first += tile) {
    const std::size_t count = std::min(tile, x.size() - first);
    std::copy_n(x.data() + first, count, s.data());
    auto m = zero, l = zero, a = zero;
    kernels.softmax(s.data(), kBlockKeys, vectors, zero.data(), m.data(), l.data(), a.data());
    all.insert(all.end(), s.data(), s.data() + count);
  }
  return all;
}

/// |got - 2^x| in units of the last place of 2^x, where that is normal.
double error_of(float got, float x) {
  if (std::isnan(got)) return INFINITY;
  const double want = std::exp2(double{x});
  const std::uint64_t exponent = std::bit_cast<std::uint64_t>(want) >> 52;  // biased by 1023
  return std::fabs(got - want) * std::bit_cast<double>((2046 + 23 - exponent) << 52);
}

TEST(exp2, nan_is_infinitely_far_off) {
  EXPECT_EQ(error_of(kNan, -1.0f), INFINITY);
  EXPECT_EQ(ulps(kNan, 0.5), INFINITY);
  EXPECT_EQ(error_of(0.5f, -1.0f), 0.0);
  EXPECT_EQ(ulps(0.5f, 0.5), 0.0);
}

/// Every float from -0 to -inf and every NaN where HEED_EXHAUSTIVE is set (a minute or two, in
/// ./dev test --full), else one of 4099. The scalar kernel is held to the truth, the others to its
/// bits.
TEST(exp2, of_all_floats_that_are_not_positive) {
  const std::uint32_t step = std::getenv("HEED_EXHAUSTIVE") != nullptr ? 1 : 4099;
  const Kernels<float>& scalar = *kernels_for<float>(kScalar);
  std::vector<const Kernels<float>*> others;
  for (const InstructionSet& set : instruction_sets()) {
    const int target = static_cast<int>(set.isa);
    if (set.compiled && set.supported && target != kScalar && table_of(target) == target) {
      others.push_back(kernels_for<float>(target));
    }
  }
  constexpr std::size_t kChunk = std::size_t{1} << 16;
  std::vector<float> x;
  std::int64_t floats = 0;
  double worst = 0;
  const auto judge = [&] {
    const std::vector<float> got = exp2_of(scalar, x);
    for (std::size_t n = 0; n < x.size(); ++n) {
      if (x[n] >= -126.0f) {
        worst = std::max(worst, error_of(got[n], x[n]));
      } else if (x[n] < -126.5f) {
        ASSERT_TRUE(same_bits(got[n], 0.0f)) << x[n];
      } else if (std::isnan(x[n])) {
        ASSERT_TRUE(std::isnan(got[n])) << std::bit_cast<std::uint32_t>(x[n]);
      }
    }
    for (const Kernels<float>* kernels : others) {
      const std::vector<float> same = exp2_of(*kernels, x);
      for (std::size_t n = 0; n < x.size(); ++n) {
        ASSERT_TRUE(same_bits(same[n], got[n]))
            << x[n] << " on " << kernels->target << ": " << same[n] << ", scalar " << got[n];
      }
    }
    floats += static_cast<std::int64_t>(x.size());
    x.clear();
  };
  // From -0 to the last NaN, then the NaNs without a sign.
  for (const auto& [first, last] :
       {std::pair{0x80000000u, 0xFFFFFFFFu}, std::pair{0x7F800001u, 0x7FFFFFFFu}}) {
    for (std::uint64_t bits = first; bits <= last; bits += step) {
      x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
      if (x.size() == kChunk) {
        judge();
        if (HasFatalFailure()) return;
      }
    }
  }
  judge();
  report("2^x", worst);
  EXPECT_LE(worst, 0.952) << "2^x, in units of the last place";
  RecordProperty("cases", std::to_string(floats));
}

}  // namespace

void test_maxima(Bench& b) {
  for (const int keys : kSizes) {
    const auto s = b.draw(keys * b.width);
    std::vector<float> highest(static_cast<std::size_t>(b.width), kNan);
    b.kernels.maxima(s.data(), keys, b.vectors, highest.data());
    expect_tile(highest, b.width, [&](int, int r) {
      float top = -kInf;
      for (int j = 0; j < keys; ++j)
        top = std::max(top, s[static_cast<std::size_t>(j * b.width + r)]);
      return top;
    });
  }
}

void test_softmax(Bench& b) {
  // 2^x for every 61st float of [-127, 0], as p of one key with the maximum at 0.
  std::vector<float> s(static_cast<std::size_t>(kBlockKeys * b.width));
  std::vector<float> m(static_cast<std::size_t>(b.width));
  std::vector<float> l(m.size());
  std::vector<float> a(m.size());
  double worst = 0.0;
  for (std::uint32_t bits = 0x80000000u; bits < std::bit_cast<std::uint32_t>(-127.0f);) {
    std::fill(m.begin(), m.end(), 0.0f);
    std::fill(l.begin(), l.end(), 0.0f);
    for (float& x : s) x = std::bit_cast<float>(bits += 61);
    const auto before = s;
    b.kernels.softmax(s.data(), kBlockKeys, b.vectors, m.data(), m.data(), l.data(), a.data());
    for (std::size_t i = 0; i < s.size(); ++i) {
      if (before[i] > -126.0f) worst = std::max(worst, ulps(s[i], std::exp2(double{before[i]})));
      if (before[i] < -126.5f) {
        ASSERT_EQ(s[i], 0.0f) << before[i];
      }
    }
    ASSERT_EQ(a[0], 1.0f) << "the maximum stays: exactly 1";
  }
  report("2^x", worst);
  EXPECT_LE(worst, 0.952) << "2^x, in units of the last place";

  // The fold itself, from a state that already holds keys.
  const auto scores = b.draw(7 * b.width, 3.0f);
  s = scores;
  std::fill(m.begin(), m.end(), 1.0f);
  std::fill(l.begin(), l.end(), 5.0f);
  std::vector<float> highest(m.size());
  b.kernels.maxima(s.data(), 7, b.vectors, highest.data());
  b.kernels.softmax(s.data(), 7, b.vectors, highest.data(), m.data(), l.data(), a.data());
  for (int r = 0; r < b.width; ++r) {
    float top = 1.0f;
    float sum = 0.0f;
    for (int j = 0; j < 7; ++j) {
      top = std::max(top, scores[static_cast<std::size_t>(j * b.width + r)]);
      sum += s[static_cast<std::size_t>(j * b.width + r)];
    }
    const auto i = static_cast<std::size_t>(r);
    EXPECT_EQ(m[i], top);
    EXPECT_LE(ulps(a[i], std::exp2(double{1.0f - top})), 0.952);
    EXPECT_TRUE(same_bits(l[i], std::fma(5.0f, a[i], sum)));
  }

  // A row that sees nothing stays the identity; a NaN reaches the sum.
  std::fill(s.begin(), s.end(), -kInf);
  std::fill(m.begin(), m.end(), -kInf);
  std::fill(l.begin(), l.end(), 0.0f);
  b.kernels.maxima(s.data(), 5, b.vectors, highest.data());
  b.kernels.softmax(s.data(), 5, b.vectors, highest.data(), m.data(), l.data(), a.data());
  EXPECT_EQ(m[0], -kInf);
  EXPECT_EQ(l[0], 0.0f);
  EXPECT_EQ(s[0], 0.0f);
  for (const std::uint32_t payload : {0x7FC00000u, 0x7FC00001u, 0xFFFFFFFFu, 0x7F800001u}) {
    std::fill(s.begin(), s.end(), 1.0f);
    std::fill(m.begin(), m.end(), -kInf);
    std::fill(l.begin(), l.end(), 0.0f);
    s[static_cast<std::size_t>(2 * b.width)] = std::bit_cast<float>(payload);
    b.kernels.maxima(s.data(), 5, b.vectors, highest.data());
    b.kernels.softmax(s.data(), 5, b.vectors, highest.data(), m.data(), l.data(), a.data());
    EXPECT_TRUE(std::isnan(l[0])) << std::hex << payload;
    if (b.width > 1) {
      EXPECT_EQ(l[1], 5.0f) << "no other row sees it";
    }
  }
}

void test_merge(Bench& b) {
  constexpr int kSize = 5;
  const auto n = static_cast<std::size_t>(b.width);
  std::vector<float> m1(n, 2.0f), l1(n, 3.0f), m2(n, 5.0f), l2(n, 7.0f);
  const auto o1 = b.draw(kSize * b.width);
  const auto o2 = b.draw(kSize * b.width);
  auto m = m1, l = l1, o = o1;
  b.kernels.merge(m.data(), l.data(), o.data(), m2.data(), l2.data(), o2.data(), kSize, b.vectors);
  EXPECT_EQ(m[0], 5.0f);
  EXPECT_EQ(l[0], std::fma(3.0f, 0.125f, 7.0f));
  EXPECT_EQ(o[0], std::fma(o1[0], 0.125f, o2[0]));
  // The identity, on either side.
  const std::vector<float> none(n, -kInf), zero(n, 0.0f), zeros(o1.size(), 0.0f);
  m = m1, l = l1, o = o1;
  b.kernels.merge(m.data(), l.data(), o.data(), none.data(), zero.data(), zeros.data(), kSize,
                  b.vectors);
  EXPECT_EQ(m, m1);
  EXPECT_EQ(l, l1);
  EXPECT_EQ(o, o1);
  m = none, l = zero, o = zeros;
  b.kernels.merge(m.data(), l.data(), o.data(), m1.data(), l1.data(), o1.data(), kSize, b.vectors);
  EXPECT_EQ(m, m1);
  EXPECT_EQ(l, l1);
  EXPECT_EQ(o, o1);
  m = none, l = zero, o = zeros;
  b.kernels.merge(m.data(), l.data(), o.data(), none.data(), zero.data(), nullptr, kSize,
                  b.vectors);
  EXPECT_EQ(m, none) << "two empty parts are empty, not NaN";
  EXPECT_EQ(l, zero);
  EXPECT_EQ(o, zeros);
}

void test_finish(Bench& b) {
  const auto n = static_cast<std::size_t>(b.width);
  std::vector<float> m(n, 0.0f), l(n), inverse(n), lse(n);
  double worst = 0.0;
  // log2 by way of lse = ln2 (0 + log2 l): two roundings more than log2's own.
  for (std::uint32_t bits = std::bit_cast<std::uint32_t>(1.0f); bits < 0x7f000000u;) {
    for (float& x : l) x = std::bit_cast<float>(std::min(bits += 499, 0x7f7fffffu));
    b.kernels.finish(m.data(), l.data(), b.vectors, inverse.data(), lse.data());
    for (std::size_t r = 0; r < n; ++r) {
      worst = std::max(worst, ulps(lse[r], std::log(double{l[r]})));
      ASSERT_EQ(inverse[r], 1.0f / l[r]);
    }
  }
  report("ln by way of log2", worst);
  EXPECT_LE(worst, 2.82) << "ln by way of log2, in units of the last place";
  m.assign(n, 4.0f), l.assign(n, 1.0f);
  b.kernels.finish(m.data(), l.data(), b.vectors, inverse.data(), lse.data());
  EXPECT_EQ(lse[0], 4.0f * kLn2<float>) << "log2 of 1 is exactly 0";
  m.assign(n, -kInf), l.assign(n, 0.0f);
  b.kernels.finish(m.data(), l.data(), b.vectors, inverse.data(), lse.data());
  EXPECT_EQ(inverse[0], 0.0f);
  EXPECT_EQ(lse[0], -kInf);
  l.assign(n, kNan);
  b.kernels.finish(m.data(), l.data(), b.vectors, inverse.data(), lse.data());
  EXPECT_TRUE(std::isnan(inverse[0]) && std::isnan(lse[0]));
}

void test_weights(Bench& b) {
  const auto n = static_cast<std::size_t>(b.width);
  const std::vector<float> m(n, 3.0f), inverse(n, 0.5f);
  std::vector<float> s(4 * n, 2.0f);
  s[n] = -kInf;
  b.kernels.weights(s.data(), 4, b.vectors, m.data(), inverse.data());
  EXPECT_EQ(s[0], 0.25f);
  EXPECT_EQ(s[n], 0.0f);
  const std::vector<float> nans(n, kNan), empty(n, -kInf);
  s.assign(4 * n, 2.0f);
  s[n] = -kInf;
  b.kernels.weights(s.data(), 4, b.vectors, m.data(), nans.data());
  EXPECT_TRUE(std::isnan(s[0]));
  EXPECT_EQ(s[n], 0.0f) << "a masked place is 0 even in a row of NaN";
  s.assign(4 * n, -kInf);
  b.kernels.weights(s.data(), 4, b.vectors, empty.data(), nans.data());
  EXPECT_EQ(s[0], 0.0f);
}

void test_row_weights(Bench& b) {
  for (const int keys : kSizes) {
    for (const auto& [m, inverse] : {std::pair{3.0f, 0.5f}, {-kInf, 1.0f}, {3.0f, kNan}}) {
      auto row = b.draw(keys);
      if (keys > 2) row[1] = -kInf, row[2] = kNan;
      // the same numbers, each a key of the first row of a tile
      std::vector<float> tile(static_cast<std::size_t>(keys * b.width));
      for (int j = 0; j < keys; ++j) {
        tile[static_cast<std::size_t>(j * b.width)] = row[static_cast<std::size_t>(j)];
      }
      const std::vector<float> ms(static_cast<std::size_t>(b.width), m);
      const std::vector<float> inverses(static_cast<std::size_t>(b.width), inverse);
      b.kernels.weights(tile.data(), keys, b.vectors, ms.data(), inverses.data());
      b.kernels.row_weights(row.data(), keys, m, inverse);
      for (int j = 0; j < keys; ++j) {
        ASSERT_TRUE(same_bits(row[static_cast<std::size_t>(j)],
                              tile[static_cast<std::size_t>(j * b.width)]))
            << keys << " keys, key " << j;
      }
    }
  }
}

}  // namespace heed::kernels

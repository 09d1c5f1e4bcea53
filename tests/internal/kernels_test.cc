// Every kernel on every instruction set of this machine, against plain loops with std::fma.
//
// Chains are compared bit for bit: they are the contract. Elementary functions are compared with
// libm's double ones, in units of the last place. The list of kernels makes the list of tests: a
// kernel without one does not compile.

#include "kernels/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "heed/runtime.h"

namespace heed::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

bool same_bits(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

/// One kernel table and one tile of random numbers, for each number of vectors.
class Bench {
 public:
  Bench(const Kernels<float>& table, int vectors_in)
      : kernels(table), vectors(vectors_in), width(vectors_in * table.lanes), random_(7) {}

  std::vector<float> draw(std::int64_t count, float spread = 1.0f) {
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

constexpr int kSizes[] = {0, 1, 2, 3, 5, 6, 7, 8, 11, 12, 13, 14, 15, 16, 17, 29, 64, 96};

void test_pack(Bench& b) {
  for (const int size : kSizes) {
    for (int count = 1; count <= b.width; ++count) {
      const auto dense = b.draw(b.width * size);
      const auto rows = b.rows(dense, count, size);
      std::vector<float> q(static_cast<std::size_t>(size * b.width), kNan);
      b.kernels.pack(rows.data(), count, size, b.vectors, q.data());
      expect_tile(q, b.width, [&](int x, int r) {
        return r < count ? rows[static_cast<std::size_t>(r)][x] : 0.0f;
      });
    }
  }
}

void test_unpack(Bench& b) {
  for (const int size : kSizes) {
    for (int count = 1; count <= b.width; ++count) {
      const auto o = b.draw(b.width * size);
      const auto f = b.draw(b.width);
      std::vector<float> dense(static_cast<std::size_t>(b.width * size), kNan);
      std::vector<float*> rows;
      for (int r = 0; r < b.width; ++r) rows.push_back(dense.data() + r * size);
      b.kernels.unpack(o.data(), f.data(), count, size, b.vectors, rows.data());
      for (int r = 0; r < b.width; ++r) {
        for (int x = 0; x < size; ++x) {
          const auto i = static_cast<std::size_t>(x * b.width + r);
          const float want =
              r < count ? std::fma(o[i], f[static_cast<std::size_t>(r)], 0.0f) : kNan;
          ASSERT_TRUE(same_bits(rows[static_cast<std::size_t>(r)][x], want)) << r << ", " << x;
        }
      }
    }
  }
  const std::vector<float> zeros(static_cast<std::size_t>(b.width), -0.0f);
  const std::vector<float> ones(static_cast<std::size_t>(b.width), 1.0f);
  float out = 1;
  float* row = &out;
  b.kernels.unpack(zeros.data(), ones.data(), 1, 1, b.vectors, &row);
  EXPECT_FALSE(std::signbit(out)) << "an exact zero is written as +0";
}

void test_reciprocal_norms(Bench& b) {
  for (const int size : kSizes) {
    auto q = b.draw(b.width * size);
    for (int x = 0; x < size; ++x) q[static_cast<std::size_t>(x * b.width)] = 0.0f;  // row 0
    std::vector<float> f(static_cast<std::size_t>(b.width), kNan);
    b.kernels.reciprocal_norms(q.data(), size, b.vectors, f.data());
    expect_tile(f, b.width, [&](int, int r) {
      float sum = 0.0f;
      for (int x = 0; x < size; ++x) {
        const float e = q[static_cast<std::size_t>(x * b.width + r)];
        sum = std::fma(e, e, sum);
      }
      return sum == 0.0f ? 0.0f : 1.0f / std::sqrt(sum);
    });
  }
}

void test_scale_rows(Bench& b) {
  const auto before = b.draw(b.width * 5);
  const auto f = b.draw(b.width);
  auto q = before;
  b.kernels.scale_rows(q.data(), 5, b.vectors, f.data());
  expect_tile(q, b.width, [&](int x, int r) {
    return before[static_cast<std::size_t>(x * b.width + r)] * f[static_cast<std::size_t>(r)];
  });
}

void test_scores(Bench& b) {
  for (const int keys : kSizes) {
    for (const int size : {0, 1, 2, 7, 64}) {
      const int stride = size + 3;
      const auto k = b.draw(keys * stride + size);
      const auto q = b.draw(size * b.width);
      const auto c = b.draw(b.width);
      std::vector<float> highest(static_cast<std::size_t>(b.width), kNan);
      std::vector<float> s(static_cast<std::size_t>(keys * b.width), kNan);
      b.kernels.scores(k.data(), stride, keys, q.data(), size, b.vectors, c.data(), s.data(),
                       highest.data());
      for (int r = 0; r < b.width; ++r) {
        float top = -kInf;
        for (int j = 0; j < keys; ++j)
          top = std::max(top, s[static_cast<std::size_t>(j * b.width + r)]);
        ASSERT_EQ(highest[static_cast<std::size_t>(r)], top);
      }
      expect_tile(s, b.width, [&](int j, int r) {
        float acc = 0.0f;
        for (int x = 0; x < size; ++x) {
          acc = std::fma(k[static_cast<std::size_t>(j * stride + x)],
                         q[static_cast<std::size_t>(x * b.width + r)], acc);
        }
        return c[static_cast<std::size_t>(r)] * acc;
      });
    }
  }
}

/// o[x][r] = fma(o, a, chain over the keys that row r sees)
template <typename Run, typename Sees>
void check_values(Bench& b, const Run& run, const Sees& sees) {
  for (const int size : kSizes) {
    for (const int keys : {0, 1, 2, 31, 96}) {
      const int stride = size + 1;
      const auto v = b.draw(keys * stride + size);
      const auto p = b.draw(keys * b.width);
      const auto a = b.draw(b.width);
      const auto before = b.draw(size * b.width);
      auto o = before;
      run(v, stride, keys, p, size, a, o);
      expect_tile(o, b.width, [&](int x, int r) {
        float acc = 0.0f;
        for (int j = 0; j < keys; ++j) {
          if (!sees(j, r)) continue;
          acc = std::fma(v[static_cast<std::size_t>(j * stride + x)],
                         p[static_cast<std::size_t>(j * b.width + r)], acc);
        }
        return std::fma(before[static_cast<std::size_t>(x * b.width + r)],
                        a[static_cast<std::size_t>(r)], acc);
      });
    }
  }
}

void test_values(Bench& b) {
  check_values(
      b,
      [&](const auto& v, int stride, int keys, const auto& p, int size, const auto& a, auto& o) {
        b.kernels.values(v.data(), stride, keys, p.data(), size, b.vectors, a.data(), o.data());
      },
      [](int, int) { return true; });
}

void test_values_visible(Bench& b) {
  const auto words = b.draw_words();
  check_values(
      b,
      [&](const auto& v, int stride, int keys, const auto& p, int size, const auto& a, auto& o) {
        b.kernels.values_visible(v.data(), stride, keys, p.data(), size, b.vectors, a.data(),
                                 words.data(), o.data());
      },
      [&](int j, int r) { return (words[static_cast<std::size_t>(j)] >> r & 1) != 0; });
}

void test_scale_keys(Bench& b) {
  const auto before = b.draw(9 * b.width);
  const auto f = b.draw(9);
  auto s = before;
  b.kernels.scale_keys(s.data(), 9, b.vectors, f.data());
  expect_tile(s, b.width, [&](int j, int r) {
    return before[static_cast<std::size_t>(j * b.width + r)] * f[static_cast<std::size_t>(j)];
  });
}

/// |got - want| in units of the last place of want, for normal want.
double ulps(float got, double want) {
  const int exponent = std::max(std::ilogb(want), -126);
  return std::fabs(got - want) / std::ldexp(1.0, exponent - 23);
}

/// The figures that docs/numerics.md quotes.
void report(const char* function, double worst) {
  std::printf("%s: at most %.3f units in the last place\n", function, worst);
}

void test_softcap(Bench& b) {
  std::vector<float> s(static_cast<std::size_t>(kBlockKeys * b.width));
  double worst = 0.0;
  for (std::uint32_t bits = 0; bits < 0x7f800000u;) {  // every 997th positive float
    const auto before = [&] {
      for (float& x : s) {
        x = std::bit_cast<float>(std::min(bits, 0x7f7fffffu));
        if (bits & 1) x = -x;
        bits += 997;
      }
      return s;
    }();
    b.kernels.softcap(s.data(), kBlockKeys, b.vectors, 1.0f);
    for (std::size_t i = 0; i < s.size(); ++i) {
      worst = std::max(worst, ulps(s[i], std::tanh(static_cast<double>(before[i]))));
    }
  }
  report("tanh", worst);
  EXPECT_LE(worst, 2.0) << "tanh, in units of the last place";
  std::fill(s.begin(), s.end(), kNan);
  b.kernels.softcap(s.data(), 1, b.vectors, 30.0f);
  EXPECT_TRUE(std::isnan(s[0]));
  std::fill(s.begin(), s.end(), -kInf);
  b.kernels.softcap(s.data(), 1, b.vectors, 30.0f);
  EXPECT_EQ(s[0], -30.0f);
}

void test_alibi(Bench& b) {
  const auto before = b.draw(20 * b.width);
  const auto slope = b.draw(b.width);
  std::vector<std::int32_t> distance(static_cast<std::size_t>(b.width));
  for (int r = 0; r < b.width; ++r) distance[static_cast<std::size_t>(r)] = (r - 5) * 40'000'001;
  auto s = before;
  b.kernels.alibi(s.data(), 20, b.vectors, slope.data(), distance.data());
  expect_tile(s, b.width, [&](int j, int r) {
    const auto apart = std::abs(distance[static_cast<std::size_t>(r)] - j);
    return std::fma(-slope[static_cast<std::size_t>(r)], static_cast<float>(apart),
                    before[static_cast<std::size_t>(j * b.width + r)]);
  });
}

void test_add_bias(Bench& b) {
  const auto before = b.draw(10 * b.width);
  auto bias = b.draw(10 * b.width);
  bias[1] = -kInf;
  bias[static_cast<std::size_t>(3 * b.width + b.width - 1)] = -kInf;
  bias[2] = std::numeric_limits<float>::lowest();
  bias[static_cast<std::size_t>(b.width)] = kNan;
  auto s = before;
  std::vector<std::uint64_t> visible(10, ~std::uint64_t{0});
  EXPECT_TRUE(b.kernels.add_bias(s.data(), 10, b.vectors, bias.data(), visible.data()));
  if (b.width > 2) {
    EXPECT_TRUE(std::isfinite(s[2])) << "finfo.min stays finite in base 2";
  }
  EXPECT_TRUE(std::isnan(s[static_cast<std::size_t>(b.width)]));
  for (int j = 0; j < 10; ++j) {
    for (int r = 0; r < b.width; ++r) {
      const float x = bias[static_cast<std::size_t>(j * b.width + r)];
      EXPECT_EQ((visible[static_cast<std::size_t>(j)] >> r & 1) == 0, x == -kInf) << j << ", " << r;
      if (std::fabs(x) < 100.0f) {
        const auto i = static_cast<std::size_t>(j * b.width + r);
        EXPECT_TRUE(same_bits(s[i], before[i] + x * kLog2e<float>));
      }
    }
  }
  std::fill(bias.begin(), bias.end(), 1.0f);
  EXPECT_FALSE(b.kernels.add_bias(s.data(), 10, b.vectors, bias.data(), visible.data()));
}

void test_scale_scores(Bench& b) {
  std::vector<float> s(static_cast<std::size_t>(b.width), std::numeric_limits<float>::max());
  b.kernels.scale_scores(s.data(), 1, b.vectors, kLog2e<float>);
  EXPECT_EQ(s[0], std::numeric_limits<float>::max()) << "finite stays finite";
  s.assign(s.size(), -kInf);
  b.kernels.scale_scores(s.data(), 1, b.vectors, kLn2<float>);
  EXPECT_EQ(s[0], -kInf);
  s.assign(s.size(), 3.0f);
  b.kernels.scale_scores(s.data(), 1, b.vectors, kLn2<float>);
  EXPECT_EQ(s[0], 3.0f * kLn2<float>);
}

void test_mask(Bench& b) {
  const auto words = b.draw_words();
  auto before = b.draw(kBlockKeys * b.width);
  before[0] = kNan;
  auto s = before;
  b.kernels.mask(s.data(), kBlockKeys, b.vectors, words.data());
  expect_tile(s, b.width, [&](int j, int r) {
    const bool visible = (words[static_cast<std::size_t>(j)] >> r & 1) != 0;
    return visible ? before[static_cast<std::size_t>(j * b.width + r)] : -kInf;
  });
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

void test_all_finite(Bench& b) {
  for (const int size : kSizes) {
    if (size == 0) continue;
    const int stride = size + 2;
    auto v = b.draw(4 * stride);
    v[static_cast<std::size_t>(size)] = kNan;  // between the rows: never looked at
    EXPECT_TRUE(b.kernels.all_finite(v.data(), stride, 4, size));
    for (const float bad : {kNan, kInf, -kInf}) {
      for (const int at : {0, size - 1, 3 * stride + size - 1}) {
        auto w = v;
        w[static_cast<std::size_t>(at)] = bad;
        EXPECT_FALSE(b.kernels.all_finite(w.data(), stride, 4, size)) << size << ", " << at;
      }
    }
    v.assign(v.size(), std::numeric_limits<float>::max());
    EXPECT_TRUE(b.kernels.all_finite(v.data(), stride, 4, size));
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
  EXPECT_LE(worst, 4.0) << "ln by way of log2, in units of the last place";
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

/// All kernels of all instruction sets that this machine runs.
template <typename Test>
void on_every_target(const Test& test) {
  int ran = 0;
  for (const InstructionSet& set : instruction_sets()) {
    if (!set.compiled || !set.supported) continue;
    const Kernels<float>* table = kernels_for<float>(static_cast<int>(set.isa));
    ASSERT_NE(table, nullptr) << name_of(set.isa);
    ASSERT_EQ(table->target, static_cast<int>(set.isa)) << "another one ran";
    for (int vectors = 1; vectors <= table->highest_vectors; ++vectors) {
      SCOPED_TRACE(std::string(name_of(set.isa)) + ", " + std::to_string(vectors) + " vectors");
      Bench bench(*table, vectors);
      test(bench);
      ++ran;
    }
  }
  EXPECT_GT(ran, 0);
}

#define HEED_TEST(name, result, parameters) \
  TEST(kernels, name) { on_every_target(&test_##name); }
#define Real float
HEED_KERNELS(HEED_TEST)
#undef Real

TEST(targets, tables_of_the_two_types_are_two) {
  for (const InstructionSet& set : instruction_sets()) {
    if (!set.compiled || !set.supported) continue;
    const auto* narrow = kernels_for<float>(static_cast<int>(set.isa));
    const auto* wide = kernels_for<double>(static_cast<int>(set.isa));
    ASSERT_NE(static_cast<const void*>(narrow), static_cast<const void*>(wide));
    EXPECT_TRUE(narrow->lanes == 1 || narrow->lanes == 2 * wide->lanes) << name_of(set.isa);
  }
}

TEST(targets, scalar_is_always_there) {
  EXPECT_NE(kernels_for<float>(kScalar), nullptr);
  EXPECT_NE(kernels_for<double>(kScalar), nullptr);
  EXPECT_TRUE(targets().supported & 1u << kScalar);
}

}  // namespace
}  // namespace heed::kernels

// What the backward pass adds to the kernels: chains bit for bit, exponentials against libm.
#include "kernels_support.h"

namespace heed::kernels {

namespace {

std::size_t index(std::int64_t row, std::int64_t width, std::int64_t column) {
  return static_cast<std::size_t>(row * width + column);
}

/// Two tiles, the second with fewer rows; out[j][x] += chain over the rows that `sees` allows.
template <typename Run, typename Sees>
void check_outer(Bench& b, const Run& run, const Sees& sees) {
  const int lanes = b.kernels.lanes;
  for (const int keys : {0, 1, 5, 6, 31, 96}) {
    for (const int columns : {1, 2, 4, 5, 7}) {
      const int size = columns * lanes;
      const int stride = size + lanes;
      const int second = lanes;  // the width of the second tile, with one row
      const auto p = b.draw(keys * b.width), p2 = b.draw(keys * second);
      const auto rows = b.draw(b.width * stride), rows2 = b.draw(stride);
      const auto words = b.draw_words(), words2 = b.draw_words();
      const WeightedRows<float> tiles[] = {{p.data(), rows.data(), words.data(), b.width, b.width},
                                           {p2.data(), rows2.data(), words2.data(), second, 1}};
      const auto before = b.draw(keys * size);
      auto out = before;
      run(tiles, keys, stride, size, out.data());
      expect_tile(out, size, [&](int j, int x) {
        float acc = 0.0f;
        for (int r = 0; r < b.width; ++r) {
          if (!sees(words[static_cast<std::size_t>(j)] >> r & 1)) continue;
          acc = std::fma(p[index(j, b.width, r)], rows[index(r, stride, x)], acc);
        }
        if (sees(words2[static_cast<std::size_t>(j)] & 1))
          acc = std::fma(p2[index(j, second, 0)], rows2[static_cast<std::size_t>(x)], acc);
        return before[index(j, size, x)] + acc;
      });
    }
  }
}

}  // namespace

void test_dots(Bench& b) {
  for (const int size : kSizes) {
    const auto x = b.draw(size * b.width), y = b.draw(size * b.width);
    std::vector<float> f(static_cast<std::size_t>(b.width), kNan);
    b.kernels.dots(x.data(), y.data(), size, b.vectors, f.data());
    expect_tile(f, b.width, [&](int, int r) {
      float acc = 0.0f;
      for (int i = 0; i < size; ++i)
        acc = std::fma(x[index(i, b.width, r)], y[index(i, b.width, r)], acc);
      return acc;
    });
  }
}

void test_score_gradients(Bench& b) {
  for (const int keys : kSizes) {
    auto s = b.draw(keys * b.width, 5.0f);
    auto minus_lse = b.draw(b.width, 5.0f);
    const auto d = b.draw(b.width);
    auto dp = b.draw(keys * b.width);
    minus_lse[0] = -kInf;  // a row without keys
    if (keys > 2) {
      s[static_cast<std::size_t>(b.width - 1)] = -kInf;  // hidden, and NaN there
      dp[static_cast<std::size_t>(b.width - 1)] = kNan;
    }
    const auto before = s, dp_before = dp;
    auto alone = s;
    b.kernels.score_gradients(s.data(), dp.data(), keys, b.vectors, minus_lse.data(), d.data());
    expect_tile(dp, b.width, [&](int j, int r) {
      const std::size_t at = index(j, b.width, r);
      return before[at] == -kInf ? 0.0f : s[at] * (dp_before[at] - d[static_cast<std::size_t>(r)]);
    });
    for (std::size_t at = 0; at < s.size(); ++at) {
      const auto r = at % static_cast<std::size_t>(b.width);
      const double e =
          std::fma(static_cast<double>(minus_lse[r]), static_cast<double>(kLog2e<float>),
                   static_cast<double>(before[at]));
      const double p = std::exp2(std::min(e, 0.0));
      ASSERT_NEAR(s[at], p, 2e-6 * p + 1e-37) << "exponent " << e;
    }
    b.kernels.score_gradients(alone.data(), nullptr, keys, b.vectors, minus_lse.data(), nullptr);
    expect_tile(alone, b.width, [&](int j, int r) { return s[index(j, b.width, r)]; });
  }
  std::vector<float> s(static_cast<std::size_t>(b.width), kNan), dp(s.size(), 1.0f);
  const auto zeros = std::vector<float>(s.size());
  b.kernels.score_gradients(s.data(), dp.data(), 1, b.vectors, zeros.data(), zeros.data());
  EXPECT_TRUE(std::isnan(s[0]) && std::isnan(dp[0])) << "a NaN that is not hidden was lost";
}

void test_softcap_gradient(Bench& b) {
  const float cap = 3.0f;
  auto t = b.draw(9 * b.width);
  auto ds = b.draw(9 * b.width);
  ds[0] = 0.0f;
  t[0] = kNan;
  const auto before = ds;
  b.kernels.softcap_gradient(ds.data(), 9, b.vectors, t.data(), cap);
  expect_tile(ds, b.width, [&](int j, int r) {
    const std::size_t at = index(j, b.width, r);
    const float tau = t[at] * (1.0f / cap);
    return before[at] == 0.0f ? 0.0f : before[at] * ((1.0f - tau) * (1.0f + tau));
  });
}

void test_times(Bench& b) {
  auto f = b.draw(9 * b.width);
  auto ds = b.draw(9 * b.width);
  ds[1 % ds.size()] = 0.0f;
  f[1 % ds.size()] = kNan;
  const auto before = ds;
  b.kernels.times(ds.data(), 9, b.vectors, f.data());
  expect_tile(ds, b.width, [&](int j, int r) {
    const std::size_t at = index(j, b.width, r);
    return before[at] == 0.0f ? 0.0f : before[at] * f[at];
  });
}

void test_add_outer(Bench& b) {
  check_outer(
      b,
      [&](const auto& tiles, int keys, int stride, int size, float* out) {
        b.kernels.add_outer(tiles, 2, keys, stride, size, out);
      },
      [](std::uint64_t) { return true; });
}

void test_add_outer_visible(Bench& b) {
  check_outer(
      b,
      [&](const auto& tiles, int keys, int stride, int size, float* out) {
        b.kernels.add_outer_visible(tiles, 2, keys, stride, size, out);
      },
      [](std::uint64_t bit) { return bit != 0; });
}

}  // namespace heed::kernels

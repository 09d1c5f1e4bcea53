// Kernels that change scores on their way to the softmax.
#include "kernels_support.h"

namespace heed::kernels {

void test_scale_keys(Bench& b) {
  const auto before = b.draw(9 * b.width);
  const auto f = b.draw(9);
  auto s = before;
  b.kernels.scale_keys(s.data(), 9, b.vectors, f.data());
  expect_tile(s, b.width, [&](int j, int r) {
    return before[static_cast<std::size_t>(j * b.width + r)] * f[static_cast<std::size_t>(j)];
  });
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
  for (int r = 0; r < b.width; ++r) distance[static_cast<std::size_t>(r)] = (r - 5) * 20'000'001;
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

void test_add(Bench& b) {
  const auto before = b.draw(7 * b.width);
  const auto t = b.draw(7 * b.width);
  auto s = before;
  b.kernels.add(s.data(), 7, b.vectors, t.data());
  expect_tile(s, b.width, [&](int j, int r) {
    const auto i = static_cast<std::size_t>(j * b.width + r);
    return before[i] + t[i];
  });
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

void test_key_bits(Bench& b) {
  for (const int keys : {0, 1, 15, 16, 31, 32, 33, 63, 64}) {
    for (const int count : {1, 2, 63, 64}) {
      std::vector<std::vector<std::uint8_t>> dense;
      std::vector<const std::uint8_t*> rows;
      for (int r = 0; r < count; ++r) {
        auto& row = dense.emplace_back();
        // Any byte but 0 counts; no byte past the keys may be read.
        for (int j = 0; j < keys; ++j) {
          const int byte = (r * 7 + j * 5 + j * r) % 3 == 0 ? 0 : 1 << j % 8;
          row.push_back(static_cast<std::uint8_t>(byte));
        }
        row.shrink_to_fit();
        rows.push_back(r % 5 == 4 ? rows.back() : row.data());
      }
      std::vector<std::uint64_t> words(64, ~std::uint64_t{0});
      b.kernels.key_bits(rows.data(), count, keys, words.data());
      for (int j = 0; j < keys; ++j) {
        for (int r = 0; r < 64; ++r) {
          const bool set = r < count && rows[static_cast<std::size_t>(r)][j] != 0;
          ASSERT_EQ(words[static_cast<std::size_t>(j)] >> r & 1, set ? 1u : 0u) << r << ", " << j;
        }
      }
    }
  }
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

}  // namespace heed::kernels

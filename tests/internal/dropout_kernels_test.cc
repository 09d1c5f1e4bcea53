// Kernels of dropout.
#include "kernels_support.h"
#include "oracle/dropout.h"

namespace heed::kernels {

// The published vectors of Philox4x32-10 (Random123's kat_vectors).
TEST(philox, of_the_oracle_gives_the_known_answers) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(oracle::philox({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  constexpr std::uint32_t kOnes = 0xffffffffu;
  EXPECT_EQ(oracle::philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(oracle::philox({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u},
                           {0xa4093822u, 0x299f31d0u}),
            (Words{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

void test_kept(Bench& b) {
  Draws draws{0xFEDCBA9876543210u, 0, 0, {}, {}};
  for (int r = 0; r < b.width; ++r) {
    draws.query[r] = static_cast<std::uint32_t>(r) * 0x01234567U;
    draws.head[r] = static_cast<std::uint32_t>(r % 3) + 0x7FFFFFFFU;
  }
  for (const double p : {0x1p-16, 0.1, 0.5, 65535.0 / 65536}) {
    const oracle::Dropout dropout{p, draws.seed};
    draws.drop_below = dropout.threshold();
    for (const std::int64_t first :
         {std::int64_t{0}, std::int64_t{13}, std::int64_t{1} << 33, (std::int64_t{1} << 35) + 13})
      for (const int keys : {0, 1, 3, 8, 29, kBlockKeys}) {
        std::vector<std::uint64_t> words(static_cast<std::size_t>(keys) + 1, 7);
        draws.first_key = first / 3;
        b.kernels.kept(draws, first - draws.first_key, keys, b.vectors, words.data());
        EXPECT_EQ(words.back(), 7u) << "a word past the keys was written";
        for (int j = 0; j < keys; ++j)
          for (int r = 0; r < 64; ++r) {
            const bool kept =
                r < b.width && dropout.factor(draws.head[r], draws.query[r], first + j) != 0;
            ASSERT_EQ(words[static_cast<std::size_t>(j)] >> r & 1, kept ? 1u : 0u)
                << "p " << p << ", key " << first + j << ", row " << r;
          }
      }
  }
}

void test_drop(Bench& b) {
  const auto kept = b.draw_words();
  auto before = b.draw(kBlockKeys * b.width);
  before[0] = kNan;
  before[static_cast<std::size_t>(b.width)] = kInf;
  auto s = before;
  b.kernels.drop(s.data(), kBlockKeys, b.vectors, kept.data(), 1.25f);
  expect_tile(s, b.width, [&](int j, int r) {
    const bool keeps = kept[static_cast<std::size_t>(j)] >> r & 1;
    return keeps ? before[static_cast<std::size_t>(j * b.width + r)] * 1.25f : 0.0f;
  });
}

}  // namespace heed::kernels

// The two products, bit for bit against chains of std::fma.
#include <algorithm>

#include "kernels_support.h"

namespace heed::kernels {

namespace {

/// o[x][r] = fma(o, a, chain over the keys that row r sees), and the chain alone where o is empty
template <typename Run, typename Sees>
void check_values(Bench& b, const Run& run, const Sees& sees) {
  for (const int size : kSizes) {
    for (const int keys : {0, 1, 2, 31, 96}) {
      const int stride = size + 1;
      const auto v = b.draw(keys * stride + size);
      const auto p = b.draw(keys * b.width);
      const auto a = b.draw(b.width);
      const auto before = b.draw(size * b.width);
      const auto chain = [&](int x, int r) {
        float acc = 0.0f;
        for (int j = 0; j < keys; ++j) {
          if (!sees(keys, j, r)) continue;
          acc = std::fma(v[static_cast<std::size_t>(j * stride + x)],
                         p[static_cast<std::size_t>(j * b.width + r)], acc);
        }
        return acc;
      };
      auto o = before;
      run(v, stride, keys, p, size, a.data(), o);
      expect_tile(o, b.width, [&](int x, int r) {
        return std::fma(before[static_cast<std::size_t>(x * b.width + r)],
                        a[static_cast<std::size_t>(r)], chain(x, r));
      });
      std::fill(o.begin(), o.end(), kNan);  // not read where it counts as empty
      run(v, stride, keys, p, size, static_cast<const float*>(nullptr), o);
      expect_tile(o, b.width, chain);
    }
  }
}

/// Vectors of rows see `below` keys less, one after the other.
void check_scores(Bench& b, int below) {
  for (const int keys : kSizes) {
    for (const int size : {0, 1, 2, 7, 64, 128, 129, 300}) {
      const int stride = size + 3;
      const auto k = b.draw(keys * stride + size);
      const auto q = b.draw(std::max(size, 1) * b.width);  // a call's queries are never null
      const auto c = b.draw(b.width);
      std::vector<float> highest(static_cast<std::size_t>(b.width), kNan);
      std::vector<float> s(static_cast<std::size_t>(keys * b.width), kNan);
      // A hint may name any address.
      const Ahead<float> ahead{
          .v = keys % 2 == 0 ? nullptr : k.data() + 1, .v_stride = 1 << 20, .v_size = 70};
      const Stairs stairs(keys, b.vectors, below);
      b.kernels.scores(k.data(), stride, keys, stairs.seen, q.data(), size, b.vectors, c.data(),
                       s.data(), highest.data(), ahead);
      const auto computed = [&](int j, int r) { return j < stairs.seen[r / b.kernels.lanes]; };
      for (int r = 0; r < b.width; ++r) {
        float top = -kInf;
        for (int j = 0; j < keys; ++j) {
          float& score = s[static_cast<std::size_t>(j * b.width + r)];
          if (computed(j, r)) top = std::max(top, score);
        }
        // Keys of one step are computed for a vector that sees the first of them.
        ASSERT_GE(highest[static_cast<std::size_t>(r)], top);
        if (below == 0) {
          ASSERT_EQ(highest[static_cast<std::size_t>(r)], top);
        }
      }
      expect_tile(s, b.width, [&](int j, int r) {
        if (!computed(j, r)) return s[static_cast<std::size_t>(j * b.width + r)];
        float sum = 0.0f;
        float acc = 0.0f;
        for (int x = 0; x < size; ++x) {
          if (x > 0 && x % 128 == 0) {
            sum = x == 128 ? acc : sum + acc;
            acc = 0.0f;
          }
          acc = std::fma(k[static_cast<std::size_t>(j * stride + x)],
                         q[static_cast<std::size_t>(x * b.width + r)], acc);
        }
        return c[static_cast<std::size_t>(r)] * (size > 128 ? sum + acc : acc);
      });
    }
  }
}

}  // namespace

void test_scores(Bench& b) {
  for (const int below : {0, 5, 10}) check_scores(b, below);
}

void test_values(Bench& b) {
  for (const int below : {0, 1, 17}) {
    check_values(
        b,
        [&](const auto& v, int stride, int keys, const auto& p, int size, const float* a, auto& o) {
          b.kernels.values(v.data(), stride, Stairs(keys, b.vectors, below).seen, p.data(), size,
                           b.vectors, a, o.data());
        },
        [&](int keys, int j, int r) {
          return j < Stairs(keys, b.vectors, below).seen[r / b.kernels.lanes];
        });
  }
}

void test_values_visible(Bench& b) {
  const auto words = b.draw_words();
  check_values(
      b,
      [&](const auto& v, int stride, int keys, const auto& p, int size, const float* a, auto& o) {
        b.kernels.values_visible(v.data(), stride, keys, p.data(), size, b.vectors, a, words.data(),
                                 o.data());
      },
      [&](int, int j, int r) { return (words[static_cast<std::size_t>(j)] >> r & 1) != 0; });
}

}  // namespace heed::kernels

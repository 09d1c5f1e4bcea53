// Kernels between rows in memory and tiles: pack, unpack, norms, finiteness.
#include "kernels_support.h"

namespace heed::kernels {

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
      for (int r = 0; r < b.width; ++r) rows.push_back(dense.data() + std::int64_t{r} * size);
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
  // A product that is no zero, but rounds to one, keeps its sign, as fma has it: at any size.
  for (const int size : {1, 64}) {
    const std::vector<float> tiny(static_cast<std::size_t>(size * b.width),
                                  -std::numeric_limits<float>::denorm_min());
    const std::vector<float> quarter(static_cast<std::size_t>(b.width), 0.25f);
    std::vector<float> dense(static_cast<std::size_t>(size));
    row = dense.data();
    b.kernels.unpack(tiny.data(), quarter.data(), 1, size, b.vectors, &row);
    for (const float x : dense) EXPECT_TRUE(same_bits(x, -0.0f)) << "size " << size;
  }
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

}  // namespace heed::kernels

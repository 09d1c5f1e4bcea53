// Tiles of few rows, whose kernels have the bits of those for any number of rows.
#include <array>
#include <cmath>
#include <cstring>

#include "heed/runtime.h"
#include "kernels/half.h"
#include "kernels_support.h"

namespace heed::kernels {
namespace {

constexpr std::array kElements = {Element::own, Element::f16, Element::bf16};

/// Numbers as rows of an element hold them, and the same as floats. Rows begin at any byte: a
/// tensor of 16-bit elements may.
struct Rows {
  Rows(std::vector<float> numbers, Element of) : element(of), floats(std::move(numbers)) {
    size = element == Element::own ? 4 : 2;
    memory.resize(1 + static_cast<std::size_t>(size) * floats.size());
    for (std::size_t n = 0; n < floats.size(); ++n) {
      std::byte* const at = memory.data() + first() + n * static_cast<std::size_t>(size);
      if (element == Element::own) {
        std::memcpy(at, &floats[n], 4);
        continue;
      }
      const std::uint16_t bits = element == Element::f16 ? to_f16(floats[n]) : to_bf16(floats[n]);
      floats[n] = element == Element::f16 ? from_f16(bits) : from_bf16(bits);
      std::memcpy(at, &bits, 2);
    }
  }
  [[nodiscard]] std::size_t first() const { return element == Element::own ? 0 : 1; }
  [[nodiscard]] const std::byte* bytes() const { return memory.data() + first(); }

  Element element;
  int size;
  std::vector<float> floats;
  std::vector<std::byte> memory;
};

}  // namespace

void test_scores_few(Bench& b) {
  if (b.vectors > 1) return;
  for (int rows = 1; rows <= std::min(kFewRows, b.width); ++rows) {
    for (const int keys : kSizes) {
      for (const int vectors : {1, 2, 8, 9, 17}) {  // of coordinates
        for (const Element element : kElements) {
          const int size = vectors * b.kernels.lanes;
          const int stride = size + 3;
          const Rows k(b.draw(keys * stride + size), element);
          const auto q = b.draw(size * b.width);
          const auto c = b.draw(b.width);
          const Stairs all(keys, b.vectors, 0);
          std::vector<float> s(static_cast<std::size_t>(keys * b.width), kNan),
              top(static_cast<std::size_t>(b.width), kNan);
          auto want = s;
          auto want_top = top;
          b.kernels.scores(k.floats.data(), stride, keys, all.seen, q.data(), size, b.vectors,
                           c.data(), want.data(), want_top.data(), {});
          // A hint may name any address.
          const std::byte* const next = keys % 2 == 0 ? nullptr : k.bytes() + 5;
          b.kernels.scores_few(k.bytes(), std::int64_t{k.size} * stride, element, keys, q.data(),
                               rows, size, c.data(), s.data(), top.data(), next);
          expect_tile(s, b.width, [&](int j, int r) {
            return r < rows ? want[static_cast<std::size_t>(j * b.width + r)] : 0.0f;
          });
          for (int r = 0; r < rows; ++r) {
            EXPECT_TRUE(
                same_bits(top[static_cast<std::size_t>(r)], want_top[static_cast<std::size_t>(r)]));
          }
        }
      }
    }
  }
}

/// k . q in 16 chains, coordinate x in chain x mod 16, which add up by halves.
template <typename Real>
Real in_16_chains(const Real* k, const Real* q, int size) {
  std::array<Real, 16> chain{};
  for (int x = 0; x < size; ++x) {
    Real& sum = chain[static_cast<std::size_t>(x % 16)];
    sum = std::fma(k[x], q[x], sum);
  }
  for (std::size_t half = 8; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) chain[i] += chain[i + half];
  }
  return chain[0];
}

/// One row: 16 chains, then the factor.
void test_scores_by_key(Bench& b) {
  if (b.vectors > 1) return;
  for (const int keys : kSizes) {
    for (const int size : {16, 32, 128, 144}) {
      for (const Element element : kElements) {
        const int stride = size + 3;
        const Rows k(b.draw(keys * stride + size), element);
        const auto q = b.draw(size);
        const float c = b.draw(1)[0];
        std::vector<float> s(static_cast<std::size_t>(keys * b.width), kNan),
            top(static_cast<std::size_t>(b.width), kNan);
        b.kernels.scores_by_key(k.bytes(), std::int64_t{k.size} * stride, element, keys, q.data(),
                                size, c, s.data(), top.data());
        float most = -kInf;
        expect_tile(s, b.width, [&](int j, int r) {
          if (r > 0) return 0.0f;
          const float score =
              in_16_chains(k.floats.data() + std::int64_t{stride} * j, q.data(), size) * c;
          most = std::max(most, score);
          return score;
        });
        EXPECT_TRUE(same_bits(top[0], most)) << top[0] << ", " << most;
      }
    }
  }
}

void test_softmax_few(Bench& b) {
  if (b.vectors > 1) return;
  const auto n = static_cast<std::size_t>(b.width);
  const int rows = std::min(kFewRows, b.width);
  for (const int keys : kSizes) {
    for (const bool first : {false, true}) {  // of a row's blocks
      auto s = b.draw(keys * b.width, 3.0f);
      if (keys > 2) s[2 * n] = -kInf;
      if (keys > 20) s[20 * n] = kNan;
      const std::vector<float> m0 = first ? std::vector<float>(n, -kInf) : b.draw(b.width);
      const std::vector<float> l0 = first ? std::vector<float>(n, 0.0f) : b.draw(b.width);
      std::vector<float> highest(n), a(n), want_a(n);
      b.kernels.maxima(s.data(), keys, b.vectors, highest.data());
      auto want = s, m = m0, want_m = m0, l = l0, want_l = l0;
      b.kernels.softmax(want.data(), keys, b.vectors, highest.data(), want_m.data(), want_l.data(),
                        want_a.data());
      b.kernels.softmax_few(s.data(), keys, highest.data(), m.data(), l.data(), a.data());
      for (int r = 0; r < rows; ++r) {
        const auto i = static_cast<std::size_t>(r);
        EXPECT_TRUE(same_bits(m[i], want_m[i]) && same_bits(a[i], want_a[i])) << "row " << r;
        EXPECT_TRUE(same_bits(l[i], want_l[i])) << l[i] << ", " << want_l[i] << ", row " << r;
        for (int j = 0; j < keys; ++j) {
          const std::size_t at = static_cast<std::size_t>(j) * n + i;
          EXPECT_TRUE(same_bits(s[at], want[at])) << "key " << j << " of " << keys;
        }
      }
    }
  }
}

void test_values_few(Bench& b) {
  if (b.vectors > 1) return;
  for (int rows = 1; rows <= std::min(kFewRows, b.width); ++rows) {
    for (const int keys : {0, 1, 2, 31, 96}) {
      for (const int vectors : {1, 2, 4, 5, 8, 11}) {
        for (const Element element : kElements) {
          const int size = vectors * b.kernels.lanes;
          const int stride = size + 1;
          const Rows v(b.draw(keys * stride + size), element);
          const auto p = b.draw(keys * b.width);
          const auto a = b.draw(b.width);
          const auto before = b.draw(rows * size);
          for (const bool empty : {false, true}) {
            auto o = empty ? std::vector<float>(before.size(), kNan) : before;
            b.kernels.values_few(v.bytes(), std::int64_t{v.size} * stride, element, keys, p.data(),
                                 rows, size, empty ? nullptr : a.data(), o.data(),
                                 keys % 2 == 0 ? nullptr : v.bytes());
            expect_tile(o, size, [&](int r, int x) {  // rows of o
              float acc = 0.0f;
              for (int j = 0; j < keys; ++j) {
                acc = std::fma(v.floats[static_cast<std::size_t>(j * stride + x)],
                               p[static_cast<std::size_t>(j * b.width + r)], acc);
              }
              const auto i = static_cast<std::size_t>(r * size + x);
              return empty ? acc : std::fma(before[i], a[static_cast<std::size_t>(r)], acc);
            });
          }
        }
      }
    }
  }
}

namespace {

std::vector<double> doubles(std::mt19937_64& random, int count) {
  std::vector<double> numbers(static_cast<std::size_t>(count));
  for (double& x : numbers) x = std::normal_distribution<double>()(random);
  return numbers;
}

bool same(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

/// One tile in float64: its scores against those of any number of rows, its outputs against the
/// chain.
void few_rows_in_float64(const Kernels<double>& kernels, int rows, int keys, int size) {
  constexpr double kUnset = std::numeric_limits<double>::quiet_NaN();
  const int lanes = kernels.lanes, stride = size + 1;
  std::mt19937_64 random(11);
  const auto draw = [&](int count) { return doubles(random, count); };
  const auto in = draw(keys * stride + size), q = draw(size * lanes), c = draw(lanes);
  const auto* const bytes = reinterpret_cast<const std::byte*>(in.data());
  const std::int64_t step = std::int64_t{8} * stride;
  const Stairs all(keys, 1, 0);
  std::vector<double> s(static_cast<std::size_t>(keys * lanes), kUnset), want = s;
  std::vector<double> top(static_cast<std::size_t>(lanes), kUnset), want_top = top;
  kernels.scores(in.data(), stride, keys, all.seen, q.data(), size, 1, c.data(), want.data(),
                 want_top.data(), {});
  kernels.scores_few(bytes, step, Element::own, keys, q.data(), rows, size, c.data(), s.data(),
                     top.data(), nullptr);
  for (int r = 0; r < lanes; ++r) {
    const auto of_row = static_cast<std::size_t>(r);
    EXPECT_TRUE(r >= rows || same(top[of_row], want_top[of_row])) << "row " << r;
    for (int j = 0; j < keys; ++j) {
      const auto at = static_cast<std::size_t>(j * lanes + r);
      EXPECT_TRUE(same(s[at], r < rows ? want[at] : 0.0)) << "key " << j << ", row " << r;
    }
  }
  const auto p = draw(keys * lanes), a = draw(lanes), before = draw(rows * size);
  for (const bool first : {false, true}) {  // of a row's blocks
    auto o = first ? std::vector<double>(before.size(), kUnset) : before;
    kernels.values_few(bytes, step, Element::own, keys, p.data(), rows, size,
                       first ? nullptr : a.data(), o.data(), nullptr);
    for (int r = 0; r < rows; ++r) {
      for (int x = 0; x < size; ++x) {
        double acc = 0;
        for (int j = 0; j < keys; ++j) {
          acc = std::fma(in[static_cast<std::size_t>(j * stride + x)],
                         p[static_cast<std::size_t>(j * lanes + r)], acc);
        }
        const auto at = static_cast<std::size_t>(r * size + x);
        EXPECT_TRUE(
            same(o[at], first ? acc : std::fma(before[at], a[static_cast<std::size_t>(r)], acc)))
            << "row " << r << ", coordinate " << x;
      }
    }
  }
}

// No plan asks for them, but each table has them.
TEST(kernels, few_in_float64_have_the_bits_of_those_for_any_number_of_rows) {
  for (const InstructionSet& set : instruction_sets()) {
    if (!set.compiled || !set.supported) continue;
    SCOPED_TRACE(name_of(set.isa));
    const auto& kernels = *kernels_for<double>(static_cast<int>(set.isa));
    for (int rows = 1; rows <= std::min(kFewRows, kernels.lanes); ++rows) {
      for (const int keys : {0, 1, 5, 96}) {
        for (const int size : {1, 8, 64, 200}) few_rows_in_float64(kernels, rows, keys, size);
      }
    }
  }
}

/// One row in float64: its scores are 16 chains each, all other lanes 0.
void by_key_in_float64(const Kernels<double>& kernels, int keys, int size) {
  constexpr double kUnset = std::numeric_limits<double>::quiet_NaN(), kFactor = 0.125;
  const int lanes = kernels.lanes, stride = size + 1;
  std::mt19937_64 random(13);
  const auto in = doubles(random, keys * stride + size), q = doubles(random, size);
  std::vector<double> s(static_cast<std::size_t>(keys * lanes), kUnset);
  std::vector<double> top(static_cast<std::size_t>(lanes), kUnset);
  kernels.scores_by_key(reinterpret_cast<const std::byte*>(in.data()), std::int64_t{8} * stride,
                        Element::own, keys, q.data(), size, kFactor, s.data(), top.data());
  double most = -std::numeric_limits<double>::infinity();
  for (int j = 0; j < keys; ++j) {
    const double score =
        in_16_chains(in.data() + std::int64_t{stride} * j, q.data(), size) * kFactor;
    most = std::max(most, score);
    for (int r = 0; r < lanes; ++r) {
      EXPECT_TRUE(same(s[static_cast<std::size_t>(j * lanes + r)], r == 0 ? score : 0.0))
          << "key " << j << ", lane " << r;
    }
  }
  EXPECT_TRUE(same(top[0], most)) << top[0] << ", " << most;
}

TEST(kernels, scores_by_key_in_float64_are_sums_of_16_chains) {
  for (const InstructionSet& set : instruction_sets()) {
    if (!set.compiled || !set.supported) continue;
    SCOPED_TRACE(name_of(set.isa));
    const auto& kernels = *kernels_for<double>(static_cast<int>(set.isa));
    for (const int keys : {0, 1, 5, 96}) {
      for (const int size : {16, 64, 144}) by_key_in_float64(kernels, keys, size);
    }
  }
}

}  // namespace
}  // namespace heed::kernels

// Conversions between float and the 16-bit types: every pattern, on every instruction set. To
// float: against the definition of the formats. Back: between two neighbours a float belongs to the
// nearer one, half-way to the even one; the best instruction set sees all 2^32 floats, the others
// (and all of them under sanitizers) what lies beside every neighbour and every half-way point, the
// ends of the range, and NaN of every kind. Where HEED_EXHAUSTIVE is set (./dev test --full) all
// see all.
#include "kernels/conversions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "heed/runtime.h"
#include "kernels/half.h"
#include "sanitized.h"

namespace heed::kernels {
namespace {

constexpr std::uint32_t kInfinity = 0x7F800000;

struct Format {
  const char* name;
  int mantissa, lowest;  // bits of the mantissa, exponent of the least normal number
  void (*Conversions::*widen)(const std::byte*, std::int64_t, float*) noexcept;
  void (*Conversions::*narrow)(const float*, std::int64_t, std::byte*) noexcept;
  float (*widen_one)(std::uint16_t);
  std::uint16_t (*narrow_one)(float);

  [[nodiscard]] std::uint32_t infinity() const { return (1U << 15) - (1U << mantissa); }
  /// Of a finite pattern without sign, and of the one after the last finite one.
  [[nodiscard]] double value(std::uint32_t pattern) const {
    const int exponent = static_cast<int>(pattern >> mantissa);
    const auto rest = static_cast<double>(pattern & ((1U << mantissa) - 1));
    const double first = exponent == 0 ? 0 : std::ldexp(1.0, mantissa);
    return std::ldexp(first + rest, std::max(exponent, 1) - 1 + lowest - mantissa);
  }
};

const Format kFormats[] = {
    {"float16", 10, -14, &Conversions::from_f16, &Conversions::to_f16, &from_f16, &to_f16},
    {"bfloat16", 7, -126, &Conversions::from_bf16, &Conversions::to_bf16, &from_bf16, &to_bf16}};

template <typename Test>
void on_every_target(const Test& test) {
  const auto sets = instruction_sets();
  for (const InstructionSet& set : sets) {
    if (!set.compiled || !set.supported) continue;
    const Conversions* table = conversions_for(static_cast<int>(set.isa));
    ASSERT_NE(table, nullptr) << name_of(set.isa);
    if (table->target != static_cast<int>(set.isa))
      continue;  // that of another set, which has its turn
    for (const Format& format : kFormats) {
      SCOPED_TRACE(std::string(format.name) + ", " + std::string(name_of(set.isa)));
      test(*table, format,
           table->target == conversions_for(static_cast<int>(instruction_set()))->target);
    }
  }
}

bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

TEST(conversions, every_pattern_becomes_the_number_that_it_stands_for) {
  std::vector<std::uint16_t> patterns(65536);
  for (std::size_t n = 0; n < patterns.size(); ++n) patterns[n] = static_cast<std::uint16_t>(n);
  on_every_target([&](const Conversions& table, const Format& format, bool) {
    std::vector<float> got(patterns.size());
    (table.*format.widen)(reinterpret_cast<const std::byte*>(patterns.data()), 65536, got.data());
    for (std::uint32_t n = 0; n < 65536; ++n) {
      const std::uint32_t rest = n & 0x7FFF;
      const double size = rest > format.infinity()    ? std::nan("")
                          : rest == format.infinity() ? HUGE_VAL
                                                      : format.value(rest);
      const float want = std::copysign(static_cast<float>(size), n >= 0x8000 ? -1.0f : 1.0f);
      ASSERT_TRUE(same(got[n], want)) << std::hex << n << ": " << got[n];
      ASSERT_TRUE(same(format.widen_one(static_cast<std::uint16_t>(n)), want)) << std::hex << n;
    }
  });
}

/// One kernel that narrows, and the scalar function, over ranges of bit patterns.
class Narrowing {
 public:
  /// Of each range of floats that become one number it sees so many at either end.
  Narrowing(const Conversions& table, const Format& format, std::uint32_t reach)
      : table_(table), format_(format), reach_(reach) {}

  /// Between two neighbours of the format, over all of them.
  void expect_nearest() {
    const auto bits = [](double x) { return std::bit_cast<std::uint32_t>(static_cast<float>(x)); };
    for (std::uint32_t h = 0; h < format_.infinity() && ok_; ++h) {
      const double here = format_.value(h), next = format_.value(h + 1);
      // Half-way from a subnormal number on may be no float, but then no float lies between.
      const std::uint32_t middle = bits((here + next) / 2);
      const bool last = h + 1 == format_.infinity();
      const std::uint32_t end = last && format_.lowest == -126 ? kInfinity : bits(next);
      expect_ends(bits(here), middle - 1, h);
      expect_ends(middle, middle, h + h % 2);
      expect_ends(middle + 1, end - 1, h + 1);
      if (last) expect_ends(end, kInfinity, format_.infinity());
    }
    expect_ends(kInfinity + 1, 0x7FFFFFFF, 0x7FFF);
  }
  [[nodiscard]] bool ok() const { return ok_; }
  /// How many floats the kernel was given.
  [[nodiscard]] std::uint64_t seen() const { return seen_; }

 private:
  /// All floats with patterns first .. last become `want` (NaN: any NaN), with a minus as without.
  void expect(std::uint32_t first, std::uint32_t last, std::uint32_t want) {
    for (const std::uint32_t sign : {0U, 0x80000000U}) {
      for (std::uint64_t at = first; at <= last; at += kCount) {
        const auto count = std::min<std::uint64_t>(kCount, last - at + 1);
        for (std::uint32_t i = 0; i < count; ++i) {
          in_[i] = std::bit_cast<float>((static_cast<std::uint32_t>(at) + i) | sign);
        }
        (table_.*format_.narrow)(in_, static_cast<std::int64_t>(count),
                                 reinterpret_cast<std::byte*>(out_));
        seen_ += count;
        const auto expected = static_cast<std::uint16_t>(want | sign >> 16);
        std::uint32_t wrong = 0;
        if (want > format_.infinity()) {
          for (std::uint32_t i = 0; i < count; ++i) {
            wrong += (out_[i] & 0x7FFFU) <= format_.infinity();
          }
        } else {
          for (std::uint32_t i = 0; i < count; ++i) wrong += out_[i] != expected;
        }
        if (wrong == 0) continue;
        ADD_FAILURE() << wrong << " floats from " << std::hex << (at | sign) << " on are not "
                      << expected;
        ok_ = false;
        return;
      }
    }
  }
  /// The same at both ends of the range, the scalar function too.
  void expect_ends(std::uint32_t first, std::uint32_t last, std::uint32_t want) {
    if (!ok_ || first > last) return;
    for (const std::uint32_t bits : {first, last}) {
      for (const std::uint32_t sign : {0U, 0x80000000U}) {
        const std::uint16_t got = format_.narrow_one(std::bit_cast<float>(bits | sign));
        const bool good = want > format_.infinity() ? (got & 0x7FFFU) > format_.infinity()
                                                    : got == (want | sign >> 16);
        if (!good) ADD_FAILURE() << std::hex << (bits | sign) << " became " << got;
        ok_ &= good;
      }
    }
    if ((last - first) / 2 < reach_) return expect(first, last, want);
    expect(first, first + reach_ - 1, want);
    expect(last - reach_ + 1, last, want);
  }

  static constexpr std::uint32_t kCount = 4096;
  const Conversions& table_;
  const Format& format_;
  std::uint32_t reach_;
  std::uint64_t seen_ = 0;
  float in_[kCount];
  std::uint16_t out_[kCount];
  bool ok_ = true;
};

TEST(conversions, every_float_becomes_the_nearest_and_of_two_the_even_one) {
  constexpr std::uint64_t kAll = std::uint64_t{1} << 32;
  const bool exhaustive = std::getenv("HEED_EXHAUSTIVE") != nullptr;
  std::uint64_t least = kAll;
  on_every_target([&](const Conversions& table, const Format& format, bool best) {
    // A sanitizer looks at each call: the ends of ranges have as many kinds of calls.
    const bool all = (best && !heed_test::sanitized()) || exhaustive;
    Narrowing narrowing(table, format, all ? 1U << 31 : heed_test::sanitized() ? 512 : 2048);
    narrowing.expect_nearest();
    if (all && narrowing.ok()) {
      EXPECT_EQ(narrowing.seen(), kAll);
    }
    least = std::min(least, narrowing.seen());
  });
  RecordProperty("cases", std::to_string(least));  // that every instruction set saw in each type
}

// The same in a second: what the emulator of ./dev neon has time for.
TEST(conversions, floats_beside_each_neighbour_and_each_half_way_point_become_the_nearest) {
  on_every_target([](const Conversions& table, const Format& format, bool) {
    Narrowing narrowing(table, format, 16);
    narrowing.expect_nearest();
    // With either sign: half-way, and 16 at each end of what lies below and above.
    EXPECT_GT(narrowing.seen(), 2 * (1 + 4 * 16) * format.infinity());
  });
}

TEST(conversions, any_address_and_any_count_will_do) {
  on_every_target([](const Conversions& table, const Format& format, bool) {
    for (std::size_t count = 0; count < 70; ++count) {
      std::vector<float> from(count), back(count + 1, 7.0f);
      std::vector<std::byte> halves(2 * count + 4, std::byte{0xFF});
      for (std::size_t n = 0; n < count; ++n) from[n] = static_cast<float>(n) - 30;
      (table.*format.narrow)(from.data(), static_cast<std::int64_t>(count), halves.data() + 1);
      (table.*format.widen)(halves.data() + 1, static_cast<std::int64_t>(count), back.data());
      for (std::size_t n = 0; n < count; ++n) ASSERT_EQ(back[n], from[n]) << n << " of " << count;
      ASSERT_EQ(back[count], 7.0f) << count;
      ASSERT_EQ(halves[0], std::byte{0xFF}) << count;
      ASSERT_EQ(halves[2 * count + 1], std::byte{0xFF}) << count;
    }
  });
}

}  // namespace
}  // namespace heed::kernels

// Conversion between floating-point types. Widening is compared with an evaluation of the
// definition (sign * mantissa * 2^exponent, by ldexp) for all 65,536 patterns. Narrowing is
// compared with a search for the nearest among all values of the type, in exact arithmetic, at and
// around every midpoint of two neighbours.
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "files.h"

namespace heed::test {
namespace {

struct Half {
  DType dtype;
  int exponent_bits;
  int mantissa_bits;

  [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  [[nodiscard]] int top() const { return (1 << exponent_bits) - 1; }
  [[nodiscard]] std::uint16_t infinity() const {
    return static_cast<std::uint16_t>(top() << mantissa_bits);
  }
  [[nodiscard]] double value(std::uint16_t bits) const {
    const int exponent = bits >> mantissa_bits & top();
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    const double sign = bits >> 15 ? -1 : 1;
    if (exponent == top()) {
      return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
    }
    const int one = exponent > 0 ? 1 << mantissa_bits : 0;
    return sign * std::ldexp(mantissa + one, std::max(exponent, 1) - bias() - mantissa_bits);
  }
};
void PrintTo(const Half& half, std::ostream* out) { *out << name_of(half.dtype); }

constexpr Half kF16{DType::f16, 5, 10};
constexpr Half kBF16{DType::bf16, 8, 7};

template <typename To, typename From>
std::vector<To> converted(const std::vector<From>& from, DType type, DType to) {
  const Tensor x = convert(tensor(type, {static_cast<std::int64_t>(from.size())}, raw(from)), to);
  EXPECT_EQ(x.dtype, to);
  std::vector<To> values(from.size());
  EXPECT_EQ(x.data.size(), values.size() * sizeof(To));
  std::memcpy(values.data(), x.data.data(), x.data.size());
  return values;
}

std::vector<std::uint16_t> all_patterns() {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  return all;
}

class Convert : public testing::TestWithParam<Half> {};

TEST_P(Convert, widens_every_pattern_exactly) {
  const Half half = GetParam();
  const auto all = all_patterns();
  const auto wide = converted<float>(all, half.dtype, DType::f32);
  const auto wider = converted<double>(all, half.dtype, DType::f64);
  for (const std::uint16_t bits : all) {
    const double value = half.value(bits);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(wide[bits]) && std::isnan(wider[bits])) << bits;
    } else {
      ASSERT_EQ(wider[bits], value) << bits;
      ASSERT_EQ(static_cast<double>(wide[bits]), value) << bits;
    }
    ASSERT_EQ(std::signbit(wide[bits]), bits >> 15 == 1) << bits;
    ASSERT_EQ(std::signbit(wider[bits]), bits >> 15 == 1) << bits;
  }
}

TEST_P(Convert, comes_back_from_wider_types_bit_for_bit) {
  const Half half = GetParam();
  const auto all = all_patterns();
  for (const DType wide : {DType::f32, DType::f64}) {
    const Tensor there = convert(tensor(half.dtype, {65536}, raw(all)), wide);
    ASSERT_EQ(bytes_of(convert(there, half.dtype)), raw(all)) << name_of(wide);  // NaN payloads too
  }
}

TEST_P(Convert, rounds_to_the_nearest_and_ties_to_even) {
  const Half half = GetParam();
  std::vector<double> values;
  std::vector<std::uint16_t> wanted;
  for (std::uint16_t low = 0; low < half.infinity(); ++low) {
    const auto high = static_cast<std::uint16_t>(low + 1);
    const double a = half.value(low);
    // After the largest finite value, rounding behaves as if one more step followed.
    const double b = high == half.infinity() ? 2 * a - half.value(low - 1) : half.value(high);
    const double middle = (a + b) / 2;  // exact
    const auto even = low % 2 == 0 ? low : high;
    for (const double sign : {1.0, -1.0}) {
      const auto flag = static_cast<std::uint16_t>(sign < 0 ? 0x8000 : 0);
      const auto expect = [&](double value, std::uint16_t bits) {
        values.push_back(sign * value);
        wanted.push_back(static_cast<std::uint16_t>(flag | bits));
      };
      expect(a, low);
      expect(middle, even);
      expect(std::nextafter(middle, 0), low);
      expect(std::nextafter(middle, 1e300), high);
    }
  }
  const auto got = converted<std::uint16_t>(values, DType::f64, half.dtype);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(got[i], wanted[i]) << std::hexfloat << values[i];
  }
  // From float32, whose values around the midpoints are coarser: only what float32 holds.
  std::vector<float> narrow;
  std::vector<std::uint16_t> narrow_wanted;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<float>(values[i]);
    if (static_cast<double>(value) != values[i]) continue;
    narrow.push_back(value);
    narrow_wanted.push_back(wanted[i]);
  }
  EXPECT_GT(narrow.size(), 100000U);
  EXPECT_EQ(converted<std::uint16_t>(narrow, DType::f32, half.dtype), narrow_wanted);
}

TEST_P(Convert, keeps_infinities_and_nans_and_overflows_to_infinity) {
  const Half half = GetParam();
  const double infinity = std::numeric_limits<double>::infinity();
  const auto got = converted<std::uint16_t>(
      std::vector<double>{infinity, -infinity, 1e300, -1e300, 5e-324, -5e-324, 0.0, -0.0,
                          std::bit_cast<double>(0x7FF0000000000001), std::nan("")},
      DType::f64, half.dtype);
  const std::uint16_t top = half.infinity();
  const auto negative = [](std::uint16_t bits) {
    return static_cast<std::uint16_t>(bits | 0x8000);
  };
  EXPECT_EQ(
      std::vector(got.begin(), got.begin() + 8),
      (std::vector<std::uint16_t>{top, negative(top), top, negative(top), 0, 0x8000, 0, 0x8000}));
  EXPECT_TRUE(std::isnan(half.value(got[8])));  // the payload lies below the bits that are kept
  EXPECT_TRUE(std::isnan(half.value(got[9])));
}

INSTANTIATE_TEST_SUITE_P(half, Convert, testing::Values(kF16, kBF16), [](const auto& instance) {
  return std::string(name_of(instance.param.dtype));
});

TEST(convert, float64_to_float32_is_what_the_hardware_does) {
  const std::uint64_t seed = 20240229;
  std::mt19937_64 random(seed);
  std::vector<double> values;
  for (int i = 0; i < 200000; ++i) {
    values.push_back(std::bit_cast<double>(random()));
    // A float32 with exponent near its own ends, plus a few bits more: ties and subnormals.
    const auto low = static_cast<float>(std::ldexp(1.0, static_cast<int>(random() % 300) - 150));
    values.push_back(low * (1.0 + static_cast<double>(random() % 4096) / 4096 +
                            static_cast<double>(random() % 4) * 0x1p-25));
  }
  const auto got = converted<float>(values, DType::f64, DType::f32);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto wanted = static_cast<float>(values[i]);
    if (std::isnan(values[i])) {
      ASSERT_TRUE(std::isnan(got[i]));
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(wanted))
          << std::hexfloat << values[i] << ", seed " << seed;
    }
  }
}

TEST(convert, narrowing_rounds_once_not_by_way_of_float32) {
  // 1 + 2^-11 + 2^-40: float32 drops the last term and leaves a tie, which would round down.
  const std::vector<double> value{1 + 0x1p-11 + 0x1p-40};
  EXPECT_EQ(converted<std::uint16_t>(value, DType::f64, DType::f16)[0], 0x3C01);
}

TEST(convert, keeps_shape_and_refuses_other_types) {
  const Tensor x = convert(tensor(DType::f16, {0, 3}, ""), DType::f64);
  EXPECT_EQ(x.shape, (std::vector<std::int64_t>{0, 3}));
  const Directory none;
  EXPECT_EQ(error_of(none, [] { (void)convert(tensor(DType::i32, {1}, "abcd"), DType::f32); }),
            "argument: convert: from int32 to float32; both must be floating-point types");
  EXPECT_EQ(error_of(none, [] { (void)convert(tensor(DType::f32, {1}, "abcd"), DType::boolean); }),
            "argument: convert: from float32 to bool; both must be floating-point types");
  EXPECT_EQ(
      error_of(none, [] { (void)convert(tensor(DType::f32, {2}, "abcd"), DType::f16); }),
      "argument: convert: a tensor of shape (2,) and type float32 has 4 bytes of data; it takes "
      "8");
}

TEST(view_of, a_tensor_is_seen_without_a_copy) {
  Tensor x = make_tensor(DType::f32, {2, 3, 4});
  const ConstTensorView view = view_of(std::as_const(x));
  EXPECT_EQ(view.data, x.data.data());
  EXPECT_EQ(view.dtype, DType::f32);
  EXPECT_EQ(view.rank, 3);
  EXPECT_EQ(view.shape, (std::array<std::int64_t, 4>{2, 3, 4, 0}));
  EXPECT_EQ(view.stride, (std::array<std::int64_t, 4>{12, 4, 1, 0}));
  const TensorView writable = view_of(x);
  EXPECT_EQ(writable.data, x.data.data());
  EXPECT_TRUE(view_of(std::as_const(x)).present());
  const Tensor scalar = make_tensor(DType::f64, {});
  EXPECT_EQ(view_of(scalar).rank, 0);
  EXPECT_TRUE(view_of(scalar).present());
}

TEST(view_of, five_axes_and_missing_data_are_refused) {
  const Directory none;
  Tensor five = make_tensor(DType::u8, {1, 1, 1, 1, 1});
  const char* message = "argument: view_of: the tensor has 5 axes; at most 4 can be viewed";
  EXPECT_EQ(error_of(none, [&] { (void)view_of(five); }), message);
  EXPECT_EQ(error_of(none, [&] { (void)view_of(std::as_const(five)); }), message);
  const Tensor hollow{.dtype = DType::f32, .shape = {2}};
  EXPECT_EQ(
      error_of(none, [&] { (void)view_of(hollow); }),
      "argument: view_of: a tensor of shape (2,) and type float32 has 0 bytes of data; it takes "
      "8");
  const Tensor endless{.dtype = DType::f32, .shape = {1LL << 60, 2}};
  EXPECT_EQ(error_of(none, [&] { (void)view_of(endless); }),
            "argument: view_of: a tensor of shape (1152921504606846976, 2) and type float32 has 0 "
            "bytes of data; no memory can hold it");
}

TEST(make_tensor, is_zero_or_says_which_shape_is_wrong) {
  EXPECT_EQ(bytes_of(make_tensor(DType::i16, {2, 2})), std::string(8, '\0'));
  const Directory none;
  EXPECT_EQ(
      error_of(none,
               [] {
                 (void)make_tensor(DType::f32, {1LL << 60, 2});
               }),
      "argument: make_tensor: shape (1152921504606846976, 2) of float32 is negative or exceeds "
      "what can be addressed");
  EXPECT_EQ(error_of(none, [] { (void)make_tensor(DType::f32, {-1}); }),
            "argument: make_tensor: shape (-1,) of float32 is negative or exceeds what can be "
            "addressed");
}

}  // namespace
}  // namespace heed::test

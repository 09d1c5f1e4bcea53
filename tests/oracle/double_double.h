// Numbers of about 106 bits, as sums of two doubles: the precision that judges float64 attention.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace oracle {

/// hi + lo with |lo| <= ulp(hi) / 2. Infinity and NaN live in hi; lo is then 0.
struct DoubleDouble {
  double hi = 0, lo = 0;

  constexpr DoubleDouble() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): every double is one
  constexpr DoubleDouble(double value) : hi(value) {}
  constexpr DoubleDouble(double high, double low) : hi(high), lo(low) {}
};

/// a + b exactly, for any a and b (Knuth): the error of a floating-point sum is a double. That of a
/// sum that is not finite is none, here and below: `ended` takes it away.
inline DoubleDouble two_sum(double a, double b) {
  const double s = a + b, t = s - a;
  return {s, (a - (s - t)) + (b - t)};
}

/// The same where |a| >= |b| (Dekker).
inline DoubleDouble quick_two_sum(double a, double b) {
  const double s = a + b;
  return {s, b - (s - a)};
}

/// a * b exactly, unless the error is below the smallest subnormal.
inline DoubleDouble two_product(double a, double b) {
  const double p = a * b;
  return {p, std::isfinite(p) ? std::fma(a, b, -p) : 0};
}

/// What came of steps that began with `first`, looked at once: beside infinity an error is none.
inline DoubleDouble ended(DoubleDouble result, double first) {
  if (std::isfinite(result.hi)) return result;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return std::isfinite(first) ? std::copysign(kInfinity, first) : first;
}

inline DoubleDouble operator-(DoubleDouble a) { return {-a.hi, -a.lo}; }

inline DoubleDouble operator+(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble s = two_sum(a.hi, b.hi), t = two_sum(a.lo, b.lo);
  const DoubleDouble r = quick_two_sum(s.hi, s.lo + t.hi);
  return ended(quick_two_sum(r.hi, r.lo + t.lo), s.hi);
}
inline DoubleDouble operator-(DoubleDouble a, DoubleDouble b) { return a + -b; }

inline DoubleDouble operator*(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble p = two_product(a.hi, b.hi);
  return ended(quick_two_sum(p.hi, p.lo + (a.hi * b.lo + a.lo * b.hi)), p.hi);
}

/// Long division: three quotients, each of the remainder that the one before it left.
inline DoubleDouble operator/(DoubleDouble a, DoubleDouble b) {
  const double first = a.hi / b.hi;
  if (!std::isfinite(first) || !std::isfinite(b.hi)) return first;
  DoubleDouble rest = a - b * DoubleDouble(first);
  const double second = rest.hi / b.hi;
  rest = rest - b * DoubleDouble(second);
  return quick_two_sum(first, second) + DoubleDouble(rest.hi / b.hi);
}

inline bool operator<(DoubleDouble a, DoubleDouble b) {
  return a.hi < b.hi || (a.hi == b.hi && a.lo < b.lo);
}

inline DoubleDouble abs(DoubleDouble a) { return a.hi < 0 ? -a : a; }
inline bool is_nan(DoubleDouble a) { return std::isnan(a.hi); }
inline double high(DoubleDouble a) { return a.hi; }
inline double low(DoubleDouble a) { return a.lo; }

/// 2^n of n from -1022 to 1023, without the call that std::ldexp is.
inline double power_of_two(int n) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + n) << 52);
}

/// a * 2^n, rounded once where that is below the normal numbers
inline DoubleDouble scaled(DoubleDouble a, int n) {
  const double lo = std::isfinite(a.hi) ? a.lo : 0;
  if (n < -1022 || n > 1023) return {std::ldexp(a.hi, n), std::ldexp(lo, n)};
  return {a.hi * power_of_two(n), lo * power_of_two(n)};
}

/// One Newton step from the double's root.
inline DoubleDouble sqrt(DoubleDouble a) {
  const double root = std::sqrt(a.hi);
  if (root == 0 || !std::isfinite(root)) return root;
  return DoubleDouble(root) + (a - two_product(root, root)) / DoubleDouble(2 * root);
}

/// 1 / n!
inline const std::array<DoubleDouble, 13> kInverseFactorials = [] {
  std::array<DoubleDouble, 13> all{1.0};
  for (std::size_t n = 1; n < all.size(); ++n) all[n] = all[n - 1] / DoubleDouble(double(n));
  return all;
}();

/// e^a - 1 for |a| <= 0.36. Taylor's series of x = a / 64, whose thirteenth term is below 2^-120 of
/// the first, and the seventh below 2^-56, so that from there on doubles are enough; then six
/// doublings by e^(2x) - 1 = (e^x - 1)^2 + 2 (e^x - 1).
inline DoubleDouble expm1_small(DoubleDouble a) {
  constexpr std::size_t kDoubles = 7;
  const DoubleDouble x{a.hi * 0x1p-6, a.lo * 0x1p-6};
  double rest = 0;
  for (std::size_t n = kInverseFactorials.size(); n-- > kDoubles;) {
    rest = (rest + kInverseFactorials[n].hi) * x.hi;
  }
  DoubleDouble sum(rest);
  for (std::size_t n = kDoubles; n-- > 1;) sum = (sum + kInverseFactorials[n]) * x;
  for (int i = 0; i < 6; ++i) sum = DoubleDouble(2 * sum.hi, 2 * sum.lo) + sum * sum;
  return sum;
}

/// a = n ln 2 + r, e^a = 2^n e^r; ln 2 is the sum of three doubles, so that n ln 2 is good to
/// 2^-150.
inline DoubleDouble exp(DoubleDouble a) {
  if (std::isnan(a.hi)) return a.hi;
  if (a.hi > 709.79) return std::numeric_limits<double>::infinity();
  if (a.hi < -746) return 0.0;
  const double n = std::nearbyint(a.hi / 0x1.62e42fefa39efp-1);
  DoubleDouble r = a - two_product(n, 0x1.62e42fefa39efp-1);
  r = r - two_product(n, 0x1.abc9e3b39803fp-56);
  r = r - DoubleDouble(n * 0x1.7b57a079a1934p-111);
  return scaled(expm1_small(r) + DoubleDouble(1), static_cast<int>(n));
}

inline DoubleDouble expm1(DoubleDouble a) {
  return std::fabs(a.hi) < 0.35 ? expm1_small(a) : exp(a) - DoubleDouble(1);
}

/// y = log of the high part; what is missing is log(a e^-y) = z - z^2 / 2 with |z| about 2^-53.
inline DoubleDouble log(DoubleDouble a) {
  const double y = std::log(a.hi);
  if (!std::isfinite(y)) return y;
  const DoubleDouble z = a * exp(DoubleDouble(-y)) - DoubleDouble(1);
  return DoubleDouble(y) + (z - z * z / DoubleDouble(2));
}

/// (e^2a - 1) / (e^2a + 1), which loses nothing near 0.
inline DoubleDouble tanh(DoubleDouble a) {
  if (std::isnan(a.hi)) return a.hi;
  if (a.hi > 40) return 1.0;
  if (a.hi < -40) return -1.0;
  const DoubleDouble e = expm1(scaled(a, 1));
  return e / (e + DoubleDouble(2));
}

// The same names for double, so that one text serves both precisions.
inline bool is_nan(double a) { return std::isnan(a); }
inline double high(double a) { return a; }
inline double low(double) { return 0; }

}  // namespace oracle

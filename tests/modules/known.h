// Matrices in double with a bound, element by element, on how far a float32 computation may be off.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace heed_test {

inline constexpr double kUnit = 0x1p-24;

/// Roundings on the way to a sum of k products: heed's chains have 64, 96 or 128 products and are
/// added up in their order; eight more for factors beside the sum.
inline double roundings(std::int64_t k) {
  const auto n = static_cast<double>(k);
  return std::min(n, 128.0) + std::ceil(n / 64) + 8;
}

/// What it should be, and the bound: first the values, then how far off each may be.
struct Known {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> value, error;

  Known() = default;
  Known(std::int64_t r, std::int64_t c)
      : rows(r),
        columns(c),
        value(static_cast<std::size_t>(r * c)),
        error(static_cast<std::size_t>(r * c)) {}
  Known(std::int64_t r, std::int64_t c, std::span<const double> exact) : Known(r, c) {
    value.assign(exact.begin(), exact.end());
  }
  [[nodiscard]] std::size_t at(std::int64_t r, std::int64_t c) const {
    return static_cast<std::size_t>(r * columns + c);
  }
};

inline Known transposed(const Known& a) {
  Known t(a.columns, a.rows);
  for (std::int64_t r = 0; r < a.rows; ++r) {
    for (std::int64_t c = 0; c < a.columns; ++c) {
      t.value[t.at(c, r)] = a.value[a.at(r, c)];
      t.error[t.at(c, r)] = a.error[a.at(r, c)];
    }
  }
  return t;
}

/// The block of rows and columns from (row, column) on.
inline Known block(const Known& a, std::int64_t row, std::int64_t column, std::int64_t rows,
                   std::int64_t columns) {
  Known b(rows, columns);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      b.value[b.at(r, c)] = a.value[a.at(row + r, column + c)];
      b.error[b.at(r, c)] = a.error[a.at(row + r, column + c)];
    }
  }
  return b;
}

/// a's block at (row, column) += b.
inline void add_block(Known& a, std::int64_t row, std::int64_t column, const Known& b) {
  for (std::int64_t r = 0; r < b.rows; ++r) {
    for (std::int64_t c = 0; c < b.columns; ++c) {
      const std::size_t at = a.at(row + r, column + c);
      a.value[at] += b.value[b.at(r, c)];
      a.error[at] += b.error[b.at(r, c)] + kUnit * std::fabs(a.value[at]);
    }
  }
}

/// factor * a b', each sum with `terms` roundings.
inline Known product(const Known& a, const Known& b, double terms, double factor = 1) {
  Known p(a.rows, b.rows);
  for (std::int64_t r = 0; r < a.rows; ++r) {
    for (std::int64_t c = 0; c < b.rows; ++c) {
      double sum = 0, off = 0, size = 0;
      for (std::int64_t k = 0; k < a.columns; ++k) {
        const double x = a.value[a.at(r, k)], dx = a.error[a.at(r, k)];
        const double y = b.value[b.at(c, k)], dy = b.error[b.at(c, k)];
        sum += x * y;
        off += std::fabs(x) * dy + std::fabs(y) * dx + dx * dy;
        size += (std::fabs(x) + dx) * (std::fabs(y) + dy);
      }
      p.value[p.at(r, c)] = factor * sum;
      p.error[p.at(r, c)] = std::fabs(factor) * (off + 1.01 * kUnit * terms * size) + 1e-37;
    }
  }
  return p;
}

/// The sums of the columns, [1, columns].
inline Known column_sums(const Known& a) {
  Known ones(1, a.rows);
  std::fill(ones.value.begin(), ones.value.end(), 1.0);
  return product(ones, transposed(a), roundings(a.rows));
}

/// How much of the bounds the largest error of `got` takes: at most 1 is right. NaN counts as
/// infinite.
inline double worst_share(std::span<const float> got, const Known& truth) {
  double worst = got.size() == truth.value.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < truth.value.size() && i < got.size(); ++i) {
    const double off = std::fabs(static_cast<double>(got[i]) - truth.value[i]);
    const double bound = truth.error[i] + kUnit * std::fabs(truth.value[i]) + 1e-40;
    worst = std::isnan(off) ? INFINITY : std::max(worst, off / bound);
  }
  return worst;
}

}  // namespace heed_test

// The small mathematics of studies: matrices of doubles, moments, what weights look like.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "heed/attention.h"
#include "normals.h"

namespace heed::cli {

/// Rows of doubles, one after the other.
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> data{};

  Matrix(std::int64_t row_count, std::int64_t column_count)
      : rows(row_count),
        columns(column_count),
        data(static_cast<std::size_t>(row_count) * static_cast<std::size_t>(column_count)) {}

  [[nodiscard]] std::span<double> row(std::int64_t i) {
    return std::span(data).subspan(static_cast<std::size_t>(i * columns),
                                   static_cast<std::size_t>(columns));
  }
  [[nodiscard]] std::span<const double> row(std::int64_t i) const {
    return std::span(data).subspan(static_cast<std::size_t>(i * columns),
                                   static_cast<std::size_t>(columns));
  }
};

/// Rows first, as numpy.random.randn(rows, columns).
[[nodiscard]] Matrix draw(Normals& normals, std::int64_t rows, std::int64_t columns);

[[nodiscard]] double dot(std::span<const double> a, std::span<const double> b);

/// A B
[[nodiscard]] Matrix product(const Matrix& a, const Matrix& b);

/// Q K^T, without any scale.
[[nodiscard]] Matrix dot_products(const Matrix& q, const Matrix& k);

/// The weights of heed's attention of q and k, in float64.
[[nodiscard]] Matrix weights_of(const Matrix& q, const Matrix& k, const AttentionOptions& options);

/// The larger or smaller of two numbers; NaN if one of them is, where std::max depends on their
/// order.
[[nodiscard]] inline double larger(double a, double b) { return b > a || std::isnan(b) ? b : a; }
[[nodiscard]] inline double smaller(double a, double b) { return b < a || std::isnan(b) ? b : a; }

/// Of a population: the variance divides by n.
struct Moments {
  double mean = 0, variance = 0, minimum = 0, maximum = 0;
};
[[nodiscard]] Moments moments_of(std::span<const double> values);

/// How sharp rows of weights are, the mean over the rows.
struct Sharpness {
  double entropy = 0;        ///< -sum p ln min(p + 1e-10, 1)
  double entropy_share = 0;  ///< of the most there can be, ln n; 0 of one key
  double largest = 0;        ///< weight of a row
};
[[nodiscard]] Sharpness sharpness_of(const Matrix& weights);

/// The Jacobian of softmax, diag(p) - p p^T, all rows of weights together.
struct JacobianSize {
  double diagonal_mean = 0;     ///< p (1 - p)
  double diagonal_maximum = 0;  ///< 0.25 at most
  double off_mean = 0;          ///< -p_i p_j
  double off_minimum = 0;
  double mean_size = 0, maximum_size = 0;  ///< of |entries|
  double norm = 0;                         ///< Frobenius, the mean over the rows
  double saturated_share = 0;              ///< of the rows: a key has more than 99 % of the weight
};
[[nodiscard]] JacobianSize jacobian_of(const Matrix& weights);

}  // namespace heed::cli

// Sums, each in the order of its index.
#include "study_math.h"

#include <algorithm>
#include <cmath>

#include "heed/inspect.h"

namespace heed::cli {

Matrix draw(Normals& normals, std::int64_t rows, std::int64_t columns) {
  Matrix matrix(rows, columns);
  for (double& value : matrix.data) value = normals.next();
  return matrix;
}

double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix result(a.rows, b.columns);
  for (std::int64_t i = 0; i < a.rows; ++i) {
    const auto to = result.row(i);
    for (std::int64_t j = 0; j < b.rows; ++j) {
      const double factor = a.row(i)[static_cast<std::size_t>(j)];
      const auto from = b.row(j);
      for (std::size_t c = 0; c < to.size(); ++c) to[c] += factor * from[c];
    }
  }
  return result;
}

Matrix dot_products(const Matrix& q, const Matrix& k) {
  Matrix result(q.rows, k.rows);
  for (std::int64_t i = 0; i < q.rows; ++i) {
    for (std::int64_t j = 0; j < k.rows; ++j) {
      result.row(i)[static_cast<std::size_t>(j)] = dot(q.row(i), k.row(j));
    }
  }
  return result;
}

// Values do not matter to weights: each key has one, 0.
Matrix weights_of(const Matrix& q, const Matrix& k, const AttentionOptions& options) {
  const Matrix v(k.rows, 1);
  Matrix output(q.rows, 1);
  Matrix weights(q.rows, k.rows);
  attention_forward(view(q.data.data(), {q.rows, q.columns}),
                    view(k.data.data(), {k.rows, k.columns}), view(v.data.data(), {v.rows, 1}),
                    {.output = view(output.data.data(), {q.rows, 1}),
                     .weights = view(weights.data.data(), {q.rows, k.rows})},
                    options);
  return weights;
}

Moments moments_of(std::span<const double> values) {
  const auto count = static_cast<double>(values.size());
  Moments moments{0, 0, HUGE_VAL, -HUGE_VAL};
  for (const double value : values) {
    moments.mean += value;
    moments.minimum = smaller(moments.minimum, value);
    moments.maximum = larger(moments.maximum, value);
  }
  moments.mean /= count;
  for (const double value : values) {
    const double away = value - moments.mean;
    moments.variance += away * away;
  }
  moments.variance /= count;
  return moments;
}

Sharpness sharpness_of(const Matrix& weights) {
  constexpr double kNotZero = 1e-10;  // the usual guard of ln 0
  Sharpness sum;
  for (std::int64_t i = 0; i < weights.rows; ++i) {
    double largest = 0;
    for (const double p : weights.row(i)) {
      // At most ln 1: a guard beside a weight of 1 would make the entropy negative. A NaN stays.
      sum.entropy -= p * std::log(std::min(p + kNotZero, 1.0));
      largest = larger(largest, p);
    }
    sum.largest += largest;
  }
  const auto rows = static_cast<double>(weights.rows);
  const double entropy = sum.entropy / rows;
  return {entropy, entropy_share(entropy, weights.columns), sum.largest / rows};
}

JacobianSize jacobian_of(const Matrix& weights) {
  constexpr double kSaturated = 0.99;
  JacobianSize size;
  double off_sum = 0;
  double size_sum = 0;
  for (std::int64_t row = 0; row < weights.rows; ++row) {
    const auto p = weights.row(row);
    double square = 0;
    double largest = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      largest = larger(largest, p[i]);
      for (std::size_t j = 0; j < p.size(); ++j) {
        const double entry = i == j ? p[i] * (1 - p[i]) : -p[i] * p[j];
        square += entry * entry;
        size_sum += std::abs(entry);
        size.maximum_size = larger(size.maximum_size, std::abs(entry));
        if (i == j) {
          size.diagonal_mean += entry;
          size.diagonal_maximum = larger(size.diagonal_maximum, entry);
        } else {
          off_sum += entry;
          size.off_minimum = smaller(size.off_minimum, entry);
        }
      }
    }
    size.norm += std::sqrt(square);
    const double saturated = largest > kSaturated ? 1 : 0;
    size.saturated_share += std::isnan(largest) ? largest : saturated;
  }
  const auto rows = static_cast<double>(weights.rows);
  const auto keys = static_cast<double>(weights.columns);
  size.diagonal_mean /= rows * keys;
  size.off_mean = keys > 1 ? off_sum / (rows * keys * (keys - 1)) : 0;
  size.mean_size = size_sum / (rows * keys * keys);
  size.norm /= rows;
  size.saturated_share /= rows;
  return size;
}

}  // namespace heed::cli

// One head's rows of scores and how well each is conditioned; the bounds are told in attention.cc.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention.h"

namespace oracle {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr std::int64_t kChain = 128;  // products of q and k that are added up in a row

template <typename T>
inline constexpr double kUnit = std::is_same_v<T, float> ? 0x1p-24 : 0x1p-53;
template <typename T>
inline constexpr double kTiny = std::is_same_v<T, float> ? 0x1p-126 : 0x1p-1022;
template <typename T>
inline constexpr double kEta = std::is_same_v<T, float> ? 0x1p-149 : 0x1p-1074;

template <typename T>
double rounded(double value) {
  return static_cast<double>(static_cast<T>(value));
}

/// Exact for float in double, and for double in double-double.
template <typename T>
Wide<T> product(double a, double b) {
  if constexpr (std::is_same_v<T, float>) {
    return a * b;
  } else {
    return two_product(a, b);
  }
}

template <typename Number>
Number one_or_each(const std::vector<Number>& numbers, std::int64_t index, Number absent) {
  if (numbers.empty()) return absent;
  return numbers[numbers.size() == 1 ? 0 : static_cast<std::size_t>(index)];
}

inline std::int64_t saturating_sum(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return a < 0 ? std::numeric_limits<std::int64_t>::min()
               : std::numeric_limits<std::int64_t>::max();
}

template <typename T>
std::int64_t position(const Problem<T>& p, std::int64_t b, std::int64_t i) {
  return saturating_sum(one_or_each<std::int64_t>(p.query_start, b, 0), i);
}

/// What the derivative of a score is made of: t and A before softcap and before score_mod, and q .
/// k (of vectors of length 1 with normalize_qk).
template <typename Real>
struct Steps {
  Real product{}, uncapped{}, unmodified{};
  double A_uncapped = 0, A_unmodified = 0;
};

/// q . k, sum |q||k| and R, told in attention.cc, of one query and the keys from `first` on. Each
/// component is taken for all keys before the next one, so that the chains of sums run side by
/// side: a fifth of the time.
template <typename T>
struct Products {
  std::int64_t first = 0;
  std::vector<Wide<T>> dot;
  std::vector<double> magnitude, R;
};

/// Everything about one (b, h): dense copies of K and V, the head's numbers.
template <typename T>
struct Head {
  using Real = Wide<T>;
  const Problem<T>& p;
  std::int64_t b, h;
  std::vector<double> k, v, k_transposed;
  std::vector<Real> rk;
  double scale, slope, sink;

  Head(const Problem<T>& problem, std::int64_t batch, std::int64_t head)
      : p(problem), b(batch), h(head) {
    const std::int64_t hk = h / (p.heads / p.kv_heads);
    k.reserve(index(p.keys, 0, p.size));
    v.reserve(index(p.keys, 0, p.value_size));
    k_transposed.reserve(k.capacity());
    for (std::int64_t j = 0; j < p.keys; ++j) {
      for (std::int64_t c = 0; c < p.size; ++c) k.push_back(double{p.k.at(b, hk, j, c)});
      for (std::int64_t x = 0; x < p.value_size; ++x) v.push_back(double{p.v.at(b, hk, j, x)});
      if (p.normalize_qk) rk.push_back(reciprocal_norm(&k[index(j, 0, p.size)]));
    }
    for (std::int64_t c = 0; c < p.size; ++c)
      for (std::int64_t j = 0; j < p.keys; ++j) k_transposed.push_back(k[index(j, c, p.size)]);
    const double usual = p.normalize_qk ? 1.0 : 1.0 / std::sqrt(static_cast<double>(p.size));
    scale = rounded<T>(one_or_each(p.scale, h, usual));
    slope = p.alibi.empty() ? 0.0 : rounded<T>(p.alibi[static_cast<std::size_t>(h)]);
    sink = p.sinks.empty() ? -kInf : rounded<T>(p.sinks[static_cast<std::size_t>(h)]);
  }

  static std::size_t index(std::int64_t row, std::int64_t column, std::int64_t columns) {
    return static_cast<std::size_t>(row * columns + column);
  }

  Real reciprocal_norm(const double* row) const {
    Real sum = 0.0;
    for (std::int64_t c = 0; c < p.size; ++c) sum = sum + product<T>(row[c], row[c]);
    using std::sqrt;
    return high(sum) == 0 ? Real(0.0) : Real(1.0) / sqrt(sum);
  }

  Products<T> products(const std::vector<double>& q, std::int64_t first, std::int64_t end) const {
    const auto count = static_cast<std::size_t>(end - first);
    Products<T> all{first, std::vector<Real>(count, Real(0.0)), std::vector<double>(count),
                    std::vector<double>(count)};
    std::vector<double> partial(count);  // sums of a chain so far
    for (std::int64_t c = 0; c < p.size; ++c) {
      if (c % kChain == 0) std::fill(partial.begin(), partial.end(), 0.0);
      const double x = q[static_cast<std::size_t>(c)];
      const double* key = k_transposed.data() + index(c, first, p.keys);
      for (std::size_t j = 0; j < count; ++j) {
        all.dot[j] = all.dot[j] + product<T>(x, key[j]);
        all.magnitude[j] += std::fabs(x * key[j]);
        partial[j] += x * key[j];
        all.R[j] += partial[j] * partial[j];
      }
    }
    for (double& R : all.R) R = std::sqrt(R);
    return all;
  }

  /// The score of an allowed place and its A; visible = false where bias or score_mod masks it.
  Real score(const Products<T>& products, Real rq, std::int64_t i, std::int64_t j, double& A,
             bool& visible, Steps<Real>* steps = nullptr) const {
    using std::tanh;
    const auto place = static_cast<std::size_t>(j - products.first);
    Real t = products.dot[place];
    // Products whose squares are no float64 numbers, before the scale, have no R: it is stricter.
    const double R = std::isfinite(products.R[place]) ? products.R[place] : 0;
    const double C = 4 + static_cast<double>(p.size) / 64;
    const double magnitude = std::max(products.magnitude[place], 3 * R / C);
    if (steps != nullptr) {
      steps->product = p.normalize_qk ? t * rq * rk[static_cast<std::size_t>(j)] : t;
    }
    t = Real(scale) * t;
    A = std::fabs(scale) * magnitude;
    if (p.normalize_qk) {
      const Real r = rq * rk[static_cast<std::size_t>(j)];
      t = t * r;
      A = A * high(r) + 2.5 * std::fabs(high(t));
    }
    if (steps != nullptr) {
      steps->uncapped = t;
      steps->A_uncapped = A;
    }
    if (p.softcap) {
      const double cap = rounded<T>(*p.softcap);
      const double before = high(t) / cap;
      t = Real(cap) * tanh(t / Real(cap));
      if (C * kUnit<T> * A < cap / 4) {
        const double cosine = std::cosh(std::min(std::fabs(before), 300.0));
        A = std::min(A, std::min(1.0, 2 / (cosine * cosine)) * A + std::fabs(high(t)));
      } else if (std::isinf(before)) {
        A = std::fabs(high(t));
      }
    }
    if (!p.alibi.empty()) {
      const std::int64_t at = position(p, b, i);
      const double distance = at > j ? static_cast<double>(at) - static_cast<double>(j)
                                     : static_cast<double>(j) - static_cast<double>(at);
      t = t - product<T>(slope, distance);
      A += std::fabs(slope * distance);
    }
    visible = true;
    if (p.bias.data != nullptr) {
      const double bias = p.bias.at(b, h, i, j);
      if (bias == -kInf) visible = false;
      t = t + Real(bias);
      A += std::fabs(bias);
    }
    if (steps != nullptr) {
      steps->unmodified = t;
      steps->A_unmodified = A;
    }
    if (visible && p.score_mod) {
      t = p.score_mod(t, b, h, i, j);
      A = p.score_mod_slope * A + std::fabs(high(t));
      if (high(t) == -kInf) visible = false;
    }
    return t;
  }
};

template <typename T>
struct Row {
  std::vector<std::int64_t> keys;  // those that the row attends to
  std::vector<Wide<T>> t, e;
  std::vector<double> A, P;
  std::vector<double> kept;           // dropout: 0, or what the weight is multiplied with
  std::vector<Steps<Wide<T>>> steps;  // where they are asked for
};

template <typename T>
Row<T> scores_of(const Head<T>& head, std::int64_t i, bool with_steps = false) {
  const Problem<T>& p = head.p;
  std::vector<double> q;
  for (std::int64_t c = 0; c < p.size; ++c) q.push_back(double{p.q.at(head.b, head.h, i, c)});
  const Wide<T> rq = p.normalize_qk ? head.reciprocal_norm(q.data()) : Wide<T>(1.0);
  std::vector<std::int64_t> keys;
  for (std::int64_t j = 0; j < p.keys; ++j)
    if (allowed(p, head.b, head.h, i, j)) keys.push_back(j);
  if (keys.empty()) return {};
  const Products<T> products = head.products(q, keys.front(), keys.back() + 1);
  Row<T> row;
  for (const std::int64_t j : keys) {
    double A = 0;
    bool visible = true;
    Steps<Wide<T>> steps;
    const Wide<T> t = head.score(products, rq, i, j, A, visible, with_steps ? &steps : nullptr);
    if (!visible) continue;
    if (with_steps) row.steps.push_back(steps);
    row.keys.push_back(j);
    row.t.push_back(t);
    row.kept.push_back(p.dropout.factor(p.dropout.head_of(head.b, head.h, p.heads), i, j));
    row.A.push_back(A);
  }
  return row;
}

/// What O may lose below the normal numbers, told in attention.cc.
template <typename T>
double lost_of_output(const Problem<T>& p, const Row<T>& row, Wide<T> l) {
  return kEta<T> * (1 + static_cast<double>(row.keys.size()) * p.dropout.keep_factor() / high(l));
}

}  // namespace oracle

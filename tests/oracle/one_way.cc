// Where the bounds of attention.cc end: whether roundings of a problem go one way.
//
// C, R and N are what chains err whose roundings go either way. Most problems could err by more if
// all of theirs went one way, and hardly any does, so the sizes of the numbers tell little. What
// tells is the chain itself, in T and in the order that docs/numerics.md fixes, beside its sum:
//
//     q . k      128 products each; granted u max(C sum |q||k|, 3 R)
//     l and O_x  1 e_j and v_jx e_j, a block of 96 keys each; granted u N sum e_j and
//                u N sum |v_jx| e_j over all blocks
//
// and eta for each product. e_j is the exact score's, rounded once. Another order, as there is one
// for decoding key by key, and dot products of bfloat16 have chains of their own, and so has the
// backward pass beside these.
#include <algorithm>
#include <cmath>

#include "rows.h"

namespace oracle {
namespace {

constexpr std::size_t kBlock = 96;  // keys

/// A chain of products in T, what it should be, and how well that is conditioned.
template <typename T>
struct Chain {
  T sum = 0;
  Wide<T> exact = 0.0;
  double magnitude = 0, squares = 0;

  void add(T a, T b) {
    sum = std::fma(a, b, sum);
    exact = exact + product<T>(double{a}, double{b});
    magnitude += std::fabs(double{a} * double{b});
    squares += double{sum} * double{sum};
  }
  [[nodiscard]] double error() const { return high(Wide<T>(double{sum}) - exact); }
};

/// Numbers beyond the type's range are another end of the bounds.
bool is_beyond(double error, double granted) {
  return std::isfinite(error) && std::fabs(error) > granted;
}

template <typename T>
bool product_goes_one_way(const Head<T>& head, const std::vector<double>& q, std::int64_t j) {
  const std::int64_t size = head.p.size;
  double error = 0, magnitude = 0, squares = 0;
  for (std::int64_t c = 0; c < size;) {
    Chain<T> chain;
    for (const std::int64_t end = std::min(size, c + kChain); c < end; ++c)
      chain.add(static_cast<T>(q[static_cast<std::size_t>(c)]),
                static_cast<T>(head.k[Head<T>::index(j, c, size)]));
    error += chain.error();
    magnitude += chain.magnitude;
    squares += chain.squares;
  }
  const double C = 4 + static_cast<double>(size) / 64;
  const double granted = kUnit<T> * std::max(C * magnitude, 3 * std::sqrt(squares));
  return is_beyond(error, granted + static_cast<double>(size) * kEta<T>);
}

/// The sum over a row's keys of weight_of(s) e_s.
template <typename T, typename F>
bool sum_goes_one_way(const Head<T>& head, const Row<T>& row, F weight_of) {
  using std::exp;
  const auto n_k = static_cast<double>(head.p.keys);
  double m = -kInf, error = 0, magnitude = 0;
  for (std::size_t s = 0; s < row.keys.size();) {
    const auto block = static_cast<std::size_t>(row.keys[s]) / kBlock;
    const auto in_block = [&](std::size_t n) {
      return n < row.keys.size() && static_cast<std::size_t>(row.keys[n]) / kBlock == block;
    };
    const double before = m;
    for (std::size_t n = s; in_block(n); ++n) m = std::max(m, high(row.t[n]));
    if (m == -kInf) {  // so far all weights are 0
      while (in_block(s)) ++s;
      continue;
    }
    Chain<T> chain;
    for (; in_block(s); ++s)
      chain.add(static_cast<T>(weight_of(s)), static_cast<T>(high(exp(row.t[s] - Wide<T>(m)))));
    const double a = before == -kInf ? 0 : std::exp(before - m);
    error = a * error + chain.error();
    magnitude = a * magnitude + chain.magnitude;
  }
  return is_beyond(error, kUnit<T> * (32 + n_k / 1536) * magnitude + n_k * kEta<T>);
}

template <typename T>
bool row_goes_one_way(const Head<T>& head, std::int64_t i) {
  const Problem<T>& p = head.p;
  const Row<T> row = scores_of(head, i);
  std::vector<double> q;
  for (std::int64_t c = 0; c < p.size; ++c) q.push_back(double{p.q.at(head.b, head.h, i, c)});
  if (p.normalize_qk) {
    const double r = high(head.reciprocal_norm(q.data()));
    for (double& x : q) x = rounded<T>(x * r);
  }
  for (const std::int64_t j : row.keys)
    if (product_goes_one_way(head, q, j)) return true;
  if (sum_goes_one_way(head, row, [](std::size_t) { return 1.0; })) return true;
  for (std::int64_t x = 0; x < p.value_size; ++x) {
    const auto value = [&](std::size_t s) {
      return row.kept[s] == 0 ? 0.0 : head.v[Head<T>::index(row.keys[s], x, p.value_size)];
    };
    if (sum_goes_one_way(head, row, value)) return true;
  }
  return false;
}

}  // namespace

template <typename T>
bool roundings_go_one_way(const Problem<T>& p) {
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.heads; ++h) {
      const Head<T> head(p, b, h);
      for (std::int64_t i = 0; i < p.queries; ++i)
        if (row_goes_one_way(head, i)) return true;
    }
  return false;
}

template bool roundings_go_one_way(const Problem<float>&);
template bool roundings_go_one_way(const Problem<double>&);

}  // namespace oracle

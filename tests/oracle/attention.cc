// Softmax attention as the textbook has it, beside the sums that say how well it is conditioned.
//
// The bound of an output element (u the unit roundoff, * the exact value):
//
//     |o - o*|     <= u |o*| + u (C B + N m) + n_k tiny max|v| + lost
//     |lse - lse*| <= u (2 C (1 + kappa + |lse*|) + N)
//     |p - p*|     <= u p* (2 C (1 + kappa + A) + N) + tiny
//
//     kappa_i = sum_j P_ij A_ij     m_ix = sum_j P_ij |v_jx|
//     B_ix = sum_j P_ij (1 + kappa_i + A_ij) |v_jx|
//     C = 4 + d / 64                N = 32 + n_k / 1536
//
// tiny is the smallest normal number: below it an exponential may be taken as 0, in o as in p.
//
// lost = eta (1 + n / (l (1 - p))), eta the smallest subnormal number, n the keys that the row
// sees, p the rate of dropout: what rounding may lose below the normal numbers, eta / 2 each time.
// Only products lose there, sums are exact. One for each key that is seen: that of a block's
// largest score is v itself, and where it raises m, what was summed up before is multiplied with
// e^(m - m') in its place; merging splits is alike, and a sink has the last. At the end they are
// multiplied with 1 / (l (1 - p)), l >= 1, which is one more. The other half of eta is the oracle's
// own for float64, whose double-double ends there as well. Where all v are 0, so is o.
//
// A_ij bounds |error of the score| / (C u); the steps that act on a score change it so:
//
//   scale      A = |scale| max(sum_c |q_ic||k_jc|, 3 R / C): chain of products and factor. R^2
//              is the sum of the squares of the chain's partial sums S_c; it begins anew every
//              128 products. Each rounding is at most u S_c; where they go either way
//              independently of each other, their sum has a standard deviation of at most
//              u R / sqrt(3), and 3 u R are five of them. C u sum |q||k| covers that where signs
//              are mixed, but not where the products of a chain have one sign: if they are about
//              one size, R is about sqrt(d / 3) sum |q||k| up to d = 128. Found where dropout had
//              left one key that weighed something: off by 1.15 of the bound that had no R.
//   normalize  Each reciprocal norm comes from one chain of d squares: relative to the sum a
//              standard deviation of sqrt(d) u / 3 (R as above), half of it for the root, and
//              u / sqrt(3) each for root, quotient and product. Two of them make
//              u sqrt(d / 18 + 2), of which 2.5 C u are 4.9 or more, relative to t; the chain
//              over the normalised products is as before.
//              A = |scale| rq rk max(as above) + 2.5 |t|.
//   softcap    t' = cap tanh(t / cap) has the slope sech^2(t / cap) <= 1, so A' = A always holds.
//              Where the error C u A is below cap / 4, the slope does not double within it:
//              A' = min(1, 2 sech^2) A + |t'|, the last for tanh's own few ulp and three roundings.
//   alibi      A' = A + |slope| |p - j|: one rounding of the slope, one of the sum.
//   bias       A' = A + |bias|, the same.
//   score_mod  with slope L: A' = L A + |t'|, its own rounding and the changes of unit.
//   sink       counts in kappa as a key with A = |sink|.
//   dropout    weights are multiplied with 0 or 1 / (1 - p) after the softmax: so are P in m and B,
//              and p, tiny and |v|. The factor's rounding and that of its product with 1 / l add 2
//              to N.
//
// The first bounds are of first order in C u A, the error of a score. Where that passes 1/8 for a
// key that may weigh something (A above 5e5 in float32), weights may be anything from 0 to what
// dropout makes of 1, rounded, and o anything between the values of v; lse, which moves no further
// than the scores do, keeps its bound with max A in place of kappa. Below 1/8 the second order is
// less than C's own slack.
#include <algorithm>
#include <cmath>

#include "rows.h"

namespace oracle {
namespace {

void put(Truth& truth, std::size_t n, double value, double lower, double bound) {
  truth.value[n] = value;
  truth.low[n] = std::isfinite(value) ? lower : 0;
  truth.bound[n] = bound;
}

/// The largest A of the keys whose score, wrong by twice its error, could still weigh something
/// against the largest: e^-104 is nothing to float32, e^-750 to float64.
template <typename T>
double worst_condition(const Row<T>& row, Wide<T> m, double error) {
  constexpr double kNothing = std::is_same_v<T, float> ? 104 : 750;
  double at_most = 0, worst = 0;
  for (std::size_t s = 0; s < row.t.size(); ++s)
    if (!(row.t[s] < m)) at_most = row.A[s];
  for (std::size_t s = 0; s < row.t.size(); ++s) {
    const double reach = high(row.t[s]) + 2 * error * (row.A[s] + at_most) + kNothing;
    if (high(row.t[s]) > -kInf && reach >= high(m)) worst = std::max(worst, row.A[s]);
  }
  return worst;
}

/// The sums over a row's keys for one column of v.
template <typename Real>
struct Column {
  Real sum = 0.0;
  double mean = 0, B = 0, largest = 0;
  bool faint = false;  // an infinity whose weight may already be 0

  void add(double v, Real e, double kept, double weight, double weight_of_error, bool maybe_zero) {
    sum = sum + e * Real(v);
    if (!std::isfinite(v)) {
      faint |= std::isinf(v) && maybe_zero;
      return;
    }
    largest = std::max(largest, kept * std::fabs(v));
    mean += weight * std::fabs(v);
    B += weight_of_error * std::fabs(v);
  }
};

template <typename T>
void finish_row(const Head<T>& head, std::int64_t i, Row<T>& row, Answer& answer,
                bool with_weights) {
  using Real = Wide<T>;
  using std::exp;
  using std::log;
  const Problem<T>& p = head.p;
  const double u = kUnit<T>, n_k = static_cast<double>(p.keys);
  const double C = 4 + static_cast<double>(p.size) / 64;
  const double N = 32 + n_k / 1536 + (p.dropout.threshold() > 0 ? 2 : 0);
  const auto r = static_cast<std::size_t>((head.b * p.heads + head.h) * p.queries + i);

  // First pass: the maximum; NaN, once in, stays.
  Real m = Real(head.sink);
  for (const Real& t : row.t) {
    if (m < t || is_nan(t)) m = is_nan(m) ? m : t;
  }
  const bool no_score = high(m) == -kInf;  // nothing visible, or every score is -inf
  // Second pass: exponentials and their sum.
  Real l = no_score ? Real(0.0) : exp(Real(head.sink) - m);
  for (const Real& t : row.t) {
    row.e.push_back(no_score ? Real(0.0) : exp(t - m));
    l = l + row.e.back();
  }
  const bool bad = is_nan(l);
  double kappa = std::isfinite(head.sink) && !no_score
                     ? high(exp(Real(head.sink) - m) / l) * std::fabs(head.sink)
                     : 0;
  double kappa_of_keys = 0, weight_of_keys = 0;
  for (std::size_t s = 0; s < row.keys.size(); ++s) {
    row.P.push_back(no_score ? 0 : high(row.e[s] / l));
    if (row.P[s] != 0) kappa_of_keys += row.P[s] * row.A[s], weight_of_keys += row.P[s];
  }
  kappa += kappa_of_keys;

  const double worst = worst_condition(row, m, C * u);
  const bool coarse = C * u * worst > 0.125;
  if (coarse) kappa = worst;

  answer.kappa_of_keys[r] = !(weight_of_keys > 0) ? kNaN
                            : coarse              ? worst
                                                  : kappa_of_keys / weight_of_keys;
  const Real lse = no_score ? Real(-kInf) : bad ? Real(kNaN) : m + log(l);
  put(answer.lse, r, high(lse), low(lse),
      std::isfinite(high(lse)) ? u * (2 * C * (1 + kappa + std::fabs(high(lse))) + N) : 0);

  const double least = no_score ? kEta<T> : lost_of_output(p, row, l);
  // Key by key, so that the chains of the columns run side by side.
  std::vector<Column<Real>> columns(static_cast<std::size_t>(p.value_size));
  for (std::size_t s = 0; s < row.keys.size(); ++s) {
    const double* v = head.v.data() + Head<T>::index(row.keys[s], 0, p.value_size);
    const double kept = row.kept[s], weight = kept * row.P[s];
    const double weight_of_error = row.P[s] == 0 ? 0 : weight * (1 + kappa + row.A[s]);
    const Real e = row.e[s] * Real(kept);
    const bool maybe_zero = high(row.e[s]) < 2 * kTiny<T>;
    for (std::size_t x = 0; x < columns.size(); ++x)
      columns[x].add(v[x], e, kept, weight, weight_of_error, maybe_zero);
  }
  for (std::int64_t x = 0; x < p.value_size; ++x) {
    const auto& [sum, mean, B, largest, faint] = columns[static_cast<std::size_t>(x)];
    const Real o = bad                                    ? Real(kNaN)
                   : no_score && std::isfinite(high(sum)) ? Real(0.0)
                   : no_score                             ? Real(kNaN)
                                                          : sum / l;
    const auto n = r * static_cast<std::size_t>(p.value_size) + static_cast<std::size_t>(x);
    answer.m[n] = std::isfinite(high(o)) ? mean : std::fabs(high(o));
    if (std::isfinite(high(o))) {
      const double spread = coarse ? 2 * largest : C * u * B;
      put(answer.o, n, high(o), low(o),
          u * std::fabs(high(o)) + spread + u * N * mean + n_k * kTiny<T> * largest +
              (largest > 0 ? least : kEta<T>));
    } else {
      put(answer.o, n, high(o), 0, faint ? kInf : 0);
    }
  }

  if (!with_weights) return;
  for (std::int64_t j = 0; j < p.keys;
       ++j) {  // a masked place is 0; in a row of NaN it may be either
    put(answer.weights, r * static_cast<std::size_t>(p.keys) + static_cast<std::size_t>(j),
        bad ? kNaN : 0, 0, bad ? kInf : 0);
  }
  for (std::size_t s = 0; s < row.keys.size(); ++s) {
    const auto n = r * static_cast<std::size_t>(p.keys) + static_cast<std::size_t>(row.keys[s]);
    const Real w = no_score ? Real(0.0) : row.e[s] / l * Real(row.kept[s]);
    if (row.kept[s] == 0) {  // +0, in a row of NaN too
      put(answer.weights, n, 0, 0, 0);
      continue;
    }
    const double A = std::isfinite(row.A[s]) ? row.A[s] : 0;
    answer.relative[n] = coarse ? kInf : u * (2 * C * (1 + kappa + A) + N);
    const double spread = coarse ? row.kept[s] * (1 + u) : high(w) * answer.relative[n];
    put(answer.weights, n, high(w), low(w),
        bad ? 0 : spread + (no_score ? 0 : row.kept[s] * kTiny<T>));
  }
}

}  // namespace

void Truth::resize(std::size_t n) {
  value.resize(n);
  low.resize(n);
  bound.resize(n);
}

template <typename T>
bool allowed(const Problem<T>& p, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  const std::int64_t at = position(p, b, i);
  if (p.causal && j > at) return false;
  if (p.left && j < saturating_sum(at, -*p.left)) return false;
  if (p.right && j > saturating_sum(at, *p.right)) return false;
  if (j >= one_or_each(p.key_lengths, b, p.keys)) return false;
  if (i >= one_or_each(p.query_lengths, b, p.queries)) return false;
  if (p.keep.data != nullptr && p.keep.at(b, h, i, j) == 0) return false;
  return p.drop.data == nullptr || p.drop.at(b, h, i, j) == 0;
}

template <typename T>
Answer attention(const Problem<T>& p, bool with_weights) {
  Answer answer;
  const auto rows = static_cast<std::size_t>(p.batch * p.heads * p.queries);
  answer.o.resize(rows * static_cast<std::size_t>(p.value_size));
  answer.lse.resize(rows);
  answer.m.resize(answer.o.value.size());
  answer.kappa_of_keys.resize(rows);
  if (with_weights) {
    answer.weights.resize(rows * static_cast<std::size_t>(p.keys));
    answer.relative.resize(answer.weights.value.size());
  }
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t h = 0; h < p.heads; ++h) {
      const Head<T> head(p, b, h);
      for (std::int64_t i = 0; i < p.queries; ++i) {
        Row<T> row = scores_of(head, i);
        finish_row(head, i, row, answer, with_weights);
      }
    }
  }
  return answer;
}

template bool allowed(const Problem<float>&, std::int64_t, std::int64_t, std::int64_t,
                      std::int64_t);
template bool allowed(const Problem<double>&, std::int64_t, std::int64_t, std::int64_t,
                      std::int64_t);
template Answer attention(const Problem<float>&, bool);
template Answer attention(const Problem<double>&, bool);

}  // namespace oracle

// Forward-mode derivatives by the formula and by one complex step.
//
// The bound (what is not said here is in attention.cc and gradients.cc). G bounds the error of S'
// over C u: it is what S' is added up from, times the derivatives of the options after it, plus
// |S'| times their errors, as F in gradients.cc:
//
//     L_i = sum_j P_ij ((1 + kappa_i + A_ij) |S'_ij| + G_ij)
//     |lse' - *| <= u |lse'| + u (2 C + N) L_i
//     |O' - *|   <= u |O'| + |lse'| lost
//              + u (2 C + N) (sum_j kept P_ij ((1 + kappa_i + A_ij) (|S'_ij| |v_jx| + |v'_jx|)
//                                              + G_ij |v_jx|)
//                             + L_i |O_ix| + |lse'| sum_j kept P_ij (1 + kappa_i + A_ij) |v_jx|)
//
//     normalize  the tangent of x / |x|, x of length 1, is known to
//                4 C u (|x'_c| + 2 |x_c| sum |x x'|) / |x|
#include "tangents.h"

#include <algorithm>
#include <cmath>

#include "complex_row.h"
#include "rows.h"

namespace oracle {
namespace {

/// A tangent of x or of x / |x|, and what it is added up from.
template <typename Real>
struct Tangent {
  std::vector<Real> value;
  std::vector<double> magnitude;
};

template <typename T>
struct Pass {
  using Real = Wide<T>;
  const Problem<T>& p;
  const Directions<T>& along;
  Moved moved;
  double u = kUnit<T>;
  double C = 4 + static_cast<double>(std::max(p.size, p.value_size)) / 64;
  double N = 16 + static_cast<double>(p.keys) / 3072;
  double faint = std::is_same_v<T, float> ? 0x1p-102 : 0x1p-970;

  Tangent<Real> tangent(const View<T>& of, std::int64_t b, std::int64_t h, std::int64_t i,
                        const double* x, Real r) const {
    Tangent<Real> t;
    const auto size = static_cast<std::size_t>(p.size);
    t.value.resize(size);
    t.magnitude.resize(size);
    if (of.data == nullptr) return t;
    Real dot = 0.0;
    double magnitude = 0;
    for (std::size_t c = 0; c < size; ++c) {
      t.value[c] = Real(double{of.at(b, h, i, static_cast<std::int64_t>(c))});
      t.magnitude[c] = std::fabs(high(t.value[c]));
      dot = dot + Real(x[c]) * r * t.value[c];
      magnitude += std::fabs(x[c] * high(r)) * t.magnitude[c];
    }
    for (std::size_t c = 0; p.normalize_qk && c < size; ++c) {
      t.magnitude[c] = 4 * high(r) * (t.magnitude[c] + 2 * std::fabs(x[c] * high(r)) * magnitude);
      t.value[c] = r * (t.value[c] - Real(x[c]) * r * dot);
    }
    return t;
  }

  void row(const Head<T>& head, std::int64_t i, const std::vector<Tangent<Real>>& dk) {
    using std::exp;
    using std::tanh;
    Row<T> row = scores_of(head, i, true);
    const auto D = static_cast<std::size_t>(p.size), Dv = static_cast<std::size_t>(p.value_size);
    const auto r = static_cast<std::size_t>((head.b * p.heads + head.h) * p.queries + i);
    std::vector<double> q;
    for (std::int64_t c = 0; c < p.size; ++c) q.push_back(double{p.q.at(head.b, head.h, i, c)});
    const Real rq = p.normalize_qk ? head.reciprocal_norm(q.data()) : Real(1.0);
    const Tangent<Real> dq = tangent(along.q, head.b, head.h, i, q.data(), rq);
    Real m = Real(head.sink);
    for (const Real& t : row.t)
      if (m < t) m = t;
    if (high(m) == -kInf) return;  // it sees no key, and moves nowhere
    Real l = exp(Real(head.sink) - m);
    for (const Real& t : row.t) {
      row.e.push_back(exp(t - m));
      l = l + row.e.back();
    }
    const double sink = high(exp(Real(head.sink) - m) / l);
    double kappa = sink > 0 ? sink * std::fabs(head.sink) : 0, worst = 0;
    for (std::size_t s = 0; s < row.keys.size(); ++s) {
      row.P.push_back(high(row.e[s] / l));
      if (row.P[s] != 0) kappa += row.P[s] * row.A[s];
      worst = std::max(worst, row.A[s]);
    }
    const double coarse = C * u * (worst + kappa) > 0.125 ? kInf : 0;
    std::vector<Real> S(row.keys.size());
    std::vector<double> G(row.keys.size());
    Real lse = 0.0;
    double L = 0, largest = 0;
    for (std::size_t s = 0; s < row.keys.size(); ++s) {
      const auto j = static_cast<std::size_t>(row.keys[s]);
      const Real rk = p.normalize_qk ? head.rk[j] : Real(1.0);
      const Steps<Real>& at = row.steps[s];
      for (std::size_t c = 0; c < D; ++c) {
        const double k = head.k[j * D + c];
        S[s] = S[s] +
               Real(head.scale) * (dq.value[c] * Real(k) * rk + Real(q[c]) * rq * dk[j].value[c]);
        G[s] += std::fabs(head.scale) * (dq.magnitude[c] * std::fabs(k) * high(rk) +
                                         std::fabs(q[c]) * high(rq) * dk[j].magnitude[c]);
      }
      if (p.softcap) {
        const double cap = rounded<T>(*p.softcap);
        const Real t = tanh(at.uncapped / Real(cap));
        const Real slope = (Real(1.0) - t) * (Real(1.0) + t);
        G[s] = high(slope) * G[s] +
               std::fabs(high(S[s])) * (2 * high(slope) * at.A_uncapped / cap + 4);
        S[s] = S[s] * slope;
      }
      if (along.bias.data != nullptr) {
        const double bias = along.bias.at(head.b, head.h, i, row.keys[s]);
        S[s] = S[s] + Real(bias);
        G[s] += std::fabs(bias);
      }
      if (p.score_mod) {
        const Real f = p.score_mod_derivative(at.unmodified, head.b, head.h, i, row.keys[s]);
        G[s] =
            std::fabs(high(f)) * G[s] +
            std::fabs(high(S[s])) * (p.score_mod_curvature * at.A_unmodified + std::fabs(high(f)));
        S[s] = S[s] * f;
      }
      lse = lse + row.e[s] / l * S[s];
      L += row.P[s] * ((1 + kappa + row.A[s]) * std::fabs(high(S[s])) + G[s]);
      largest = std::max(largest, std::fabs(high(S[s])));
    }
    const double n = static_cast<double>(p.keys), absolute = (2 + n) * kEta<T> + coarse;
    put(moved.lse, r, lse,
        u * std::fabs(high(lse)) + u * (2 * C + N) * L + n * faint * largest + absolute);
    for (std::size_t x = 0; x < Dv; ++x) {
      Real sum = 0.0, o = 0.0;
      double error = 0, spread = 0, tiny = 0;
      for (std::size_t s = 0; s < row.keys.size(); ++s) {
        const auto X = static_cast<std::int64_t>(x);
        const double v = head.v[Head<T>::index(row.keys[s], X, p.value_size)];
        const std::int64_t hk = head.h / (p.heads / p.kv_heads);
        const double dv =
            along.v.data == nullptr ? 0 : double{along.v.at(head.b, hk, row.keys[s], X)};
        const Real weight = row.e[s] / l * Real(row.kept[s]);
        sum = sum + weight * (S[s] * Real(v) + Real(dv));
        o = o + weight * Real(v);
        const double P = row.P[s] * row.kept[s], near = 1 + kappa + row.A[s],
                     move = std::fabs(high(S[s]));
        error += P * (near * (move * std::fabs(v) + std::fabs(dv)) + G[s] * std::fabs(v));
        spread += P * near * std::fabs(v);
        tiny = std::max(tiny, row.kept[s] * (move * std::fabs(v) + std::fabs(dv)));
      }
      const Real result = sum - lse * o;
      const double of_o = spread > 0 ? std::fabs(high(lse)) * lost_of_output(p, row, l) : 0;
      error += L * std::fabs(high(o)) + std::fabs(high(lse)) * spread;
      put(moved.o, r * Dv + x, result,
          u * std::fabs(high(result)) + u * (2 * C + N) * error + n * faint * tiny + absolute +
              of_o);
    }
  }

  static void put(Truth& truth, std::size_t n, Real value, double bound) {
    truth.value[n] = high(value);
    truth.low[n] = low(value);
    truth.bound[n] = bound;
  }

  Moved run() {
    const auto rows = static_cast<std::size_t>(p.batch * p.heads * p.queries);
    moved.o.resize(rows * static_cast<std::size_t>(p.value_size));
    moved.lse.resize(rows);
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t h = 0; h < p.heads; ++h) {
        const Head<T> head(p, b, h);
        std::vector<Tangent<Real>> dk;
        for (std::int64_t j = 0; j < p.keys; ++j) {
          const auto at = static_cast<std::size_t>(j);
          dk.push_back(tangent(along.k, b, h / (p.heads / p.kv_heads), j,
                               head.k.data() + at * static_cast<std::size_t>(p.size),
                               p.normalize_qk ? head.rk[at] : Real(1.0)));
        }
        for (std::int64_t i = 0; i < p.queries; ++i) row(head, i, dk);
      }
    return moved;
  }
};

}  // namespace

Moved moved_by_complex_step(const Problem<double>& p, const Directions<double>& along) {
  Moved moved;
  const auto rows = static_cast<std::size_t>(p.batch * p.heads * p.queries);
  moved.o.value.resize(rows * static_cast<std::size_t>(p.value_size));
  moved.lse.value.resize(rows);
  const auto step = [](Complex& number, const View<double>& of, auto... at) {
    if (of.data != nullptr) number += Complex(0, kStep * of.at(at...));
  };
  std::size_t r = 0;
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.heads; ++h)
      for (std::int64_t i = 0; i < p.queries; ++i, ++r) {
        ComplexRow row(p, b, h, i);
        const std::int64_t hk = h / (p.heads / p.kv_heads);
        const auto D = row.q.size(), Dv = static_cast<std::size_t>(p.value_size);
        for (std::size_t c = 0; c < D; ++c) step(row.q[c], along.q, b, h, i, std::int64_t(c));
        for (std::size_t n = 0; n < row.keys.size(); ++n) {
          for (std::size_t c = 0; c < D; ++c)
            step(row.k[n * D + c], along.k, b, hk, row.keys[n], std::int64_t(c));
          for (std::size_t x = 0; x < Dv; ++x)
            step(row.v[n * Dv + x], along.v, b, hk, row.keys[n], std::int64_t(x));
          step(row.bias[n], along.bias, b, h, i, row.keys[n]);
        }
        Complex lse;
        const auto o = row.attend(&lse);
        moved.lse.value[r] = lse.imag() / kStep;
        for (std::size_t x = 0; x < Dv; ++x) moved.o.value[r * Dv + x] = o[x].imag() / kStep;
      }
  return moved;
}

template <typename T>
Moved moved(const Problem<T>& problem, const Directions<T>& along) {
  return Pass<T>{.p = problem, .along = along, .moved = {}}.run();
}

template Moved moved(const Problem<float>&, const Directions<float>&);
template Moved moved(const Problem<double>&, const Directions<double>&);

}  // namespace oracle

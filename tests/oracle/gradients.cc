// Gradients by the formula, beside the sums that say how well each is conditioned.
//
// The bound of a gradient (u the unit roundoff, * the exact value; what is not said here is in
// attention.cc). O enters D with its own error u (C B + 2 N(n_k) m) + lost, so with
// R_x = |v_jx| + B_ix + lost / u,
//
//     W_ij = P_ij ((1 + kappa_i + A_ij) |dP_ij - D_i| + sum_x |dO_ix| R_x) + tiny'
//     M_ij = 2 N(n_k) P_ij sum_x |dO_ix| m_ix
//     |dS_ij - *| <= u (2 C W_ij + M_ij)           before the options are undone
//     |dQ_ic - *| <= u |dQ_ic| + u |scale| sum_j ((2 C + N(n_k)) F_ij + G_ij) |k_jc|
//     |dK_jc - *| <= u |dK_jc| + u |scale| sum_i ((4 C + N(n_q)) F_ij + G_ij) |q_ic|
//     |dV_jx - *| <= u |dV_jx| + u (2 C + N(n_q)) sum_i (P_ij (1 + kappa_i + A_ij) + tiny') |dO_ix|
//
//     C = 4 + max(d, d_v) / 64         N(n) = 16 + n / 3072
//
// n_q counts the rows of all heads that share a KV head. G is M times the derivatives of the
// options that are undone, F is W times these, plus |dS| times their errors:
//
//   score_mod  F = |f'| W + |dS| (curvature A + |f'|) + eta / u, A that of the score before the
//              function
//   softcap    the derivative is 1 - (t / cap)^2, of which t / cap is known to a few u and to what
//              the score before it is: F = |sech^2| W + |dS| (2 sech^2 A / cap + 4) + eta / u
//   normalize  g is the gradient of x / |x|, known to e; |x| to 2.5 C u relative:
//              e' = (e_c + |x_c| sum |x| e + 4 C u (|g_c| + 2 |x_c| sum |x g|)) / |x|,
//              x of length 1
//
// Dropout multiplies P in dV and in O, and v in dP, by 0 or 1 / (1 - p): so are P in B, in m and in
// the bound of dV, and |v| in R.
//
// dbias: u (2 C F + G) before softcap is undone. dalibi, dscale: u sum ((2 C + N(n_k)) F + G) |p -
// j| or |q||k|. ds_norms: u |2 C W_i + M_i| + u (N(n_k) + 2) |dS_i|, since norms differ by no more
// than the norm of the difference; and the square root of what squares lose in the subnormal range.
// dsinks: u sum_i (P_sink (2 C ((1 + kappa + |sink|) |D_i| + sum_x |dO_ix| (B_ix + lost / u)) +
// 2 N(n_k) sum_x |dO_ix| m_ix) + 2 C tiny' |D_i|), tiny' for a P_sink below the smallest normal
// number, which may be taken as 0.
#include "gradients.h"

#include <algorithm>
#include <cmath>

#include "rows.h"

namespace oracle {
namespace {

/// Sums of truth and bound over rows.
template <typename T>
struct Sums {
  std::vector<Wide<T>> value;
  std::vector<double> bound;

  explicit Sums(std::int64_t n) : value(static_cast<std::size_t>(n)), bound(value.size()) {}

  void add(std::size_t n, Wide<T> x, double error) {
    value[n] = value[n] + x;
    bound[n] += error;
  }
  /// Sums have at most `terms` additions, each of which may round in the subnormal range.
  Truth truth(std::int64_t terms) const {
    Truth t;
    t.resize(value.size());
    for (std::size_t n = 0; n < value.size(); ++n) {
      t.value[n] = high(value[n]);
      t.low[n] = std::isfinite(t.value[n]) ? low(value[n]) : 0;
      t.bound[n] =
          kUnit<T> * std::fabs(t.value[n]) + bound[n] + static_cast<double>(terms) * kEta<T>;
    }
    return t;
  }
};

template <typename T>
struct Pass {
  using Real = Wide<T>;
  const Problem<T>& p;
  const View<T>& d_output;
  const GradientAsk& ask;
  Sums<T> dq, dk, dv, dscale, dalibi, dbias, dsinks, ds_norms;
  double u = kUnit<T>;
  double C, N_k, N_q;
  double faint = std::is_same_v<T, float> ? 0x1p-102 : 0x1p-970;

  Pass(const Problem<T>& problem, const View<T>& g, const GradientAsk& asked)
      : p(problem),
        d_output(g),
        ask(asked),
        dq(p.batch * p.heads * p.queries * p.size),
        dk(p.batch * p.kv_heads * p.keys * p.size),
        dv(p.batch * p.kv_heads * p.keys * p.value_size),
        dscale(p.heads),
        dalibi(p.heads),
        dbias(asked.dbias ? p.batch * p.heads * p.queries * p.keys : 0),
        dsinks(p.heads),
        ds_norms(p.batch * p.heads * p.queries),
        C(4 + static_cast<double>(std::max(p.size, p.value_size)) / 64),
        N_k(16 + static_cast<double>(p.keys) / 3072),
        N_q(16 + static_cast<double>(rows_of(problem)) / 3072) {}

  /// What a factor of 0 leaves nothing of, even of a bound that is not known.
  static double times(double bound, double factor) { return factor == 0 ? 0 : bound * factor; }

  /// Query rows that share the keys of one KV head.
  static std::int64_t rows_of(const Problem<T>& of) {
    return of.kv_heads == 0 ? 0 : of.queries * (of.heads / of.kv_heads);
  }

  /// The derivative of the options after `uncapped`, and the bounds F and G, from those of the
  /// final score.
  struct Undone {
    Real ds;
    double F, G;
  };

  /// The bound of dS times a factor in a sum that rounds as `chain` says, in units of u.
  static double units(const Undone& d, double chain, double factor) {
    return times(chain * d.F + d.G, factor);
  }

  Undone undo_mod(const Head<T>& head, std::int64_t i, std::int64_t j, const Steps<Real>& s,
                  Undone d) const {
    if (!p.score_mod) return d;
    const Real f = p.score_mod_derivative(s.unmodified, head.b, head.h, i, j);
    const double slope = std::fabs(high(f));
    return {d.ds * f,
            slope * d.F + std::fabs(high(d.ds)) * (p.score_mod_curvature * s.A_unmodified + slope) +
                kEta<T> / u,
            slope * d.G};
  }
  Undone undo_softcap(const Steps<Real>& s, Undone d) const {
    if (!p.softcap) return d;
    using std::tanh;
    const double cap = rounded<T>(*p.softcap);
    const Real t = tanh(s.uncapped / Real(cap));
    const Real slope = (Real(1.0) - t) * (Real(1.0) + t);
    const double sech2 = high(slope);
    return {
        d.ds * slope,
        sech2 * d.F + std::fabs(high(d.ds)) * (2 * sech2 * s.A_uncapped / cap + 4) + kEta<T> / u,
        sech2 * d.G};
  }

  /// e for the gradient of x, from g and its bound for that of x / |x|.
  void undo_norm(const std::vector<double>& x, Real r, std::vector<Real>& g,
                 std::vector<double>& e) const {
    Real along = 0.0;
    double magnitude = 0, error = 0;
    for (std::size_t c = 0; c < x.size(); ++c) {
      along = along + Real(x[c]) * r * g[c];
      magnitude += std::fabs(x[c] * high(r) * high(g[c]));
      error += std::fabs(x[c] * high(r)) * e[c];
    }
    for (std::size_t c = 0; c < x.size(); ++c) {
      const double length_one = std::fabs(x[c] * high(r));
      e[c] = high(r) * (e[c] + length_one * error +
                        4 * C * u * (std::fabs(high(g[c])) + 2 * length_one * magnitude));
      g[c] = r * (g[c] - Real(x[c]) * r * along);
    }
  }

  void row(const Head<T>& head, std::int64_t i, std::vector<std::vector<Real>>& gk,
           std::vector<std::vector<double>>& ek) {
    using std::exp;
    Row<T> row = scores_of(head, i, true);
    const auto D = static_cast<std::size_t>(p.size), Dv = static_cast<std::size_t>(p.value_size);
    const auto r = static_cast<std::size_t>((head.b * p.heads + head.h) * p.queries + i);
    const auto h = static_cast<std::size_t>(head.h);
    const auto hk = static_cast<std::size_t>(head.b * p.kv_heads + head.h / (p.heads / p.kv_heads));
    std::vector<double> q, g;
    for (std::int64_t c = 0; c < p.size; ++c) q.push_back(double{p.q.at(head.b, head.h, i, c)});
    for (std::int64_t x = 0; x < p.value_size; ++x)
      g.push_back(double{d_output.at(head.b, head.h, i, x)});
    const Real rq = p.normalize_qk ? head.reciprocal_norm(q.data()) : Real(1.0);

    Real m = Real(head.sink);
    for (const Real& t : row.t)
      if (m < t) m = t;
    if (high(m) == -kInf) return;  // no score: no gradient
    Real l = exp(Real(head.sink) - m);
    for (const Real& t : row.t) {
      row.e.push_back(exp(t - m));
      l = l + row.e.back();
    }
    const Real sink = exp(Real(head.sink) - m) / l;
    double kappa = high(sink) > 0 ? high(sink) * std::fabs(head.sink) : 0;
    for (std::size_t s = 0; s < row.keys.size(); ++s) {
      row.P.push_back(high(row.e[s] / l));
      if (row.P[s] != 0) kappa += row.P[s] * row.A[s];
    }
    // D of the row, and B with what O loses.
    Real d = 0.0;
    std::vector<double> B(Dv);
    double gB = 0, gm = 0, largest_v = 0, largest_g = 0;  // sum |dO| B, sum |dO| m
    for (std::size_t x = 0; x < Dv; ++x) {
      Real o = 0.0;
      for (std::size_t s = 0; s < row.keys.size(); ++s) {
        const double v = head.v[Head<T>::index(row.keys[s], std::int64_t(x), p.value_size)];
        o = o + row.e[s] * Real(row.kept[s]) * Real(v);
        const double weighed = row.kept[s] * row.P[s] * std::fabs(v);
        B[x] += weighed * (1 + kappa + row.A[s]);
        gm += std::fabs(g[x]) * weighed;
        largest_v = std::max(largest_v, row.kept[s] * std::fabs(v));
      }
      if (B[x] > 0) B[x] += lost_of_output(p, row, l) / u;
      d = d + Real(g[x]) * (o / l);
      gB += std::fabs(g[x]) * B[x];
      largest_g = std::max(largest_g, std::fabs(g[x]));
    }
    const double tiny = faint * static_cast<double>(p.value_size) * largest_v * largest_g;
    dsinks.add(h, -(sink * d),
               2 * C * u *
                       (high(sink) * ((1 + kappa + std::fabs(std::max(head.sink, -1e300))) *
                                          std::fabs(high(d)) +
                                      gB) +
                        faint * std::fabs(high(d))) +
                   2 * N_k * u * times(gm, high(sink)));

    // The scale multiplies u first, lest products below the normal numbers are lost; 0 makes every
    // product 0, whatever its error was.
    const auto scaled = [&](double units) {
      return head.scale == 0 ? 0 : std::fabs(head.scale) * u * units;
    };
    std::vector<Real> gq(D);
    std::vector<double> eq(D);
    Real squares = 0.0;
    double wide = 0;  // sum (2 C W + M)^2
    for (std::size_t s = 0; s < row.keys.size(); ++s) {
      const auto j = static_cast<std::size_t>(row.keys[s]);
      const Real P = row.e[s] / l;
      const Real kept = row.kept[s];
      const double spread = 1 + kappa + row.A[s];
      const double coarse = C * u * (row.A[s] + kappa) > 0.125 ? kInf : 0;
      Real dP = 0.0;
      double products = 0;
      for (std::size_t x = 0; x < Dv; ++x) {
        const double v = head.v[Head<T>::index(row.keys[s], std::int64_t(x), p.value_size)];
        dP = dP + kept * Real(g[x]) * Real(v);
        products += std::fabs(g[x]) * (row.kept[s] * std::fabs(v) + B[x]);
        dv.add((hk * static_cast<std::size_t>(p.keys) + j) * Dv + x, P * kept * Real(g[x]),
               row.kept[s] * u * (2 * C + N_q) * (high(P) * spread + faint) * std::fabs(g[x]) +
                   times(coarse, row.kept[s] * std::fabs(g[x])));
      }
      const double W =
          times(spread * std::fabs(high(dP - d)) + products, high(P)) + tiny + kEta<T> / u + coarse;
      squares = squares + (P * (dP - d)) * (P * (dP - d));
      const double M = 2 * N_k * times(gm, high(P));
      wide += (2 * C * W + M) * (2 * C * W + M);
      Undone at = undo_mod(head, i, row.keys[s], row.steps[s], {P * (dP - d), W, M});
      if (ask.dbias)
        dbias.add(r * static_cast<std::size_t>(p.keys) + j, at.ds, u * units(at, 2 * C, 1));
      const std::int64_t where = position(p, head.b, i);
      const double distance = std::fabs(static_cast<double>(where) - static_cast<double>(j));
      dalibi.add(h, -(at.ds * Real(distance)), u * units(at, 2 * C + N_k, distance));
      at = undo_softcap(row.steps[s], at);
      const Real rk = p.normalize_qk ? head.rk[j] : Real(1.0);
      double magnitude = 0, lost = 0;
      for (std::size_t c = 0; c < D; ++c) {
        const double k = head.k[j * D + c];
        gq[c] = gq[c] + Real(head.scale) * at.ds * Real(k) * rk;
        eq[c] += scaled(units(at, 2 * C + N_k, std::fabs(k) * high(rk))) +
                 std::fabs(head.scale) * kEta<T>;
        gk[j][c] = gk[j][c] + Real(head.scale) * at.ds * Real(q[c]) * rq;
        ek[j][c] += scaled(units(at, 4 * C + N_q, std::fabs(q[c]) * high(rq))) +
                    kEta<T> * std::fabs(high(at.ds));
        lost += kEta<T> * std::fabs(q[c]) * high(rq);
        magnitude += std::fabs(q[c] * k) * high(rq) * high(rk);
      }
      dscale.add(h, at.ds * row.steps[s].product, u * units(at, 2 * C + N_k, magnitude) + lost);
    }
    const double norm = std::sqrt(high(squares));
    const double lost = std::sqrt(static_cast<double>(2 + p.keys) * kEta<T>);
    ds_norms.add(r, Real(norm), u * std::sqrt(wide) + u * (N_k + 2) * norm + lost);
    if (p.normalize_qk) undo_norm(q, rq, gq, eq);
    for (std::size_t c = 0; c < D; ++c) dq.add(r * D + c, gq[c], eq[c]);
  }

  Gradients run() {
    const auto D = static_cast<std::size_t>(p.size);
    const auto keys = static_cast<std::size_t>(p.keys);
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t hk = 0; hk < p.kv_heads && p.heads > 0; ++hk) {
        std::vector<std::vector<Real>> gk(keys, std::vector<Real>(D));
        std::vector<std::vector<double>> ek(keys, std::vector<double>(D));
        const std::int64_t group = p.heads / p.kv_heads;
        for (std::int64_t h = hk * group; h < hk * group + group; ++h) {
          const Head<T> head(p, b, h);
          for (std::int64_t i = 0; i < p.queries; ++i) row(head, i, gk, ek);
          if (h != hk * group + group - 1) continue;
          for (std::size_t j = 0; j < keys; ++j) {
            const auto at = (static_cast<std::size_t>(b * p.kv_heads + hk) * keys + j) * D;
            if (p.normalize_qk)
              undo_norm(
                  {head.k.begin() + std::int64_t(j * D), head.k.begin() + std::int64_t(j * D + D)},
                  head.rk[j], gk[j], ek[j]);
            for (std::size_t c = 0; c < D; ++c) dk.add(at + c, gk[j][c], ek[j][c]);
          }
        }
      }
    const std::int64_t terms = 2 + std::max(p.keys, rows_of(p));
    return {dq.truth(terms),     dk.truth(terms),    dv.truth(terms),     dscale.truth(terms),
            dalibi.truth(terms), dbias.truth(terms), dsinks.truth(terms), ds_norms.truth(terms)};
  }
};

}  // namespace

template <typename T>
Gradients gradients(const Problem<T>& problem, const View<T>& d_output, const GradientAsk& ask) {
  return Pass<T>(problem, d_output, ask).run();
}

template Gradients gradients(const Problem<float>&, const View<float>&, const GradientAsk&);
template Gradients gradients(const Problem<double>&, const View<double>&, const GradientAsk&);

}  // namespace oracle

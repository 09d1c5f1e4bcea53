// Gradients by complex steps: attention in complex numbers, as the textbook has it.
#include <cmath>
#include <complex>
#include <limits>

#include "gradients.h"

namespace oracle {
namespace {

using Complex = std::complex<double>;
constexpr double kStep = 1e-30;

/// One row's loss dO . O as a function of all numbers that it depends on.
class RowLoss {
 public:
  RowLoss(const Problem<double>& p, std::int64_t b, std::int64_t h, std::int64_t i,
          const View<double>& d_output)
      : p_(p), b_(b), h_(h), i_(i) {
    const std::int64_t hk = h / (p.heads / p.kv_heads);
    for (std::int64_t c = 0; c < p.size; ++c) q.emplace_back(p.q.at(b, h, i, c));
    for (std::int64_t x = 0; x < p.value_size; ++x) g_.push_back(d_output.at(b, h, i, x));
    for (std::int64_t j = 0; j < p.keys; ++j) {
      if (!allowed(p, b, h, i, j)) continue;
      const double bias_j = p.bias.data == nullptr ? 0 : p.bias.at(b, h, i, j);
      if (std::isinf(bias_j)) continue;
      keys.push_back(j);
      for (std::int64_t c = 0; c < p.size; ++c) k.emplace_back(p.k.at(b, hk, j, c));
      for (std::int64_t x = 0; x < p.value_size; ++x) v.emplace_back(p.v.at(b, hk, j, x));
      bias.emplace_back(bias_j);
    }
    const double usual = p.normalize_qk ? 1.0 : 1.0 / std::sqrt(static_cast<double>(p.size));
    scale = p.scale.empty() ? usual : p.scale[p.scale.size() == 1 ? 0 : std::size_t(h)];
    if (!p.alibi.empty()) slope = p.alibi[std::size_t(h)];
    if (!p.sinks.empty()) sink = p.sinks[std::size_t(h)];
  }

  /// The derivative with respect to one of the numbers below.
  double derivative(Complex& number) {
    const Complex before = number;
    number += Complex(0, kStep);
    const double result = loss().imag() / kStep;
    number = before;
    return result;
  }

  std::vector<std::int64_t> keys;  // those that the row may see
  std::vector<Complex> q, k, v, bias;
  Complex scale, slope = 0, sink = -std::numeric_limits<double>::infinity();

 private:
  Complex score(std::size_t n) const {
    const auto size = q.size();
    Complex t = 0, qq = 0, kk = 0;
    for (std::size_t c = 0; c < size; ++c) {
      t += q[c] * k[n * size + c];
      qq += q[c] * q[c];
      kk += k[n * size + c] * k[n * size + c];
    }
    if (p_.normalize_qk) t = qq == 0.0 || kk == 0.0 ? 0.0 : t / std::sqrt(qq) / std::sqrt(kk);
    t *= scale;
    if (p_.softcap) t = *p_.softcap * std::tanh(t / *p_.softcap);
    const std::int64_t start =
        p_.query_start.empty() ? 0
                               : p_.query_start[p_.query_start.size() == 1 ? 0 : std::size_t(b_)];
    t -= slope * std::fabs(static_cast<double>(start + i_ - keys[n]));
    t += bias[n];
    return p_.complex_score_mod ? p_.complex_score_mod(t, b_, h_, i_, keys[n]) : t;
  }

  Complex loss() const {
    double m = p_.sinks.empty() ? -std::numeric_limits<double>::infinity() : sink.real();
    std::vector<Complex> t;
    for (std::size_t n = 0; n < keys.size(); ++n) {
      t.push_back(score(n));
      m = std::fmax(m, t.back().real());
    }
    if (std::isinf(m)) return 0;
    Complex l = p_.sinks.empty() ? 0.0 : std::exp(sink - m);
    Complex sum = 0;
    for (std::size_t n = 0; n < keys.size(); ++n) {
      if (std::isinf(t[n].real())) continue;
      const Complex e = std::exp(t[n] - m);
      l += e;
      const double kept = p_.dropout.factor(b_ * p_.heads + h_, i_, keys[n]);
      for (std::size_t x = 0; x < g_.size(); ++x) sum += kept * e * v[n * g_.size() + x] * g_[x];
    }
    return sum / l;
  }

  const Problem<double>& p_;
  std::int64_t b_, h_, i_;
  std::vector<double> g_;
};

}  // namespace

Gradients gradients_by_complex_steps(const Problem<double>& p, const View<double>& d_output,
                                     const GradientAsk& ask) {
  Gradients g;
  const auto count = [](std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
    return static_cast<std::size_t>(a * b * c * d);
  };
  g.dq.value.resize(count(p.batch, p.heads, p.queries, p.size));
  g.dk.value.resize(count(p.batch, p.kv_heads, p.keys, p.size));
  g.dv.value.resize(count(p.batch, p.kv_heads, p.keys, p.value_size));
  if (ask.dbias) g.dbias.value.resize(count(p.batch, p.heads, p.queries, p.keys));
  for (Truth* t : {&g.dscale, &g.dalibi, &g.dsinks})
    t->value.resize(static_cast<std::size_t>(p.heads));
  const auto D = static_cast<std::size_t>(p.size), Dv = static_cast<std::size_t>(p.value_size);
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.heads; ++h)
      for (std::int64_t i = 0; i < p.queries; ++i) {
        RowLoss row(p, b, h, i, d_output);
        const auto head = static_cast<std::size_t>(h);
        const auto r = static_cast<std::size_t>((b * p.heads + h) * p.queries + i);
        const std::int64_t hk = b * p.kv_heads + h / (p.heads / p.kv_heads);
        for (std::size_t c = 0; c < D; ++c) g.dq.value[r * D + c] = row.derivative(row.q[c]);
        for (std::size_t n = 0; n < row.keys.size(); ++n) {
          const auto at = static_cast<std::size_t>(hk * p.keys + row.keys[n]);
          for (std::size_t c = 0; c < D; ++c)
            g.dk.value[at * D + c] += row.derivative(row.k[n * D + c]);
          for (std::size_t x = 0; x < Dv; ++x)
            g.dv.value[at * Dv + x] += row.derivative(row.v[n * Dv + x]);
          if (ask.dbias)
            g.dbias.value[r * static_cast<std::size_t>(p.keys) +
                          static_cast<std::size_t>(row.keys[n])] = row.derivative(row.bias[n]);
        }
        g.dscale.value[head] += row.derivative(row.scale);
        if (!p.alibi.empty()) g.dalibi.value[head] += row.derivative(row.slope);
        if (!p.sinks.empty()) g.dsinks.value[head] += row.derivative(row.sink);
      }
  return g;
}

}  // namespace oracle

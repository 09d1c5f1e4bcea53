// One row of attention in complex numbers, as the textbook has it: what complex steps go through.
#pragma once

#include <cmath>
#include <complex>
#include <limits>
#include <vector>

#include "attention.h"

namespace oracle {

using Complex = std::complex<double>;
inline constexpr double kStep = 1e-30;

/// One row of attention as a function of all numbers that it depends on.
class ComplexRow {
 public:
  ComplexRow(const Problem<double>& p, std::int64_t b, std::int64_t h, std::int64_t i)
      : p_(p), b_(b), h_(h), i_(i) {
    const std::int64_t hk = h / (p.heads / p.kv_heads);
    for (std::int64_t c = 0; c < p.size; ++c) q.emplace_back(p.q.at(b, h, i, c));
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

  std::vector<std::int64_t> keys;  // those that the row may see
  std::vector<Complex> q, k, v, bias;
  Complex scale, slope = 0, sink = -std::numeric_limits<double>::infinity();

  /// O of the row, and its lse; zeros and -inf where it sees no key.
  std::vector<Complex> attend(Complex* lse) const {
    std::vector<Complex> o(std::size_t(p_.value_size));
    double m = p_.sinks.empty() ? -std::numeric_limits<double>::infinity() : sink.real();
    std::vector<Complex> t;
    for (std::size_t n = 0; n < keys.size(); ++n) {
      t.push_back(score(n));
      m = std::fmax(m, t.back().real());
    }
    *lse = m;
    if (std::isinf(m)) return o;
    Complex l = p_.sinks.empty() ? 0.0 : std::exp(sink - m);
    for (std::size_t n = 0; n < keys.size(); ++n) {
      if (std::isinf(t[n].real())) continue;
      const Complex e = std::exp(t[n] - m);
      l += e;
      const double kept = p_.dropout.factor(p_.dropout.head_of(b_, h_, p_.heads), i_, keys[n]);
      for (std::size_t x = 0; x < o.size(); ++x) o[x] += kept * e * v[n * o.size() + x];
    }
    for (Complex& x : o) x /= l;
    *lse = m + std::log(l);
    return o;
  }

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

  const Problem<double>& p_;
  std::int64_t b_, h_, i_;
};

}  // namespace oracle

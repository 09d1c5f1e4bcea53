// Gradients by complex steps: attention in complex numbers, as the textbook has it.
#include "complex_row.h"
#include "gradients.h"

namespace oracle {
namespace {

/// One row's loss dO . O.
class RowLoss : public ComplexRow {
 public:
  RowLoss(const Problem<double>& p, std::int64_t b, std::int64_t h, std::int64_t i,
          const View<double>& d_output)
      : ComplexRow(p, b, h, i) {
    for (std::int64_t x = 0; x < p.value_size; ++x) g_.push_back(d_output.at(b, h, i, x));
  }

  /// The derivative with respect to one of the row's numbers.
  double derivative(Complex& number) {
    const Complex before = number;
    number += Complex(0, kStep);
    Complex lse, loss;
    const auto o = attend(&lse);
    for (std::size_t x = 0; x < g_.size(); ++x) loss += g_[x] * o[x];
    number = before;
    return loss.imag() / kStep;
  }

 private:
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

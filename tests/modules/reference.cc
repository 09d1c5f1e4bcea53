// Multi-head attention as its formula stands.
#include "reference.h"

namespace heed_test {
namespace {

class ByFormula {
 public:
  explicit ByFormula(const Formula& f)
      : f_(f),
        x_(matrix("x", f.batches * f.queries, f.d_model)),
        context_(has("context") ? matrix("context", f.batches * f.keys, f.d_keys) : x_),
        values_(has("values") ? matrix("values", f.batches * f.keys, f.d_values) : context_) {}

  std::map<std::string, Known> run() {
    q_ = linear(x_, "q", f_.heads * f_.head_size);
    k_ = linear(context_, "k", f_.kv_heads * f_.head_size);
    v_ = linear(values_, "v", f_.kv_heads * f_.value_size);
    attended_ = Known(x_.rows, f_.heads * f_.value_size);
    each_head([this](std::int64_t b, std::int64_t h) { attend(b, h); });
    result_["output"] = linear(attended_, "o", f_.d_model);
    if (has("d_output")) go_back();
    return result_;
  }

 private:
  bool has(const std::string& name) const { return f_.numbers.count(name) > 0; }
  Known matrix(const std::string& name, std::int64_t rows, std::int64_t columns) const {
    return {rows, columns, f_.numbers.at(name)};
  }
  template <typename F>
  void each_head(F f) {
    for (std::int64_t b = 0; b < f_.batches; ++b) {
      for (std::int64_t h = 0; h < f_.heads; ++h) f(b, h);
    }
  }
  [[nodiscard]] std::int64_t kv_head(std::int64_t h) const { return h / (f_.heads / f_.kv_heads); }

  Known linear(const Known& x, const std::string& letter, std::int64_t outputs) const {
    Known y = product(x, matrix("W_" + letter, outputs, x.columns), roundings(x.columns));
    if (!has("b_" + letter)) return y;
    const std::vector<double>& bias = f_.numbers.at("b_" + letter);
    for (std::int64_t r = 0; r < y.rows; ++r) {
      for (std::int64_t c = 0; c < outputs; ++c) {
        double& value = y.value[y.at(r, c)];
        value += bias[static_cast<std::size_t>(c)];
        y.error[y.at(r, c)] += kUnit * (std::fabs(value) + y.error[y.at(r, c)]);
      }
    }
    return y;
  }

  [[nodiscard]] double temperature(std::int64_t h) const {
    if (!has("temperature")) return 1;
    const std::vector<double>& t = f_.numbers.at("temperature");
    return t[static_cast<std::size_t>(t.size() == 1 ? 0 : h)];
  }

  /// Weights of one head: their values, how far each may be off, and -inf's places as zeros.
  struct Head {
    Known q, k, v, p, dots;
    double scale;
  };

  Head head(std::int64_t b, std::int64_t h) const {
    Head a;
    a.q = block(q_, b * f_.queries, h * f_.head_size, f_.queries, f_.head_size);
    a.k = block(k_, b * f_.keys, kv_head(h) * f_.head_size, f_.keys, f_.head_size);
    a.v = block(v_, b * f_.keys, kv_head(h) * f_.value_size, f_.keys, f_.value_size);
    a.scale = f_.scale / temperature(h);
    a.dots = product(a.q, a.k, roundings(f_.head_size));
    a.p = Known(f_.queries, f_.keys);
    for (std::int64_t i = 0; i < f_.queries; ++i) softmax(a, b, h, i);
    return a;
  }

  void softmax(Head& a, std::int64_t b, std::int64_t h, std::int64_t i) const {
    const std::int64_t end = f_.causal ? std::min(i + 1, f_.keys) : f_.keys;
    std::vector<double> s(static_cast<std::size_t>(end)), off(s.size());
    double highest = -INFINITY;
    for (std::int64_t j = 0; j < end; ++j) {
      const auto n = static_cast<std::size_t>(j);
      s[n] = a.scale * a.dots.value[a.dots.at(i, j)];
      off[n] = std::fabs(a.scale) * a.dots.error[a.dots.at(i, j)] + 4 * kUnit * std::fabs(s[n]);
      if (has("bias")) {
        const double bias = f_.numbers.at(
            "bias")[static_cast<std::size_t>(((b * f_.heads + h) * f_.queries + i) * f_.keys + j)];
        s[n] += bias;
        off[n] += 2 * kUnit * (std::fabs(bias) + std::fabs(s[n]));
      }
      highest = std::max(highest, s[n]);
    }
    double sum = 0, mean_off = 0;
    for (const double t : s) sum += std::exp(t - highest);
    const double lse = highest + std::log(sum);
    // The backward pass gets e^(s - lse) from the lse as it was rounded.
    const double common = kUnit * (roundings(f_.keys) + 4 * std::fabs(lse));
    for (std::size_t n = 0; n < s.size(); ++n) {
      off[n] += kUnit * (4 + 2 * std::fabs(s[n] - highest));
      mean_off += std::exp(s[n] - lse) * off[n];
    }
    for (std::size_t n = 0; n < s.size(); ++n) {
      const std::size_t at = a.p.at(i, static_cast<std::int64_t>(n));
      a.p.value[at] = std::exp(s[n] - lse);
      a.p.error[at] = a.p.value[at] * std::expm1(off[n] + mean_off + common) + 0x1p-120;
    }
  }

  void attend(std::int64_t b, std::int64_t h) {
    const Head a = head(b, h);
    add_block(attended_, b * f_.queries, h * f_.value_size,
              product(a.p, transposed(a.v), roundings(f_.keys)));
  }

  void go_back() {
    const Known dy = matrix("d_output", x_.rows, f_.d_model);
    d_attended_ = back(dy, attended_, "o");
    dq_ = Known(q_.rows, q_.columns);
    dk_ = Known(k_.rows, k_.columns);
    dv_ = Known(v_.rows, v_.columns);
    if (has("bias")) result_["bias"] = Known(f_.batches * f_.heads * f_.queries, f_.keys);
    if (has("temperature")) {
      result_["temperature"] =
          Known(1, static_cast<std::int64_t>(f_.numbers.at("temperature").size()));
    }
    each_head([this](std::int64_t b, std::int64_t h) { head_back(b, h); });
    const std::string of_k = has("context") ? "context" : "x";
    const std::string of_v = has("values") ? "values" : of_k;
    add("x", back(dq_, x_, "q"));
    add(of_k, back(dk_, context_, "k"));
    add(of_v, back(dv_, values_, "v"));
  }

  void add(const std::string& name, const Known& part) {
    if (result_.count(name) == 0) result_[name] = Known(part.rows, part.columns);
    add_block(result_[name], 0, 0, part);
  }

  /// Parameters' gradients from those of y = x W' + b; returns dx.
  Known back(const Known& dy, const Known& x, const std::string& letter) {
    result_["W_" + letter] = product(transposed(dy), transposed(x), roundings(dy.rows));
    if (has("b_" + letter)) result_["b_" + letter] = column_sums(dy);
    const Known weight = matrix("W_" + letter, dy.columns, x.columns);
    return product(dy, transposed(weight), roundings(dy.columns));
  }

  void head_back(std::int64_t b, std::int64_t h) {
    const Head a = head(b, h);
    const std::int64_t row = b * f_.queries;
    const std::int64_t group_rows = f_.heads / f_.kv_heads * f_.queries;
    const Known d_out = block(d_attended_, row, h * f_.value_size, f_.queries, f_.value_size);
    const Known out = block(attended_, row, h * f_.value_size, f_.queries, f_.value_size);
    const Known dp = product(d_out, a.v, roundings(f_.value_size));
    Known ds(f_.queries, f_.keys);
    for (std::int64_t i = 0; i < f_.queries; ++i) {
      const Known d = product(block(d_out, i, 0, 1, f_.value_size),
                              block(out, i, 0, 1, f_.value_size), roundings(f_.value_size));
      for (std::int64_t j = 0; j < f_.keys; ++j) {
        const std::size_t at = ds.at(i, j);
        const double apart = dp.value[at] - d.value[0];
        const double off = dp.error[at] + d.error[0] + 2 * kUnit * std::fabs(apart);
        ds.value[at] = a.p.value[at] * apart;
        ds.error[at] = a.p.error[at] * (std::fabs(apart) + off) + a.p.value[at] * off;
      }
    }
    const double over_keys = roundings(f_.keys), over_rows = roundings(group_rows);
    add_block(dq_, row, h * f_.head_size, product(ds, transposed(a.k), over_keys, a.scale));
    add_block(dk_, b * f_.keys, kv_head(h) * f_.head_size,
              product(transposed(ds), transposed(a.q), over_rows, a.scale));
    add_block(dv_, b * f_.keys, kv_head(h) * f_.value_size,
              product(transposed(a.p), transposed(d_out), over_rows));
    if (has("bias")) add_block(result_["bias"], (b * f_.heads + h) * f_.queries, 0, ds);
    if (has("temperature")) temperature_back(a, ds, h);
  }

  /// scale = base / t: dt = -sum dS (q . k) scale / t
  void temperature_back(const Head& a, const Known& ds, std::int64_t h) {
    Known flat_ds(1, f_.queries * f_.keys), flat_dots = flat_ds;
    flat_ds.value = ds.value;
    flat_ds.error = ds.error;
    flat_dots.value = a.dots.value;
    flat_dots.error = a.dots.error;
    // heed sums q . (sum of dS k), which rounds against |q||k|, not against |q . k|.
    for (std::int64_t i = 0; i < f_.queries; ++i) {
      for (std::int64_t j = 0; j < f_.keys; ++j) {
        double size = 0;
        for (std::int64_t c = 0; c < f_.head_size; ++c) {
          size += std::fabs(a.q.value[a.q.at(i, c)] * a.k.value[a.k.at(j, c)]);
        }
        flat_dots.error[ds.at(i, j)] += kUnit * roundings(f_.keys + f_.head_size) * size;
      }
    }
    const Known sum = product(flat_ds, flat_dots, roundings(f_.queries), -a.scale / temperature(h));
    Known& all = result_["temperature"];
    add_block(all, 0, all.columns == 1 ? 0 : h, sum);
  }

  const Formula& f_;
  Known x_, context_, values_, q_, k_, v_, attended_, d_attended_, dq_, dk_, dv_;
  std::map<std::string, Known> result_;
};

}  // namespace

std::map<std::string, Known> by_formula(const Formula& formula) { return ByFormula(formula).run(); }

}  // namespace heed_test

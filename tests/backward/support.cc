// Running the backward pass, and the comparison with the oracle.
#include "backward/support.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace heed_test {
namespace {

template <typename T>
std::string place_of(const Tensor<T>& t, std::size_t n) {
  std::string text;
  for (std::size_t a = 4; a-- > 0;) {
    const auto size = static_cast<std::size_t>(t.shape[a]);
    text = std::to_string(n % size) + (text.empty() ? "" : ", ") + text;
    n /= size;
  }
  return "[" + text + "]";
}

/// fits(got, truth, low, bound) for every element.
template <typename T, typename Fits>
testing::AssertionResult compare(const Tensor<T>& got, const oracle::Truth& truth, const char* name,
                                 const Fits& fits) {
  if (!got.present()) return testing::AssertionSuccess();
  auto result = testing::AssertionSuccess();
  std::size_t n = 0;
  got.each([&](auto b, auto h, auto i, auto x) {
    const auto value = static_cast<double>(got.at(b, h, i, x));
    if (result && !fits(n, value)) {
      result = testing::AssertionFailure();
      result << std::scientific << name << place_of(got, n) << " = " << value << ", oracle "
             << truth.value[n] << ", error " << value - truth.value[n] << ", bound "
             << (truth.bound.empty() ? 0 : truth.bound[n]);
    }
    ++n;
  });
  return result;
}

}  // namespace

template <typename T>
Tensor<T> draw_d_output(const Call<T>& call, std::uint64_t seed, Layout layout) {
  const Dims d = call.dims();
  Tensor<T> g({d.batch, d.heads, d.queries, d.value_size}, layout);
  Random random(seed);
  fill_normal(g, random);
  return g;
}

heed::TensorView without_leading_axes(heed::TensorView view, int rank) {
  while (view.rank > rank) {
    --view.rank;
    for (std::size_t a = 0; a < 3; ++a) {
      view.shape[a] = view.shape[a + 1];
      view.stride[a] = view.stride[a + 1];
    }
  }
  return view;
}

template <typename T>
Gradients<T> run_backward(const Call<T>& s, const Tensor<T>& d_output, const Wish& wish,
                          const heed::Execution& execution) {
  return run_backward(s, run(s, {}, execution), d_output, wish, execution);
}

template <typename T>
Gradients<T> run_backward(const Call<T>& s, const Result<T>& forward, const Tensor<T>& d_output,
                          const Wish& wish, const heed::Execution& execution) {
  const Dims d = s.dims();
  const Told<T> told(s);
  Gradients<T> r;
  heed::Gradients to;
  if (wish.dq) r.dq = Tensor<T>(s.q.shape, wish.layout), to.dq = r.dq.out(s.rank);
  if (wish.dk) r.dk = Tensor<T>(s.k.shape, wish.layout), to.dk = r.dk.out(s.rank);
  if (wish.dv) r.dv = Tensor<T>(s.v.shape, wish.layout), to.dv = r.dv.out(s.rank);
  const auto numbers = [&](Tensor<T>& t, std::int64_t count) {
    t = Tensor<T>({1, 1, 1, count});
    return heed::view(t.memory.data(), {count});
  };
  if (wish.dscale) to.dscale = numbers(r.dscale, wish.one_scale ? 1 : d.heads);
  if (wish.dalibi && !s.alibi.empty()) to.dalibi = numbers(r.dalibi, d.heads);
  if (wish.dsinks && !s.sinks.empty()) to.dsinks = numbers(r.dsinks, d.heads);
  if (wish.ds_norms) {
    r.ds_norms = Tensor<T>({d.batch, d.heads, d.queries, 1}, wish.layout);
    to.ds_norms = r.ds_norms.out(s.rank);
    --to.ds_norms.rank;
  }
  if (wish.dbias && s.bias.present()) {
    r.dbias = Tensor<T>(s.bias.shape, wish.layout);
    to.dbias = without_leading_axes(r.dbias.out(s.rank), told.options.bias.rank);
  }
  heed::ConstTensorView lse = forward.lse.view(s.rank);
  --lse.rank;
  heed::attention_backward({.q = s.q.view(s.rank),
                            .k = s.k.view(s.rank),
                            .v = s.v.view(s.rank),
                            .output = forward.o.view(s.rank),
                            .lse = lse,
                            .d_output = d_output.view(s.rank)},
                           to, told.options, execution);
  each_gradient(r, [](const Tensor<T>& t, const char* name) { expect_written_exactly(t, name); });
  return r;
}

template <typename T>
testing::AssertionResult same_bits(const Gradients<T>& a, const Gradients<T>& b) {
  const Tensor<T>* others[] = {&b.dq,     &b.dk,     &b.dv,     &b.dbias,
                               &b.dscale, &b.dalibi, &b.dsinks, &b.ds_norms};
  std::size_t n = 0;
  auto result = testing::AssertionSuccess();
  each_gradient(a, [&](const Tensor<T>& t, const char* name) {
    const Tensor<T>& other = *others[n++];
    if (!result || !t.present() || !other.present()) return;
    if (const auto same = same_bits(t, other); !same)
      result = testing::AssertionFailure() << name << same.message();
  });
  return result;
}

template <typename T>
oracle::Truth summed_dbias(const Call<T>& s, const oracle::Truth& full) {
  oracle::Truth sum;
  if (!s.bias.present()) return sum;
  const Dims d = s.dims();
  sum.resize(static_cast<std::size_t>(s.bias.count()));
  std::size_t n = 0;
  for (std::int64_t b = 0; b < d.batch; ++b)
    for (std::int64_t h = 0; h < d.heads; ++h)
      for (std::int64_t i = 0; i < d.queries; ++i)
        for (std::int64_t j = 0; j < d.keys; ++j, ++n) {
          const Shape at{b, h, i, j};
          std::int64_t to = 0;
          for (std::size_t a = 0; a < 4; ++a)
            to = to * s.bias.shape[a] + (s.bias.shape[a] == 1 ? 0 : at[a]);
          const auto m = static_cast<std::size_t>(to);
          sum.value[m] += full.value[n];
          if (!full.bound.empty()) sum.bound[m] += full.bound[n];
        }
  return sum;
}

template <typename T>
std::map<std::string, double>& worst_shares() {
  static std::map<std::string, double> shares;
  return shares;
}

template <typename T>
testing::AssertionResult within_bounds(const Call<T>& s, const Gradients<T>& got,
                                       const oracle::Gradients& truth, Unbounded unbounded) {
  const oracle::Truth dbias = summed_dbias(s, truth.dbias);
  oracle::Truth dscale = truth.dscale;
  if (got.dscale.present() && got.dscale.count() < s.dims().heads) {
    for (std::size_t h = 1; h < dscale.value.size(); ++h) {
      dscale.value[0] += dscale.value[h];
      dscale.bound[0] += dscale.bound[h];
    }
  }
  const oracle::Truth* truths[] = {&truth.dq, &truth.dk,     &truth.dv,     &dbias,
                                   &dscale,   &truth.dalibi, &truth.dsinks, &truth.ds_norms};
  const double root = std::sqrt(double{std::numeric_limits<T>::max()});
  const bool huge_scale =
      std::ranges::any_of(s.scale, [&](double scale) { return std::fabs(scale) > root; });
  std::size_t n = 0;
  auto result = testing::AssertionSuccess();
  each_gradient(got, [&](const Tensor<T>& t, const char* name) {
    const oracle::Truth& want = *truths[n++];
    if (!result) return;
    // 0 is +0, but where all numbers are so small that a rounding error is -0 in the end; where
    // problems may be anything, also but where it is not known to be 0.
    const auto faint = [](double bound) { return bound < double{std::numeric_limits<T>::min()}; };
    const bool underflows = std::ranges::all_of(want.bound, faint);
    result = compare(t, want, name, [&](std::size_t m, double value) {
      const bool rounded = underflows || (unbounded != Unbounded::fails && !faint(want.bound[m]));
      if (!rounded && want.value[m] == 0 && value == 0 && std::signbit(value)) return false;
      const bool squares = std::strcmp(name, "ds_norms") == 0;
      const bool known = std::isfinite(want.bound[m]);
      if (!known && unbounded == Unbounded::fails) return false;
      // A norm that may be beyond the range of its squares, where differences of large numbers
      // cancel too.
      if (squares && std::isinf(value)) return want.value[m] + want.bound[m] > root;
      // What is not known, times a scale beyond the root of the range.
      const bool scaled = &want == &truth.dq || &want == &truth.dk;
      if (!known) return std::isfinite(value) || (scaled && huge_scale && std::isinf(value));
      const double error = std::fabs((value - want.value[m]) - want.low[m]);
      double& worst = worst_shares<T>()[name];
      worst = std::max(worst, error / want.bound[m]);
      return error <= want.bound[m];
    });
  });
  return result;
}

namespace {

/// Of rows of the full dbias, which is the final scores' gradient where no score_mod follows; else
/// none.
template <typename T>
oracle::Truth norms_of_dbias(const Call<T>& s, const oracle::Truth& full) {
  oracle::Truth norms;
  if (!s.bias.present() || s.mod != Mod::none) return norms;
  const Dims d = s.dims();
  norms.resize(static_cast<std::size_t>(d.batch * d.heads * d.queries));
  const auto keys = static_cast<std::size_t>(d.keys);
  for (std::size_t n = 0; n < full.value.size(); ++n)
    norms.value[n / keys] += full.value[n] * full.value[n];
  for (double& norm : norms.value) norm = std::sqrt(norm);
  return norms;
}

double largest_scale(const Call<double>& s) {
  if (s.scale.empty()) return s.normalize_qk ? 1 : 1 / std::sqrt(double(s.q.shape[3]));
  double largest = 0;
  for (const double scale : s.scale) largest = std::max(largest, std::fabs(scale));
  return largest;
}

/// The largest 1 / |x| of an x that is not 0.
double inverse_of_smallest(const Tensor<double>& t) {
  double inverse = 0;
  t.each([&](auto... at) {
    const double x = std::fabs(t.at(at...));
    if (x > 0) inverse = std::max(inverse, 1 / x);
  });
  return inverse;
}

}  // namespace

testing::AssertionResult near_steps(const Call<double>& s, const Gradients<double>& got,
                                    const oracle::Gradients& truth, double tolerance) {
  const oracle::Truth dbias = summed_dbias(s, truth.dbias);
  const oracle::Truth norms = norms_of_dbias(s, truth.dbias);
  const oracle::Truth* truths[] = {&truth.dq,     &truth.dk,     &truth.dv,     &dbias,
                                   &truth.dscale, &truth.dalibi, &truth.dsinks, &norms};
  std::size_t n = 0;
  auto result = testing::AssertionSuccess();
  each_gradient(got, [&](const Tensor<double>& t, const char* name) {
    const oracle::Truth& want = *truths[n++];
    if (&want == &norms && want.value.empty()) return;
    // Entries of dS = P (dP - D) may cancel, and a row of them adds up to 0: what cancels is about
    // as large as dP, a product of normal numbers, and in dq and dk that times a scale below 1.
    double largest = &want == &truth.dv || &want == &truth.dsinks ? 0 : 1;
    if (&want == &truth.dq || &want == &truth.dk) largest = std::min(1.0, largest_scale(s));
    for (const double x : want.value) largest = std::max(largest, std::fabs(x));
    // The gradient of a normalized row x is (g - x^ (x^ . g)) / |x|, x^ of length 1: of one column
    // it is 0, which tells no size. x^ is +-1 within 3.5 u (square, root, quotient, product), and
    // two products round: heed leaves up to 9 u |g| / |x|, complex steps about as much of
    // sum |dS|: together within 1e-13 / |x| up to 50 of it.
    if (s.normalize_qk && s.q.shape[3] == 1 && (&want == &truth.dq || &want == &truth.dk))
      largest = std::max(largest, inverse_of_smallest(&want == &truth.dq ? s.q : s.k));
    if (!result) return;
    result = compare(t, want, name, [&](std::size_t m, double value) {
      return std::fabs(value - want.value[m]) <= tolerance * largest;
    });
  });
  return result;
}

template <typename T>
oracle::Gradients true_gradients(const Call<T>& s, const Tensor<T>& d_output) {
  return oracle::gradients<T>(problem_of(s), d_output.plain(), {.dbias = s.bias.present()});
}

#define HEED_INSTANTIATE(T)                                                              \
  template Tensor<T> draw_d_output(const Call<T>&, std::uint64_t, Layout);               \
  template Gradients<T> run_backward(const Call<T>&, const Tensor<T>&, const Wish&,      \
                                     const heed::Execution&);                            \
  template Gradients<T> run_backward(const Call<T>&, const Result<T>&, const Tensor<T>&, \
                                     const Wish&, const heed::Execution&);               \
  template testing::AssertionResult same_bits(const Gradients<T>&, const Gradients<T>&); \
  template testing::AssertionResult within_bounds(const Call<T>&, const Gradients<T>&,   \
                                                  const oracle::Gradients&, Unbounded);  \
  template std::map<std::string, double>& worst_shares<T>();                             \
  template oracle::Truth summed_dbias(const Call<T>&, const oracle::Truth&);             \
  template oracle::Gradients true_gradients(const Call<T>&, const Tensor<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed_test

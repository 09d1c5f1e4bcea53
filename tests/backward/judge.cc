// Judging gradients in each type, and the lists of cases.
#include "backward/judge.h"

#include <cmath>
#include <map>
#include <optional>
#include <span>

#include "forward/end_to_end.h"

namespace heed_test {
namespace {

/// Whatever a packed call wrote, as what its sequences are: batch entries.
template <typename T>
Gradients<T> apart(Gradients<T> g, std::int64_t batch) {
  for (Tensor<T>* t : {&g.dq, &g.dk, &g.dv, &g.ds_norms}) *t = apart(*t, batch);
  return g;
}

/// Of a row from a key, which the slope of alibi is multiplied by.
std::int64_t distance(const Call<float>& s, std::int64_t b, std::int64_t i, std::int64_t j) {
  const auto& start = s.query_start;
  const std::int64_t first =
      start.empty() ? 0 : start[start.size() > 1 ? static_cast<std::size_t>(b) : 0];
  return std::abs(first + i - j);
}

/// The oracle's gradients, and what an output in the type may cost, since it enters D and so every
/// dS = P (dP - D): its own rounding, and that of P where dot products of bfloat16, `pairs`, made
/// it.
oracle::Gradients truth_of(const Call<float>& s, const Tensor<float>& g, heed::DType dtype,
                           bool pairs) {
  const double unit = dtype == heed::DType::f16 ? 0x1p-11 : 0x1p-8;
  const double least = dtype == heed::DType::f16 ? 0x1p-24 : 0x1p-133;
  oracle::Gradients truth = true_gradients(s, g);
  const oracle::Answer answer = oracle::attention(problem_of(s), true);
  const Dims d = s.dims();
  const double usual = s.normalize_qk ? 1 : 1 / std::sqrt(static_cast<double>(d.size));
  const double scale = std::fabs(s.scale.empty() ? usual : s.scale[0]);
  std::vector<double> more_q(truth.dq.value.size()), more_k(truth.dk.value.size());
  g.each([&](auto b, auto h, auto i, auto x) {
    if (x != 0) return;
    const auto row = static_cast<std::size_t>((b * d.heads + h) * d.queries + i);
    const auto kv = h / (d.heads / d.kv_heads);
    double sum = 0;  // of |dO| (|o| + m) in the row
    for (std::int64_t y = 0; y < d.value_size; ++y) {
      const auto at = row * static_cast<std::size_t>(d.value_size) + static_cast<std::size_t>(y);
      const double error = std::fabs(answer.o.value[at]) + (pairs ? answer.m[at] : 0.0);
      sum += std::fabs(double{g.at(b, h, i, y)}) * error;
    }
    const auto head = static_cast<std::size_t>(h);
    double seen = 0, squares = 0;  // of P in the row, and of what its dS may be off by
    for (std::int64_t j = 0; j < d.keys; ++j) {
      const auto place = row * static_cast<std::size_t>(d.keys) + static_cast<std::size_t>(j);
      const double weight = answer.weights.value[place], ds = unit * sum * weight;
      const double p = scale * ds;
      double product = 0, of_row = 0, of_key = 0;  // q . k, q . q, k . k
      for (std::int64_t y = 0; y < d.size; ++y) {
        const double at_row = s.q.at(b, h, i, y), at_key = s.k.at(b, kv, j, y);
        product += at_row * at_key, of_row += at_row * at_row, of_key += at_key * at_key;
      }
      if (s.normalize_qk) product /= std::sqrt(of_row * of_key);
      seen += weight;
      squares += ds * ds;
      truth.dscale.bound[head] += ds * std::fabs(product);
      if (!truth.dbias.bound.empty()) truth.dbias.bound[place] += ds;
      if (!s.alibi.empty())
        truth.dalibi.bound[head] += ds * static_cast<double>(distance(s, b, i, j));
      for (std::int64_t y = 0; y < d.size; ++y) {
        const auto c = static_cast<std::size_t>(y);
        const auto of_q = row * static_cast<std::size_t>(d.size) + c;
        const auto of_k = static_cast<std::size_t>((b * d.kv_heads + kv) * d.keys + j) *
                              static_cast<std::size_t>(d.size) +
                          c;
        // A normalized row gives (g - x^ (x^ . g)) / |x|, and g is of the other row's length, 1.
        more_q[of_q] +=
            p * (s.normalize_qk ? 2 / std::sqrt(of_row) : std::fabs(double{s.k.at(b, kv, j, y)}));
        more_k[of_k] +=
            p * (s.normalize_qk ? 2 / std::sqrt(of_key) : std::fabs(double{s.q.at(b, h, i, y)}));
      }
    }
    if (!s.sinks.empty()) truth.dsinks.bound[head] += unit * sum * std::max(0.0, 1 - seen);
    truth.ds_norms.bound[row] += std::sqrt(squares);
  });
  for (std::size_t n = 0; n < more_q.size(); ++n) truth.dq.bound[n] += more_q[n];
  for (std::size_t n = 0; n < more_k.size(); ++n) truth.dk.bound[n] += more_k[n];
  for (oracle::Truth* t : {&truth.dq, &truth.dk, &truth.dv}) {
    for (std::size_t n = 0; n < t->value.size(); ++n) {
      t->bound[n] += unit * (std::fabs(t->value[n]) + t->bound[n]) + least;
    }
  }
  return truth;
}

}  // namespace

Gradients<float> run_half_backward(const Call<float>& s, const Result<float>& forward,
                                   const Tensor<float>& d_output, Layout layout, heed::DType dtype,
                                   const heed::Execution& execution) {
  const Halves q(s.q, dtype), k(s.k, dtype), v(s.v, dtype), o(forward.o, dtype), g(d_output, dtype);
  Halves dq(s.q.shape, layout, dtype), dk(s.k.shape, layout, dtype), dv(s.v.shape, layout, dtype);
  const Dims d = s.dims();
  Gradients<float> r;
  r.ds_norms = Tensor<float>({d.batch, d.heads, d.queries, 1});
  heed::Gradients to{.dq = dq.out(s.rank),
                     .dk = dk.out(s.rank),
                     .dv = dv.out(s.rank),
                     .ds_norms = without_last_axis(r.ds_norms.out(s.rank))};
  const auto numbers = [&](Tensor<float>& t) {
    t = Tensor<float>({1, 1, 1, d.heads});
    return heed::view(t.memory.data(), {d.heads});
  };
  to.dscale = numbers(r.dscale);
  if (!s.alibi.empty()) to.dalibi = numbers(r.dalibi);
  if (!s.sinks.empty()) to.dsinks = numbers(r.dsinks);
  if (s.bias.present()) r.dbias = Tensor<float>(s.bias.shape), to.dbias = r.dbias.out(s.rank);
  const Told<float> told(s);
  heed::attention_backward({.q = q.view(s.rank),
                            .k = k.view(s.rank),
                            .v = v.view(s.rank),
                            .output = o.view(s.rank),
                            .lse = without_last_axis(forward.lse.view(s.rank)),
                            .d_output = g.view(s.rank)},
                           to, told.options, execution);
  each_gradient(r, [](const Tensor<float>& t, const char* name) {
    expect_written_exactly(t, name);  // those in float32
  });
  r.dq = dq.written("dq");
  r.dk = dk.written("dk");
  r.dv = dv.written("dv");
  return r;
}

template <typename T>
bool judge_gradients(const Case& c, std::size_t n) {
  const Call<T> s = make<T>(c);
  const auto g = draw_d_output(s, c.seed ^ 77, c.output);
  const Wish wish{.one_scale = n % 4 == 3, .layout = c.output};
  const heed::Execution execution{.executor = nullptr, .threads = static_cast<int>(1 + n % 3)};
  const oracle::Gradients truth = true_gradients(s, g);
  std::optional<Gradients<T>> first;
  bool good = true;
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    const auto got =
        c.packed ? apart(run_backward(packed(s), end_to_end(g), wish, execution), s.q.shape[0])
                 : run_backward(s, g, wish, execution);
    testing::AssertionResult result = within_bounds(s, got, truth);
    if (result && first) result = same_bits(got, *first);
    good &= bool{result};
    EXPECT_TRUE(result) << heed::name_of(isa) << ": " << describe(s);
    if (!first) first = got;
  }
  return good;
}

template bool judge_gradients<float>(const Case&, std::size_t);
template bool judge_gradients<double>(const Case&, std::size_t);

namespace {

void judge_steps(const Call<double>& s, std::uint64_t seed, bool sequences) {
  const auto g = draw_d_output(s, seed);
  const auto steps =
      oracle::gradients_by_complex_steps(problem_of(s), g.plain(), {.dbias = s.bias.present()});
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    const auto got = sequences ? apart(run_backward(packed(s), end_to_end(g)), s.q.shape[0])
                               : run_backward(s, g);
    EXPECT_TRUE(near_steps(s, got, steps, 1e-13)) << heed::name_of(isa) << ": " << describe(s);
  }
}

}  // namespace

void judge_steps(const Case& c, std::uint64_t seed) {
  judge_steps(make<double>(c), seed, c.packed);
}

void judge_steps(const Call<double>& call, std::uint64_t seed) { judge_steps(call, seed, false); }

void judge_half_gradients(const Case& c, heed::DType dtype) {
  Call<float> s = make<float>(c, dtype);
  s.fewer_axes = false;
  s = nearest(std::move(s), dtype);
  const auto g = nearest(draw_d_output(s, c.seed ^ 77), dtype);
  const Call<float> told = c.packed ? packed(s) : s;
  const Tensor<float> told_g = c.packed ? end_to_end(g) : g;
  Call<float> typed = s;
  typed.dtype = dtype;
  std::map<bool, oracle::Gradients> truths;  // by whether dot products of bfloat16 run the call
  for (const heed::Isa isa : isas_of(dtype)) {
    const Forced forced(isa);
    const bool pairs = by_pairs(typed);
    if (!truths.contains(pairs)) truths[pairs] = truth_of(s, g, dtype, pairs);
    const oracle::Gradients& truth = truths.at(pairs);
    auto got = run_half_backward(told, run_half(told, dtype), told_g, Layout::bhtd, dtype);
    if (c.packed) got = apart(got, s.q.shape[0]);
    for (Tensor<float>* t : {&got.dq, &got.dk, &got.dv}) {
      for (float& x : t->memory) x += 0.0f;  // -0 is what a tiny number may be rounded to
    }
    EXPECT_TRUE(within_bounds(s, got, truth)) << heed::name_of(isa) << ": " << describe(s);
  }
}

namespace {

constexpr int kStepColumns[] = {1, 2, 3, 5, 7, 8, 12, 16, 17, 33};
static_assert(std::size(kStepColumns) == kStepSizes);
constexpr std::pair<int, int> kStepLengths[] = {{5, 0},   {1, 1},   {1, 2},   {2, 1},
                                                {1, 17},  {3, 7},   {7, 3},   {15, 17},
                                                {16, 16}, {17, 15}, {31, 33}, {33, 31}};

constexpr std::pair<int, int> kGradientColumns[] = {{1, 1},   {3, 3},   {8, 8},     {16, 16},
                                                    {17, 17}, {33, 33}, {48, 48},   {64, 64},
                                                    {65, 65}, {32, 64}, {128, 128}, {192, 128}};
static_assert(std::size(kGradientColumns) == kGradientSizes);
// Around one and two blocks of 96 keys and a chain of 64 rows, and beyond a split of 768.
constexpr std::pair<int, int> kGradientLengths[] = {{1, 17},  {1, 127},  {7, 3},    {17, 15},
                                                    {33, 31}, {65, 64},  {97, 97},  {128, 127},
                                                    {95, 96}, {49, 191}, {17, 767}, {33, 769}};

std::vector<Case> cases_of(int size, int value_size, std::span<const std::pair<int, int>> lengths,
                           std::uint64_t seed) {
  std::vector<Case> all;
  for (const auto& [queries, keys] : lengths) {
    for (std::size_t masking = 0; masking < kBaseMaskings; ++masking) {
      const std::size_t n = all.size();
      Case c;
      c.dims = {1, 1, 1, queries, keys, size, value_size};
      if (queries * keys < 10000) c.dims.heads = 2;  // that share their keys
      if (queries * keys < 300) c.dims.batch = 2;
      if (masking + 1 == kBaseMaskings) c.dims.batch = 2;  // packed: not one sequence alone
      c.mask_axes = n % 3 == 0 ? 3 : n % 3 == 1 ? 15 : 7;
      c.seed = seed << 32 | n;
      all.push_back(masked(c, masking));
    }
  }
  return all;
}

}  // namespace

std::vector<Case> step_cases(std::size_t size) {
  return cases_of(kStepColumns[size], kStepColumns[(size + 3) % kStepSizes], kStepLengths,
                  2000 + size);
}

std::vector<Case> gradient_cases(std::size_t size) {
  return cases_of(kGradientColumns[size].first, kGradientColumns[size].second, kGradientLengths,
                  2100 + size);
}

}  // namespace heed_test

// Judging a case in each type.
#include "forward/judge.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>

#include "forward/end_to_end.h"
#include "sanitized.h"

namespace heed_test {
namespace {

/// T5: an output that is nearly all zeros proves little.
bool mistrusted(std::size_t zeros, std::size_t elements) { return 10 * zeros > 9 * elements; }

bool mistrusted(const oracle::Truth& o) {
  return mistrusted(static_cast<std::size_t>(std::ranges::count(o.value, 0.0)), o.value.size());
}

bool mistrusted(const Tensor<float>& o) {
  std::size_t zeros = 0;
  o.each([&](auto b, auto h, auto i, auto x) { zeros += o.at(b, h, i, x) == 0; });
  return mistrusted(zeros, static_cast<std::size_t>(o.count()));
}

/// u_out of T1.
double unit_of(heed::DType dtype) {
  switch (dtype) {
    case heed::DType::f64:
      return 0x1p-53;
    case heed::DType::f16:
      return 0x1p-11;
    case heed::DType::bf16:
      return 0x1p-8;
    default:
      return 0x1p-24;
  }
}

/// The results of run(call), where the entries are sequences those of the packed call.
template <typename T, typename Run>
Result<T> answered(const Case& c, const Call<T>& call, const Run& run) {
  return c.packed ? apart(run(packed(call)), c.dims.batch) : run(call);
}

/// A third of the cases is asked for weights, a tensor as large as the scores, which packed calls
/// do not give.
bool asks_weights(const Case& c, std::size_t n) { return n % 3 == 0 && !c.packed; }

}  // namespace

/// T1 of numerics: + u_out |o*| + u_P sum_j P |v| + eta, and n_k 2^-126 / (1 - p), for the
/// instruction gives 0 for a sum below 2^-126, which a factor of dropout may come after. Rows
/// brought to length 1 are widened.
oracle::Answer paired_truth(const Call<float>& call, bool weights) {
  const double unit = unit_of(heed::DType::bf16);
  oracle::Answer answer = oracle::attention(problem_of(call), weights);
  const double least = static_cast<double>(call.dims().keys) * 0x1p-126 / (1 - call.dropout.p);
  for (std::size_t n = 0; n < answer.o.value.size(); ++n) {
    const double more = unit * std::fabs(answer.o.value[n]) + unit * answer.m[n] + 0x1p-133 + least;
    if (std::isfinite(more)) answer.o.bound[n] += more;
  }
  return answer;
}

std::vector<heed::Isa> judging_isas(const Dims& dims) {
  std::vector<heed::Isa> all = runnable_isas();
  if (sanitized() && flops(dims) > kMostScalar && all.size() > 1) all.erase(all.begin());
  return all;
}

namespace {

/// Above this, what T1 allows beside u m is less than 2^-8 of that: n_k tiny max|v| for n_k up to
/// 4096, and half of a subnormal unit of float16, of bfloat16 less than tiny.
template <typename T>
double least_of_t3(heed::DType dtype) {
  const double half_unit = dtype == heed::DType::f16 ? 0x1p-25 : 0;
  return std::max(0x1p20 * std::numeric_limits<T>::min(), 0x1p8 * half_unit) / unit_of(dtype);
}

/// One of V, for each batch entry: its outputs, and the sums over them of r / (u m) and of the same
/// with the sign of o*.
struct Column {
  double count = 0, sum = 0, outwards = 0;
};

/// The mean over the columns of the means within them, and what T3 allows it.
struct Mean {
  double value = 0, most = 0;
};

Mean mean_of(const std::vector<Column>& columns, double Column::*sum) {
  const auto many = static_cast<double>(columns.size());
  double mean = 0, squares = 0;
  for (const Column& of : columns) mean += of.*sum / of.count / many;
  for (const Column& of : columns) squares += std::pow(of.*sum / of.count - mean, 2);
  return {mean, 0.02 + 4 * std::sqrt(squares / (many - 1) / many)};
}

}  // namespace

template <typename T>
bool is_of_t3(const Case& c, const oracle::Answer& answer, heed::DType dtype) {
  constexpr std::ptrdiff_t kFewest = 4096;
  const double least = least_of_t3<T>(dtype);
  return c.values == Values::normal &&
         std::ranges::count_if(answer.m, [&](double m) { return m > least; }) >= kFewest;
}

template <typename T>
testing::AssertionResult keeps_t3(const Case& c, const Result<T>& result,
                                  const oracle::Answer& answer, heed::DType dtype) {
  // Of fewer columns, 4 standard errors that are estimated from them are too often too few.
  constexpr std::size_t kFewestColumns = 32;
  const double unit = unit_of(dtype), least = least_of_t3<T>(dtype);
  const Dims& d = c.dims;
  std::vector<Column> columns(static_cast<std::size_t>(d.batch * d.kv_heads * d.value_size));
  double errors = 0, outputs = 0;
  std::size_t n = 0;
  result.o.each([&](auto b, auto h, auto i, auto x) {
    const double value = answer.o.value[n], m = answer.m[n];
    const double r = (static_cast<double>(result.o.at(b, h, i, x)) - value) - answer.o.low[n];
    if (m > least) {
      const std::int64_t kv = h / (d.heads / d.kv_heads);
      Column& of = columns[static_cast<std::size_t>((b * d.kv_heads + kv) * d.value_size + x)];
      const double share = r / (unit * m);
      of.count += 1, of.sum += share, of.outwards += std::signbit(value) ? -share : share;
      errors += r * r, outputs += value * value;
    }
    ++n;
  });
  std::erase_if(columns, [](const Column& of) { return of.count == 0; });
  double kappa = 0, rows = 0;
  for (const double one : answer.kappa_of_keys)
    if (!std::isnan(one)) kappa += one, rows += 1;
  const Mean mean = mean_of(columns, &Column::sum), outwards = mean_of(columns, &Column::outwards);
  const double norm = std::sqrt(errors / outputs), most_norm = 8 * unit * (1 + kappa / rows);
  // Where V repeats its memory, columns do.
  const bool independent = columns.size() >= kFewestColumns && writable(c.v);
  const bool none = !independent || std::fabs(mean.value) <= mean.most;
  const bool none_outwards =
      !independent || !answer.o.rounded || std::fabs(outwards.value) <= outwards.most;
  if (none && none_outwards && norm <= most_norm) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "T3: the mean of r / (u m) is " << mean.value << ", at most " << mean.most
         << " wanted; with the sign of o* " << outwards.value << ", " << outwards.most
         << " where it was rounded; |r| / |o*| is " << norm << ", at most " << most_norm;
}

template bool is_of_t3<float>(const Case&, const oracle::Answer&, heed::DType);
template bool is_of_t3<double>(const Case&, const oracle::Answer&, heed::DType);
template testing::AssertionResult keeps_t3(const Case&, const Result<float>&, const oracle::Answer&,
                                           heed::DType);
template testing::AssertionResult keeps_t3(const Case&, const Result<double>&,
                                           const oracle::Answer&, heed::DType);

template <typename T>
Tally judge(const Case& c, std::size_t n, heed::DecodeOrder order) {
  const Call<T> call = make<T>(c);
  const Ask ask{.lse = n % 5 != 4, .weights = asks_weights(c, n), .output = c.output};
  const heed::Execution execution{.threads = static_cast<int>(1 + n % 3), .decode_order = order};
  const oracle::Answer answer = oracle::attention(problem_of(call), ask.weights);
  constexpr heed::DType kType = heed::detail::dtype_of<T>();
  Tally tally{1, mistrusted(answer.o), 0, is_of_t3<T>(c, answer, kType)};
  std::optional<Result<T>> first;
  for (const heed::Isa isa : judging_isas(c.dims)) {
    const Forced forced(isa);
    const Result<T> result =
        answered(c, call, [&](const Call<T>& told) { return run(told, ask, execution); });
    testing::AssertionResult good = within_bounds(result, answer);
    if (good && first) good = same_bits(result, *first);
    if (good && !first && tally.held_to_t3 > 0) good = keeps_t3(c, result, answer, kType);
    if (!good) tally.failed = 1;
    EXPECT_TRUE(good) << heed::name_of(isa) << ": " << describe(call);
    if (!first) first = result;
  }
  return tally;
}

template Tally judge<float>(const Case&, std::size_t, heed::DecodeOrder);
template Tally judge<double>(const Case&, std::size_t, heed::DecodeOrder);

Tally judge_half(const Case& c, std::size_t n, heed::DType dtype, std::span<const heed::Isa> isas,
                 heed::DecodeOrder order) {
  const Call<float> call = nearest(make<float>(c, dtype), dtype);
  const Ask ask{.lse = true, .weights = asks_weights(c, n), .output = c.output};
  const heed::Execution execution{
      .threads = static_cast<int>(1 + n % 3), .reproducible = true, .decode_order = order};
  Call<float> typed = call;
  typed.dtype = dtype;
  const auto by_halves = [&](const Call<float>& told) {
    return run_half(told, dtype, ask, execution, n % 7 == 3 ? 1 : 0);
  };
  std::optional<oracle::Answer> answer;
  Tally tally{1, 0, 0, 0};
  for (const heed::Isa isa : isas) {
    const Forced forced(isa);
    Result<float> wide =
        answered(c, call, [&](const Call<float>& told) { return run(told, ask, execution); });
    wide.o = nearest(std::move(wide.o), dtype);
    const Result<float> got = answered(c, call, by_halves);
    testing::AssertionResult good = same_bits(got, wide);
    if (!answer) answer = truth_of(typed, ask.weights);
    if (good) good = within_bounds(got, *answer);
    tally.held_to_t3 = is_of_t3<float>(c, *answer, dtype);
    if (good && tally.held_to_t3 > 0) good = keeps_t3(c, got, *answer, dtype);
    if (!good) tally.failed = 1;
    EXPECT_TRUE(good) << heed::name_of(isa) << ": " << describe(call);
    tally.mistrusted = mistrusted(wide.o);
  }
  return tally;
}

/// An output in 16 bits is at most `bound` from o* before it is rounded, and then by at most u_out
/// of what it was, or half a subnormal unit; beyond the type's largest number it is infinite, and
/// at most `bound` from there it may be either. A 0 of which the oracle allows no more than its
/// least error is exact, and stays so.
template <typename T>
oracle::Answer truth_of(const Call<T>& call, bool weights) {
  if constexpr (std::is_same_v<T, float>) {
    if (by_pairs(call)) return paired_truth(read_by_pairs(call), weights);
  }
  oracle::Answer answer = oracle::attention(problem_of(call), weights);
  if (call.dtype == heed::detail::dtype_of<T>()) return answer;
  const bool f16 = call.dtype == heed::DType::f16;
  const double unit = unit_of(call.dtype), least = f16 ? 0x1p-25 : 0x1p-134;
  const double beyond = f16 ? 65520 : 0x1.FFp127;  // half a unit above the largest number
  constexpr double kEta = std::numeric_limits<T>::denorm_min();  // what T1 allows any output
  answer.o.rounded = true;
  answer.o.infinite_from = beyond * (1 + unit) + least;  // |o*| + bound, which has these two then
  for (std::size_t n = 0; n < answer.o.value.size(); ++n) {
    if (answer.o.value[n] == 0 && answer.o.bound[n] <= kEta) {
      answer.o.bound[n] = 0;
      continue;
    }
    if (std::fabs(answer.o.value[n]) - answer.o.bound[n] >= beyond) {
      answer.o.value[n] = std::copysign(std::numeric_limits<double>::infinity(), answer.o.value[n]);
      answer.o.low[n] = answer.o.bound[n] = 0;
      continue;
    }
    const double more = unit * (std::fabs(answer.o.value[n]) + answer.o.bound[n]) + least;
    if (std::isfinite(more)) answer.o.bound[n] += more;
  }
  return answer;
}

template oracle::Answer truth_of(const Call<float>&, bool);
template oracle::Answer truth_of(const Call<double>&, bool);

Call<float> read_by_pairs(Call<float> call) {
  call = nearest(std::move(call), heed::DType::bf16);
  for (Tensor<float>* t : {&call.q, &call.k, &call.v}) {
    for (float& x : t->memory) {
      if (std::fabs(x) < std::numeric_limits<float>::min()) x = std::copysign(0.0f, x);
    }
  }
  return call;
}

Tally judge_paired(const Case& c, std::size_t n, heed::DecodeOrder order) {
  const Call<float> call = read_by_pairs(make<float>(c));
  const Ask ask{.lse = true, .weights = asks_weights(c, n), .output = c.output};
  const heed::Execution execution{.threads = static_cast<int>(1 + n % 3), .decode_order = order};
  const Result<float> got = answered(c, call, [&](const Call<float>& told) {
    return run_half(told, heed::DType::bf16, ask, execution, n % 7 == 3 ? 1 : 0);
  });
  Call<float> typed = call;
  typed.dtype = heed::DType::bf16;
  const oracle::Answer truth = truth_of(typed, ask.weights);  // normalized rows are widened
  const bool of_t3 = is_of_t3<float>(c, truth, typed.dtype);
  testing::AssertionResult good = within_bounds(got, truth);
  if (good && of_t3) good = keeps_t3(c, got, truth, typed.dtype);
  EXPECT_TRUE(good) << describe(call);
  return {1, mistrusted(truth.o), !good, of_t3};
}

}  // namespace heed_test

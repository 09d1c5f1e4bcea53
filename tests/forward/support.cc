// Running a problem on heed and on the oracle.
#include "forward/support.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string_view>
#include <type_traits>

#include "forward/judge.h"

namespace heed_test {
namespace {

/// Of all bytes, many at a time.
template <typename T>
std::size_t hash_of(const Tensor<T>& tensor) {
  return std::hash<std::string_view>{}(
      {reinterpret_cast<const char*>(tensor.memory.data()), tensor.memory.size() * sizeof(T)});
}

/// An exact 0 is +0. In 16 bits that is one without a bound: others may have been a small negative
/// number.
bool fits(double got, double value, double low, double bound, bool zero_too, bool rounded) {
  if (!std::isfinite(value)) {
    if (std::isinf(bound)) return !std::isfinite(got) || (zero_too && got == 0);
    return std::isnan(value) ? std::isnan(got) : got == value;
  }
  if (!std::isfinite(got)) return false;
  const bool exact = value == 0 && low == 0 && (bound == 0 || !rounded);
  if (exact && got == 0) return !std::signbit(got);
  return std::fabs((got - value) - low) <= bound;
}

template <typename T>
testing::AssertionResult compare(const Tensor<T>& got, const oracle::Truth& truth, const char* name,
                                 bool zero_too) {
  std::size_t n = 0;
  auto result = testing::AssertionSuccess();
  got.each([&](auto b, auto h, auto i, auto x) {
    const auto value = static_cast<double>(got.at(b, h, i, x));
    const bool may_be = std::isinf(value) && std::signbit(value) == std::signbit(truth.value[n]) &&
                        std::fabs(truth.value[n]) + truth.bound[n] >= truth.infinite_from;
    if (result && !may_be &&
        !fits(value, truth.value[n], truth.low[n], truth.bound[n], zero_too, truth.rounded)) {
      result = testing::AssertionFailure();
      result << std::hexfloat << name << "[" << b << ", " << h << ", " << i << ", " << x
             << "] = " << value << std::defaultfloat << " (" << value << "), oracle "
             << truth.value[n] << ", error " << (value - truth.value[n]) - truth.low[n]
             << ", bound " << truth.bound[n];
    }
    ++n;
  });
  return result;
}

}  // namespace

template <typename T>
void expect_written_exactly(const Tensor<T>& tensor, const char* name, bool ones_may_come) {
  constexpr auto untouched = [](const T& x) {
    constexpr std::array<unsigned char, 8> kOnes{255, 255, 255, 255, 255, 255, 255, 255};
    return std::memcmp(&x, kOnes.data(), sizeof(T)) == 0;
  };
  std::vector<bool> element(tensor.memory.size());
  std::int64_t missing = 0, stray = 0;
  tensor.each([&](auto b, auto h, auto i, auto x) {
    const std::size_t n = tensor.index(b, h, i, x);
    element[n] = true;
    missing += untouched(tensor.memory[n]);
  });
  for (std::size_t n = 0; n < element.size(); ++n)
    stray += !element[n] && !untouched(tensor.memory[n]);
  EXPECT_EQ(ones_may_come ? 0 : missing, 0) << "elements of " << name << " were never written";
  EXPECT_EQ(stray, 0) << "elements beside " << name << " were written";
}

template <typename T>
Result<T> run(const Call<T>& s, const Ask& ask, const heed::Execution& execution) {
  if constexpr (std::is_same_v<T, float>) {
    if (s.dtype != heed::DType::f32) return run_half(s, s.dtype, ask, execution);
  }
  const Dims d = s.dims();
  Result<T> r;
  r.o = Tensor<T>({d.batch, d.heads, d.queries, d.value_size}, ask.output);
  heed::ForwardOutputs outputs{.output = r.o.out(s.rank), .statistics = ask.statistics};
  if (ask.lse) {
    r.lse = Tensor<T>({d.batch, d.heads, d.queries, 1}, ask.output);
    outputs.lse = r.lse.out(s.rank);
    --outputs.lse.rank;  // without the axis of length 1
  }
  if (ask.weights) {
    r.weights = Tensor<T>({d.batch, d.heads, d.queries, d.keys}, ask.output);
    outputs.weights = r.weights.out(s.rank);
  }
  const auto inputs = [&] { return hash_of(s.q) ^ 3 * hash_of(s.k) ^ 5 * hash_of(s.v); };
  const std::size_t before = inputs();
  const Told<T> told(s);
  heed::attention_forward(s.q.view(s.rank), s.k.view(s.rank), s.v.view(s.rank), outputs,
                          told.options, execution);
  EXPECT_EQ(inputs(), before) << "q, k or v changed: " << describe(s);
  expect_written_exactly(r.o, "output", ask.ones);
  if (ask.lse) expect_written_exactly(r.lse, "lse", ask.ones);
  if (ask.weights) expect_written_exactly(r.weights, "weights", ask.ones);
  return r;
}

template <typename T>
testing::AssertionResult same_bits(const Tensor<T>& a, const Tensor<T>& b) {
  if (a.shape != b.shape) return testing::AssertionFailure() << "shapes differ";
  auto result = testing::AssertionSuccess();
  a.each([&](auto bb, auto h, auto i, auto x) {
    const T left = a.at(bb, h, i, x), right = b.at(bb, h, i, x);
    const bool same = (std::isnan(left) && std::isnan(right)) ||
                      (left == right && std::signbit(left) == std::signbit(right));
    if (!result || same) return;
    result = testing::AssertionFailure();
    result << std::hexfloat << "[" << bb << ", " << h << ", " << i << ", " << x << "]: " << left
           << " is not " << right;
  });
  return result;
}

template <typename T>
testing::AssertionResult same_bits(const Result<T>& a, const Result<T>& b) {
  if (const auto o = same_bits(a.o, b.o); !o)
    return testing::AssertionFailure() << "output" << o.message();
  if (a.lse.present() && b.lse.present())
    if (const auto l = same_bits(a.lse, b.lse); !l)
      return testing::AssertionFailure() << "lse" << l.message();
  if (a.weights.present() && b.weights.present())
    if (const auto w = same_bits(a.weights, b.weights); !w)
      return testing::AssertionFailure() << "weights" << w.message();
  return testing::AssertionSuccess();
}

template <typename T>
testing::AssertionResult within_bounds(const Result<T>& result, const oracle::Answer& answer) {
  auto good = compare(result.o, answer.o, "output", false);
  if (good && result.lse.present()) good = compare(result.lse, answer.lse, "lse", true);
  if (good && result.weights.present())
    good = compare(result.weights, answer.weights, "weights", true);
  return good;
}

template <typename T>
int expect_truth(const Call<T>& call, const Ask& ask, const heed::Execution& execution) {
  std::optional<oracle::Answer> answer;  // of all that have the same bits
  std::optional<Result<T>> first;
  int count = 0;
  for (const heed::Isa isa : isas_of(call.dtype)) {
    const Forced forced(isa);
    const Result<T> result = run(call, ask, execution);
    const bool own_bits = by_pairs(call);
    if (!answer || own_bits) answer = truth_of(call, ask.weights);
    EXPECT_TRUE(within_bounds(result, *answer)) << heed::name_of(isa) << ": " << describe(call);
    if (!first) first = result;
    if (!own_bits) {
      EXPECT_TRUE(same_bits(result, *first))
          << heed::name_of(isa) << " against scalar: " << describe(call);
    }
    ++count;
  }
  return count;
}

std::vector<heed::Isa> runnable_isas() {
  std::vector<heed::Isa> all;
  for (const heed::InstructionSet& set : heed::instruction_sets())
    if (set.compiled && set.supported && set.isa != kPaired) all.push_back(set.isa);
  return all;
}

Forced::Forced(heed::Isa isa) {
  heed::cap_instruction_set(isa);
  if (heed::instruction_set() != isa)
    ADD_FAILURE() << "asked for " << heed::name_of(isa) << ", but "
                  << heed::name_of(heed::instruction_set()) << " would run";
}

Forced::~Forced() { heed::cap_instruction_set(heed::Isa::neon_bf16); }  // the last one: no cap

Draws draws(int usual) {
  int number = usual;
  if (const char* text = std::getenv("HEED_TEST_DRAWS")) {
    const std::string_view digits(text);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || end != digits.data() + digits.size() || number < 1) {
      ADD_FAILURE() << "HEED_TEST_DRAWS is '" << text << "'; expected a whole number from 1 on";
      return Draws(0);
    }
  }
  return Draws(number);
}

#define HEED_INSTANTIATE(T)                                                                 \
  template void expect_written_exactly(const Tensor<T>&, const char*, bool);                \
  template Result<T> run(const Call<T>&, const Ask&, const heed::Execution&);               \
  template testing::AssertionResult same_bits(const Tensor<T>&, const Tensor<T>&);          \
  template testing::AssertionResult same_bits(const Result<T>&, const Result<T>&);          \
  template testing::AssertionResult within_bounds(const Result<T>&, const oracle::Answer&); \
  template int expect_truth(const Call<T>&, const Ask&, const heed::Execution&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed_test

// The oracle against 50-digit arithmetic and against closed forms.
// Method: tables made by make_tables.py (mpmath, checked there against NumPy longdouble), and
// attentions whose result needs no computation.
#include <gtest/gtest.h>

#include <limits>

#include "oracle/attention.h"

namespace oracle {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct FunctionRow {
  char function;
  DoubleDouble a, b, result;
};
const FunctionRow kFunctions[] = {
#include "functions.inc"
};

/// |x - truth| in units of |truth|.
double relative_error(DoubleDouble x, DoubleDouble truth) {
  const DoubleDouble difference = x - truth;
  return std::fabs(difference.hi) / std::fabs(truth.hi);
}

TEST(double_double, agrees_with_fifty_digits_on_200_values) {
  EXPECT_EQ(std::size(kFunctions), 200U);
  for (const FunctionRow& row : kFunctions) {
    DoubleDouble r;
    switch (row.function) {
      case '+':
        r = row.a + row.b;
        break;
      case '-':
        r = row.a - row.b;
        break;
      case '*':
        r = row.a * row.b;
        break;
      case '/':
        r = row.a / row.b;
        break;
      case 'r':
        r = sqrt(abs(row.a));
        break;
      case 'e':
        r = exp(row.a);
        break;
      case 'l':
        r = log(abs(row.a));
        break;
      default:
        r = tanh(row.a);
        break;
    }
    // exp's error is its argument's, 2^-106 of up to 2^9.
    EXPECT_LE(relative_error(r, row.result), row.function == 'e' ? 0x1p-95 : 0x1p-98)
        << row.function << " of " << row.a.hi << " and " << row.b.hi << " is " << r.hi;
  }
}

TEST(double_double, infinity_and_nan_survive_every_operation) {
  EXPECT_EQ((DoubleDouble(kInf) + DoubleDouble(1)).hi, kInf);
  EXPECT_EQ((DoubleDouble(kInf) * DoubleDouble(-2)).hi, -kInf);
  EXPECT_TRUE(is_nan(DoubleDouble(kInf) - DoubleDouble(kInf)));
  EXPECT_TRUE(is_nan(DoubleDouble(kInf) * DoubleDouble(0)));
  EXPECT_TRUE(is_nan(exp(DoubleDouble(kNaN))));
  EXPECT_TRUE(is_nan(tanh(DoubleDouble(kNaN))));
  EXPECT_EQ(exp(DoubleDouble(-kInf)).hi, 0.0);
  EXPECT_EQ(exp(DoubleDouble(kInf)).hi, kInf);
  EXPECT_EQ(tanh(DoubleDouble(-kInf)).hi, -1.0);
  EXPECT_EQ((DoubleDouble(kInf) / DoubleDouble(3)).hi, kInf);
  EXPECT_TRUE(is_nan(DoubleDouble(0) / DoubleDouble(0)));
  // The sum is below the largest double, and with its error beyond it.
  const DoubleDouble largest(0x1.fffffffffffffp1023, 0x1.fffffffffffffp969);
  EXPECT_EQ((largest + DoubleDouble(0x1p969)).hi, kInf);
  EXPECT_EQ((-largest - DoubleDouble(0x1p969)).hi, -kInf);
}

/// splitmix64, as in make_tables.py
struct Stream {
  std::uint64_t state;

  std::uint64_t next() {
    std::uint64_t z = state += 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  template <typename T>
  T number() {
    constexpr int kBits = std::is_same_v<T, float> ? 24 : 53;
    return static_cast<T>(std::ldexp(static_cast<double>(next() >> (64 - kBits)), 2 - kBits) - 2);
  }
  template <typename T>
  std::vector<T> numbers(std::size_t n) {
    std::vector<T> all(n);
    for (T& x : all) x = number<T>();
    return all;
  }
};

enum : unsigned {
  kNormalize = 1,
  kSoftcap = 2,
  kAlibi = 4,
  kBias = 8,
  kCausal = 16,
  kWindow = 32,
  kLength = 64,
  kKeep = 128,
  kSinks = 256,
  kScale = 512,
  kDrop = 1024,
  kDropout = 2048,
  kScoreMod = 4096,
  kQueryLength = 8192,
  kHeadScale = 16384
};

struct ReferenceRow {
  unsigned flags, wide;
  std::size_t row;
  DoubleDouble lse, o[2];
  double bound[2];
};
const ReferenceRow kReferences[] = {
#include "references.inc"
};

template <typename T>
Answer reference_case(unsigned flags) {
  Problem<T> p{
      .batch = 2, .heads = 4, .kv_heads = 2, .queries = 3, .keys = 5, .size = 3, .value_size = 2};
  Stream stream{flags * 2 + (std::is_same_v<T, double> ? 1U : 0U)};
  const auto q = stream.numbers<T>(72), k = stream.numbers<T>(60), v = stream.numbers<T>(40);
  p.q = {q.data(), {36, 9, 3, 1}};
  p.k = {k.data(), {30, 15, 3, 1}};
  p.v = {v.data(), {20, 10, 2, 1}};
  std::vector<double> bias;
  std::vector<std::uint8_t> keep, drop;
  if (flags & kBias) {
    for (const T x : stream.numbers<T>(15)) bias.push_back(double{x});
    p.bias = {bias.data(), {0, 0, 5, 1}};
  }
  if (flags & kKeep) {
    for (const T x : stream.numbers<T>(15)) keep.push_back(x >= -1);
    p.keep = {keep.data(), {0, 0, 5, 1}};
  }
  if (flags & kDrop) {
    for (const T x : stream.numbers<T>(20)) drop.push_back(x >= 1);
    p.drop = {drop.data(), {0, 5, 0, 1}};
  }
  if (flags & kHeadScale) {
    p.scale = {0.5, -0.75, 1.25, 1.0};
  } else if (flags & kScale) {
    p.scale = {-0.75};
  } else if (flags & kNormalize) {
    p.scale = {3.0};
  }
  p.normalize_qk = (flags & kNormalize) != 0;
  if (flags & kSoftcap) p.softcap = 2.5;
  if (flags & kAlibi) p.alibi = {0.125, 0.25, 0.375, 0.5};
  if (flags & kSinks) p.sinks = {-0.5, -0.25, 0, 0.25};
  p.causal = (flags & kCausal) != 0;
  if (flags & (kCausal | kWindow | kAlibi)) p.query_start = {1};
  if (flags & kWindow) p.left = p.right = 1;
  if (flags & kLength) p.key_lengths = {3, 3};
  if (flags & kQueryLength) p.query_lengths = {2, 1};
  if (flags & kDropout) p.dropout = {.p = 0.25, .seed = 0x123456789ABCDEF};
  if (flags & kScoreMod) {
    p.score_mod_slope = 0.5;
    p.score_mod = [](Wide<T> t, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
      if ((b + h + i + j) % 5 == 4) return Wide<T>(-kInf);
      const double added =
          static_cast<double>(j - i) / 4 + static_cast<double>(2 * h - b) / 16;  // exact
      return Wide<T>(0.5) * t + Wide<T>(added);
    };
  }
  return attention(p, false);
}

template <typename T>
void expect_reference(const ReferenceRow& row, double tolerance) {
  const Answer answer = reference_case<T>(row.flags);
  const auto value = [](const Truth& t, std::size_t n) {
    return DoubleDouble(t.value[n], t.low[n]);
  };
  const DoubleDouble lse = value(answer.lse, row.row);
  if (row.lse.hi == -kInf) {
    EXPECT_EQ(lse.hi, -kInf);
  } else {
    EXPECT_LE(std::fabs((lse - row.lse).hi), tolerance * 16) << row.flags << " row " << row.row;
  }
  for (std::size_t x = 0; x < 2; ++x) {
    const std::size_t n = 2 * row.row + x;
    EXPECT_LE(std::fabs((value(answer.o, n) - row.o[x]).hi), tolerance * 16)
        << row.flags << " element " << n;
    if (row.bound[x] == 0) continue;
    EXPECT_NEAR(answer.o.bound[n], row.bound[x], 1e-6 * row.bound[x])
        << row.flags << " bound " << n;
  }
}

TEST(oracle, agrees_with_fifty_digits_on_every_option) {
  EXPECT_EQ(std::size(kReferences), 348U);
  for (const ReferenceRow& row : kReferences) {
    if (row.wide != 0) {
      expect_reference<double>(row, 0x1p-100);
    } else {
      expect_reference<float>(row, 0x1p-52);
    }
  }
}

/// One head of one batch entry with dense tensors; T is float or double.
template <typename T>
struct Small {
  std::vector<T> q, k, v;
  Problem<T> p;

  Small(std::int64_t queries, std::int64_t keys, std::int64_t size, std::int64_t value_size)
      : q(static_cast<std::size_t>(queries * size), T(1)),
        k(static_cast<std::size_t>(keys * size), T(1)),
        v(static_cast<std::size_t>(keys * value_size), T(1)) {
    p = {.queries = queries, .keys = keys, .size = size, .value_size = value_size};
    p.q = {q.data(), {0, 0, size, 1}};
    p.k = {k.data(), {0, 0, size, 1}};
    p.v = {v.data(), {0, 0, value_size, 1}};
  }
};

template <typename T>
class ClosedForm : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(ClosedForm, Reals);

TYPED_TEST(ClosedForm, equal_scores_give_the_mean_of_v) {
  Small<TypeParam> s(2, 4, 3, 1);
  s.v = {1, 2, 3, 10};
  const Answer a = attention(s.p, true);
  EXPECT_EQ(a.o.value, (std::vector<double>{4, 4}));
  EXPECT_DOUBLE_EQ(a.lse.value[0], 3 * double{TypeParam(1 / std::sqrt(3.0))} + std::log(4.0));
  EXPECT_EQ(a.weights.value, std::vector<double>(8, 0.25));
}

TYPED_TEST(ClosedForm, one_huge_score_gives_its_v) {
  Small<TypeParam> s(1, 3, 1, 2);
  s.k = {0, 5000, 1};
  s.v = {1, 2, 3, 4, 5, 6};
  const Answer a = attention(s.p, true);
  EXPECT_EQ(a.o.value, (std::vector<double>{3, 4}));
  EXPECT_EQ(a.lse.value[0], 5000);
  EXPECT_EQ(a.weights.value, (std::vector<double>{0, 1, 0}));
}

TYPED_TEST(ClosedForm, a_row_without_keys_is_zero_and_its_lse_minus_infinity_or_the_sink) {
  Small<TypeParam> s(3, 2, 1, 1);
  s.v = {TypeParam(kNaN), TypeParam(kInf)};
  s.p.query_lengths = {0};
  const Answer a = attention(s.p, true);
  EXPECT_EQ(a.o.value, std::vector<double>(3, 0));
  EXPECT_EQ(a.lse.value, std::vector<double>(3, -kInf));
  EXPECT_EQ(a.weights.value, std::vector<double>(6, 0));
  s.p.sinks = {1.5};
  EXPECT_EQ(attention(s.p, true).lse.value, std::vector<double>(3, 1.5));
}

TYPED_TEST(ClosedForm, a_sink_takes_its_share) {
  Small<TypeParam> s(1, 1, 1, 1);
  s.p.sinks = {1};  // the score is 1 as well
  const Answer a = attention(s.p, true);
  EXPECT_EQ(a.o.value[0], 0.5);
  EXPECT_DOUBLE_EQ(a.lse.value[0], 1 + std::log(2.0));
}

TYPED_TEST(ClosedForm, what_is_masked_is_never_seen_and_what_is_attended_always) {
  Small<TypeParam> s(2, 2, 1, 2);
  s.v = {1, 2, TypeParam(kNaN), 4};
  s.p.causal = true;
  const Answer a = attention(s.p, false);
  EXPECT_EQ(a.o.value[0], 1);
  EXPECT_EQ(a.o.value[1], 2);
  EXPECT_TRUE(std::isnan(a.o.value[2]));  // column 0 of the row that sees key 1
  EXPECT_EQ(a.o.value[3], 3);
  EXPECT_TRUE(std::isfinite(a.lse.value[1]));
}

TYPED_TEST(ClosedForm, a_score_of_minus_infinity_weighs_nothing_but_its_v_counts) {
  Small<TypeParam> s(1, 2, 1, 3);
  s.k = {TypeParam(-kInf), 1};
  s.v = {1, TypeParam(kInf), TypeParam(kNaN), 7, 8, 9};
  Answer a = attention(s.p, false);
  EXPECT_EQ(a.o.value[0], 7);
  EXPECT_TRUE(std::isnan(a.o.value[1]));
  EXPECT_TRUE(std::isnan(a.o.value[2]));
  EXPECT_EQ(a.lse.value[0], 1);
  s.k[1] = TypeParam(-kInf);  // no score at all: 0, but for what NaN and infinity leave
  a = attention(s.p, false);
  EXPECT_EQ(a.o.value[0], 0);
  EXPECT_TRUE(std::isnan(a.o.value[1]));
  EXPECT_EQ(a.lse.value[0], -kInf);
  s.k[1] = TypeParam(kInf);
  EXPECT_TRUE(std::isnan(attention(s.p, false).lse.value[0]));
}

TYPED_TEST(ClosedForm, a_huge_softcap_changes_nothing_and_a_small_one_bounds_the_scores) {
  Small<TypeParam> s(1, 2, 1, 1);
  s.k = {100, -100};
  s.v = {1, 0};
  s.p.softcap = 1;
  EXPECT_NEAR(attention(s.p, false).o.value[0], 1 / (1 + std::exp(-2.0)), 1e-15);
  s.p.softcap = 0x1p100;
  EXPECT_NEAR(attention(s.p, false).lse.value[0], 100, 1e-12);
}

TYPED_TEST(ClosedForm, a_masking_score_mod_hides_v) {
  Small<TypeParam> s(1, 2, 1, 1);
  s.v = {TypeParam(kNaN), 2};
  s.p.score_mod = [](auto t, auto, auto, auto, std::int64_t j) {
    return j == 0 ? Wide<TypeParam>(-kInf) : t;
  };
  EXPECT_EQ(attention(s.p, false).o.value[0], 2);
}

}  // namespace
}  // namespace oracle

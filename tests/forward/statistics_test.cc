// Statistics of rows against their definitions on the oracle's full weights.
//
// Bounds: each weight p_j is known to r_j p_j (T1, without what underflow loses), and its score to
// r_j; a sum over f(p_j, s_j) moves by the sum of |df| and is rounded once for each addition of a
// block, of the blocks of a split and of the splits, which N counts as for l (docs/numerics.md).
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "forward/bases.h"
#include "forward/executors.h"
#include "forward/half.h"
#include "forward/seen.h"

namespace heed_test {
namespace {

template <typename T>
void expect_row(const Call<T>& s, const Seen<T>& seen, const oracle::Answer& answer,
                const oracle::Problem<T>& problem, std::int64_t b, std::int64_t h, std::int64_t i) {
  const Dims d = s.dims();
  constexpr double kUnit = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;
  const double folds = (96.0 + 32.0 + static_cast<double>(d.keys) / 96.0) * kUnit;
  const auto row = static_cast<std::size_t>((b * d.heads + h) * d.queries + i);
  const double lse = answer.lse.value[row];
  double count = 0, highest = -INFINITY, p_max = 0, mean = 0, size = 0;
  const auto each = [&](auto f) {
    for (std::int64_t j = 0; j < d.keys; ++j) {
      if (!visible(s, problem, b, h, i, j)) continue;
      const std::size_t n = row * static_cast<std::size_t>(d.keys) + static_cast<std::size_t>(j);
      const double p = answer.weights.value[n];
      f(j, p, std::log(p) + lse, answer.relative[n]);
    }
  };
  std::int64_t keys = 0;
  double score_error = 0;
  each([&](std::int64_t, double p, double score, double r) {
    ++keys;
    count += 1;
    highest = std::max(highest, score);
    p_max = std::max(p_max, p);
    mean += score;
    size += std::fabs(score);
    score_error = std::max(score_error, r);
  });
  SCOPED_TRACE(testing::Message() << "row [" << b << ", " << h << ", " << i << "] of "
                                  << describe(s));
  const auto got = [&](const auto& tensor) { return tensor.at(b, h, i, 0); };
  ASSERT_EQ(got(seen.visible), keys);
  if (keys == 0) {
    EXPECT_EQ(got(seen.key), -1);
    EXPECT_EQ(got(seen.max_score), -std::numeric_limits<T>::infinity());
    for (const auto* t : {&seen.max_weight, &seen.entropy, &seen.mean, &seen.variance,
                          &seen.squares, &seen.cubes, &seen.norm}) {
      EXPECT_EQ(got(*t), T{0});
    }
    return;
  }
  mean /= count;
  size /= count;
  double entropy = 0, entropy_error = 0, squares = 0, squares_error = 0, cubes = 0, cubes_error = 0;
  double variance = 0, variance_error = 0, distance = 0, of_key = -1;
  each([&](std::int64_t j, double p, double score, double r) {
    entropy -= p * std::log(p);
    entropy_error += p * r * (1 + std::fabs(std::log(p)));
    distance += p * (highest - score);
    squares += p * p;
    squares_error += 2 * p * p * r;
    cubes += p * p * p;
    cubes_error += 3 * p * p * p * r;
    variance += (score - mean) * (score - mean) / count;
    variance_error += 2 * std::fabs(score - mean) * r / count;
    if (j == got(seen.key)) of_key = p;
  });
  const double shift = score_error + folds * size;  // of the mean
  EXPECT_NEAR(got(seen.max_score), highest, score_error + 8 * kUnit * std::fabs(highest));
  EXPECT_NEAR(got(seen.max_weight), p_max, p_max * (score_error + folds));
  EXPECT_GE(of_key * (1 + 2 * score_error), p_max) << "key " << got(seen.key);
  EXPECT_NEAR(got(seen.entropy), entropy,
              entropy_error + folds * (1 + distance + std::fabs(std::log(p_max))));
  EXPECT_NEAR(got(seen.mean), mean, shift);
  EXPECT_NEAR(
      got(seen.variance), variance,
      variance_error + folds * variance + shift * shift + 2 * std::sqrt(variance) * folds * size);
  EXPECT_NEAR(got(seen.squares), squares, squares_error + 2 * folds * squares);
  EXPECT_NEAR(got(seen.cubes), cubes, cubes_error + 3 * folds * cubes);
  const double norm2 = squares - 2 * cubes + squares * squares;
  const double norm = got(seen.norm);
  EXPECT_NEAR(norm * norm, norm2,
              (1 + 2 * squares) * squares_error + 2 * cubes_error + 12 * folds * squares);
}

template <typename T>
void expect_statistics(const Call<T>& s) {
  const auto problem = problem_of(s);
  const auto answer = oracle::attention(problem, true);
  const Dims d = s.dims();
  const auto plain = run(s, {.lse = false});
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    const Seen<T> seen(s);
    EXPECT_TRUE(same_bits(seen.o, plain.o)) << "asking changed the output: " << describe(s);
    for (std::int64_t b = 0; b < d.batch; ++b)
      for (std::int64_t h = 0; h < d.heads; ++h)
        for (std::int64_t i = 0; i < d.queries; ++i) {
          expect_row(s, seen, answer, problem, b, h, i);
          if (testing::Test::HasFailure()) return;
        }
  }
}

template <typename T>
class statistics : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(statistics, Reals);

TYPED_TEST(statistics, are_those_of_the_full_weights_under_every_mask) {
  for (int masking = 0; masking < kMaskings; ++masking) {
    for (const Dims& dims : {Dims{2, 4, 2, 9, 40, 8, 3}, Dims{1, 2, 1, 5, 900, 16, 4},
                             Dims{1, 3, 1, 1, 900, 16, 16}, Dims{1, 2, 1, 2, 97, 32, 16}}) {
      Case c;
      c.dims = dims;
      c.masking = static_cast<Masking>(masking);
      c.seed = 300 + static_cast<std::uint64_t>(masking);
      expect_statistics(make<TypeParam>(c));
      if (this->HasFailure()) return;
    }
  }
}

TYPED_TEST(statistics, hold_for_saturated_uniform_and_shifted_scores) {
  // No sharper: a weight of 0 does not tell its score.
  for (const Values values :
       {Values::sharp, Values::q_zero, Values::k_equal_rows, Values::offset, Values::rising}) {
    Case c;
    c.dims = {1, 1, 1, 7, 800, 16, 2};
    c.values = values;
    c.seed = 400;
    expect_statistics(make<TypeParam>(c));
  }
}

TYPED_TEST(statistics, of_equal_keys_are_those_of_a_uniform_row) {
  auto s = plain_call<TypeParam>({1, 1, 1, 1, 1024, 4, 1}, 7);
  s.q.each([&](auto b, auto h, auto i, auto x) { s.q.at(b, h, i, x) = 0; });
  const Seen<TypeParam> seen(s);
  const double unit = sizeof(TypeParam) == 4 ? 0x1p-24 : 0x1p-53;
  EXPECT_EQ(seen.key.at(0, 0, 0, 0), 0) << "the lowest of equal keys";
  EXPECT_EQ(seen.max_weight.at(0, 0, 0, 0), TypeParam{1} / 1024);
  EXPECT_NEAR(seen.entropy.at(0, 0, 0, 0), std::log(1024.0), 8 * 8 * unit);
  EXPECT_EQ(heed::entropy_share(std::log(1024.0), 1024), 1.0);
  EXPECT_NEAR(heed::effective_keys(seen.entropy.at(0, 0, 0, 0)), 1024, 1024 * 64 * unit);
  EXPECT_NEAR(heed::mean_diagonal(seen.squares.at(0, 0, 0, 0), 1024), 1023.0 / 1024 / 1024, unit);
}

TYPED_TEST(statistics, have_the_same_bits_for_any_threads_and_instruction_set) {
  for (const Dims& dims : {Dims{1, 2, 1, 300, 1700, 16, 4}, Dims{1, 2, 1, 2, 1700, 16, 16}}) {
    Case c;
    c.dims = dims;
    c.masking = Masking::everything;
    c.seed = 9;
    const auto s = make<TypeParam>(c);
    const Seen<TypeParam> one(s);
    for (const int threads : thread_counts())
      EXPECT_TRUE(same_bits(one, Seen<TypeParam>(s, {.executor = nullptr, .threads = threads})))
          << threads << " threads: " << describe(s);
    if (sizeof(TypeParam) == 8) continue;  // float64 takes its library's 2^x
    for (const heed::Isa isa : runnable_isas()) {
      const Forced forced(isa);
      EXPECT_TRUE(same_bits(one, Seen<TypeParam>(s))) << heed::name_of(isa);
    }
  }
}

template <typename T>
void expect_same_where_threads_share(const Call<T>& s) {
  SCOPED_TRACE(describe(s));
  expect_same_where_64_threads_share([&](const auto& execution) { return Seen<T>(s, execution); });
}

TYPED_TEST(statistics, have_the_same_bits_for_any_threads_where_64_threads_share) {
  expect_same_where_threads_share(for_many_threads<TypeParam>(Masking::everything, 520, 330));
  Case few;  // rows, for which products of their own are taken; keys are not split over tasks
  few.dims = {1, 64, 64, 2, 3'000, 64, 32};
  few.masking = Masking::bias_finite;
  few.seed = 182;
  expect_same_where_threads_share(make<TypeParam>(few));
}

TEST(statistics_of_16_bits, have_the_same_bits_for_any_threads_where_64_threads_share) {
  for (const heed::DType dtype : {heed::DType::f16, heed::DType::bf16})
    for (const Masking masking : {Masking::none, Masking::everything})  // in pairs, and never so
      expect_same_where_threads_share(narrowed(for_many_threads<float>(masking, 520, 330), dtype));
}

/// Rows that fill no vector and, at sizes of whole vectors, those that have products of their own.
template <typename T>
std::vector<Call<T>> all_kinds() {
  return crossed<T>(
      {{2, 4, 2, 40, 900, 9, 5}, {2, 2, 1, 2, 900, 64, 64}, {2, 2, 2, 1, 900, 192, 128}},
      {Masking::none, Masking::everything}, 12);
}

/// Statistics are float32 there, too. By dot products of bfloat16 scores are other sums, with bits
/// of their own.
TEST(statistics_of_16_bits, are_those_of_float32_for_any_threads_and_instruction_set) {
  for (const heed::DType dtype : {heed::DType::f16, heed::DType::bf16})
    for (const Call<float>& s : all_kinds<float>()) {
      const Call<float> narrow = narrowed(s, dtype);
      const Seen<float> wide(nearest(s, dtype));
      for (const heed::Isa isa : isas_of(dtype)) {
        const Forced forced(isa);
        const Seen<float> one(narrow);
        EXPECT_TRUE(same_bits(one, Seen<float>(narrow, {.executor = nullptr, .threads = 4})));
        if (by_pairs(narrow)) continue;
        EXPECT_TRUE(same_bits(one, wide)) << heed::name_of(isa) << ": " << describe(narrow);
        EXPECT_TRUE(same_bits(one.o, nearest(wide.o, dtype))) << describe(narrow);
      }
    }
}

TYPED_TEST(statistics, have_the_same_bits_in_any_place_of_a_batch) {
  for (auto& s : all_kinds<TypeParam>()) {
    s.mod = Mod::none;  // it sees the entry's number
    const Seen<TypeParam> alone(with_batch(s, {1}));
    for (const std::size_t size : {2U, 5U})
      for (const std::size_t place : {std::size_t{0}, size - 1}) {
        std::vector<std::int64_t> entries(size, 0);
        entries[place] = 1;
        const Seen<TypeParam> together(with_batch(s, entries));
        EXPECT_TRUE(same_bits(gathered(together, 0, {static_cast<std::int64_t>(place)}), alone))
            << "place " << place << " of " << size << ": " << describe(s);
      }
  }
}

TYPED_TEST(statistics, of_a_row_are_the_same_alone_and_among_others) {
  for (const Dims& dims : {Dims{1, 1, 1, 130, 130, 16, 2}, Dims{1, 2, 1, 130, 900, 64, 64},
                           Dims{1, 2, 2, 130, 130, 192, 128}}) {
    auto all = plain_call<TypeParam>(dims, 10);
    all.causal = true;
    const Seen<TypeParam> together(all);
    for (const std::int64_t count : {1, 2, 5, 17})
      for (const std::int64_t first : {0, 1, 63, 64, 95, 96, 97, 113}) {
        const auto rows = range(first, first + count);
        EXPECT_TRUE(
            same_bits(Seen<TypeParam>(with_queries(all, rows, true)), gathered(together, 2, rows)))
            << count << " rows from " << first << ": " << describe(all);
      }
  }
}

TYPED_TEST(statistics, have_the_same_bits_in_any_layout) {
  for (const auto& base : all_kinds<TypeParam>()) {
    const Seen<TypeParam> contiguous(base);
    for (int n = 0; n < kLayouts; ++n) {
      const auto layout = static_cast<Layout>(n);
      if (!writable(layout)) continue;  // these hold other numbers
      Call<TypeParam> s = base;
      for (auto* t : {&s.q, &s.k, &s.v}) *t = laid_out(*t, layout);
      EXPECT_TRUE(same_bits(Seen<TypeParam>(s, {.threads = 1}, layout), contiguous))
          << name_of(layout) << ": " << describe(s);
    }
  }
}

TYPED_TEST(statistics, have_the_same_bits_with_masked_keys_at_the_end) {
  for (const Dims& d : {Dims{1, 2, 1, 9, 0, 6, 7}, Dims{1, 2, 2, 1, 0, 64, 32}})
    for (const auto& [keys, more] :
         {std::pair{1, 1}, std::pair{95, 97}, std::pair{700, 96}, std::pair{768, 1025}}) {
      auto s = plain_call<TypeParam>(
          {1, d.heads, d.kv_heads, d.queries, keys, d.size, d.value_size}, 11);
      s.query_start = {keys - d.queries};  // a window to the right ends with the last key
      const Seen<TypeParam> alone(s);
      for (int n = 0; n < kHidings; ++n) {
        const auto how = static_cast<Hiding>(n);
        const Seen<TypeParam> hidden(with_hidden_keys(s, more, how, TypeParam(1e30)));
        EXPECT_TRUE(
            same_bits(hidden, how == Hiding::window ? gathered(alone, 2, {d.queries - 1}) : alone))
            << more << " keys after, hidden in way " << n << ": " << describe(s);
      }
    }
}

TYPED_TEST(statistics, of_keys_masked_by_the_least_number_are_those_of_the_others) {
  // What padding often looks like: finite, and so far down that nothing is left of its weight.
  const TypeParam least = std::numeric_limits<TypeParam>::lowest();
  auto masked = plain_call<TypeParam>({1, 1, 1, 2, 1000, 8, 1}, 11);
  auto cut = masked;
  masked.bias = Tensor<double>({1, 1, 1, 1000});
  for (std::int64_t j = 0; j < 1000; ++j) masked.bias.at(0, 0, 0, j) = j < 800 ? least : 0;
  cut.left = 199;  // from position 999 on
  cut.query_start = {999};
  const Seen<TypeParam> a(masked), b(cut);
  EXPECT_EQ(a.visible.at(0, 0, 0, 0), 1000) << "a finite score is visible";
  // The second row of `cut` sits one position further and sees one key less.
  EXPECT_NEAR(a.entropy.at(0, 0, 0, 0), b.entropy.at(0, 0, 0, 0), 1e-5);
  EXPECT_NEAR(a.norm.at(0, 0, 0, 0), b.norm.at(0, 0, 0, 0), 1e-5);
  masked.bias.each([&](auto bb, auto h, auto i, auto j) { masked.bias.at(bb, h, i, j) = least; });
  masked.sinks = {0.0};
  EXPECT_EQ(Seen<TypeParam>(masked).entropy.at(0, 0, 0, 0), 0) << "the sink has all the weight";
}

/// The mean of scores of finfo.min is -inf, which a block that shows the row nothing leaves alone:
/// rows beside it in the call, and how many a tile has, decide whether there are such blocks.
TYPED_TEST(statistics, that_overflow_are_the_same_alone_and_among_others) {
  using T = TypeParam;
  auto s = plain_call<T>({1, 1, 1, 40, 130, 8, 1}, 13);
  s.causal = true;
  s.query_start = {80};  // row 0 ends in the first block of keys, the last row in the second
  s.bias = Tensor<double>({1, 1, 40, 130});
  s.bias.each([&](auto b, auto h, auto row, auto key) {
    s.bias.at(b, h, row, key) = row == 0 ? std::numeric_limits<T>::lowest() : 0;
  });
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    const Seen<T> together(s);
    EXPECT_TRUE(same_bits(Seen<T>(with_queries(s, {0}, true)), gathered(together, 2, {0})))
        << heed::name_of(isa);
    EXPECT_EQ(together.mean.at(0, 0, 0, 0), -std::numeric_limits<T>::infinity());
    EXPECT_EQ(together.variance.at(0, 0, 0, 0), std::numeric_limits<T>::infinity());
  }
}

/// Blocks of 96 keys whose means have overflowed are joined to one another and to others.
TYPED_TEST(statistics, that_overflow_are_infinite_however_many_keys_there_are) {
  using T = TypeParam;
  constexpr T kInf = std::numeric_limits<T>::infinity();
  constexpr double kLeast = std::numeric_limits<T>::lowest();
  constexpr double kLarge = std::numeric_limits<T>::max() / T{30};
  for (const std::int64_t keys : {96, 97, 192, 300, 900})
    for (const auto& biases :
         {std::pair{kLeast, kLeast}, std::pair{0.0, kLeast}, std::pair{kLeast, 0.0},
          std::pair{kLarge, kLarge}, std::pair{kLarge, 0.0}, std::pair{kLeast, kLarge}}) {
      const double first = biases.first;
      const double last = biases.second;
      auto s = plain_call<T>({1, 1, 1, 20, keys, 8, 1}, 14);
      s.bias = Tensor<double>({1, 1, 1, keys});
      for (std::int64_t j = 0; j < keys; ++j) s.bias.at(0, 0, 0, j) = j < keys / 2 ? first : last;
      for (const heed::Isa isa : runnable_isas()) {
        const Forced forced(isa);
        const Seen<T> seen(s);
        EXPECT_TRUE(same_bits(Seen<T>(with_queries(s, {3}, true)), gathered(seen, 2, {3})));
        seen.mean.each([&](auto b, auto h, auto i, auto x) {
          EXPECT_EQ(std::fabs(seen.mean.at(b, h, i, x)), kInf)
              << heed::name_of(isa) << ", " << keys << " keys, " << first << " and " << last;
          EXPECT_EQ(seen.variance.at(b, h, i, x), kInf);
        });
      }
    }
}

/// Products below the least number are zeros of their sign, and lanes meet them in another order
/// than keys one by one.
TYPED_TEST(statistics, of_zeros_of_both_signs_are_the_same_in_any_order) {
  using T = TypeParam;
  constexpr T kTiny = std::numeric_limits<T>::min();
  for (const std::int64_t keys : {2, 16, 40, 200})
    for (const std::int64_t first : {0, 1, 2}) {  // which of three keys in a row is negative
      Call<T> s = plain_call<T>({1, 1, 1, 20, keys, 32, 5}, 79);
      s.scale = {-1};
      s.q.each([&](auto b, auto h, auto i, auto x) { s.q.at(b, h, i, x) = kTiny; });
      s.k.each([&](auto b, auto h, auto j, auto x) {
        s.k.at(b, h, j, x) = j % 3 == first ? -kTiny : kTiny;
      });
      for (const heed::Isa isa : runnable_isas()) {
        const Forced forced(isa);
        for (const std::int64_t queries : {1, 20})
          for (const auto order : {heed::DecodeOrder::of_prefill, heed::DecodeOrder::key_by_key}) {
            const Seen<T> seen(with_queries(s, range(0, queries), false),
                               {.threads = 1, .decode_order = order});
            for (const Tensor<T>* zero : {&seen.max_score, &seen.mean, &seen.variance}) {
              const T value = zero->at(0, 0, 0, 0);
              EXPECT_TRUE(value == 0 && !std::signbit(value))
                  << zero - &seen.max_score << ": " << value << ", " << heed::name_of(isa) << ", "
                  << queries << " of " << describe(s);
            }
          }
      }
    }
}

/// The mean of -eta and 0, half of the smallest number, is lost and -0: a second block of keys, of
/// which one row sees one, adds 0 to it for the others of its tile alone.
TYPED_TEST(statistics, of_scores_whose_mean_is_lost_have_zeros_without_a_sign) {
  using T = TypeParam;
  Call<T> s = plain_call<T>({1, 1, 1, 40, 200, 1, 1}, 81);
  s.scale = {1};
  s.q.each([&](auto b, auto h, auto i, auto x) { s.q.at(b, h, i, x) = 1; });
  s.k.each([&](auto b, auto h, auto j, auto x) { s.k.at(b, h, j, x) = 0; });
  s.k.at(0, 0, 0, 0) = -std::numeric_limits<T>::denorm_min();
  s.keep = Tensor<std::uint8_t>({1, 1, 40, 200});
  s.keep.each([&](auto b, auto h, auto i, auto j) {
    s.keep.at(b, h, i, j) = j < 2 || (i == 9 && j == 100);
  });
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    const Seen<T> seen(s);
    for (std::int64_t i = 0; i < 40; ++i) {
      const T mean = seen.mean.at(0, 0, i, 0);
      EXPECT_TRUE(mean == 0 && !std::signbit(mean)) << heed::name_of(isa) << ", row " << i;
    }
  }
}

TYPED_TEST(statistics, of_one_key_have_zeros_without_a_sign) {
  const auto s = plain_call<TypeParam>({1, 1, 1, 20, 1, 4, 1}, 80);
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    const Seen<TypeParam> seen(s);
    for (const Tensor<TypeParam>* zero : {&seen.entropy, &seen.variance, &seen.norm}) {
      const TypeParam value = zero->at(0, 0, 0, 0);
      EXPECT_TRUE(value == 0 && !std::signbit(value)) << value << ", " << heed::name_of(isa);
    }
  }
}

/// An infinite score makes its row NaN, and so does a sink: not only what is made of weights.
TYPED_TEST(statistics, of_a_row_that_is_nan_are_nan_whatever_made_it_so) {
  using T = TypeParam;
  constexpr double kInf = std::numeric_limits<double>::infinity();
  auto by_sink = plain_call<T>({1, 1, 1, 3, 200, 8, 2}, 14);
  by_sink.sinks = {kInf};
  auto by_score = plain_call<T>({1, 1, 1, 3, 200, 8, 2}, 14);
  by_score.bias = Tensor<double>({1, 1, 1, 200});
  for (std::int64_t j = 0; j < 200; ++j) by_score.bias.at(0, 0, 0, j) = j == 199 ? kInf : 0;
  for (const auto& s : {by_sink, by_score}) {
    const Seen<T> seen(s);
    for (std::int64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(seen.key.at(0, 0, i, 0), -1);
      EXPECT_EQ(seen.visible.at(0, 0, i, 0), 200);
      for (const auto* t : {&seen.max_score, &seen.max_weight, &seen.entropy, &seen.mean,
                            &seen.variance, &seen.squares, &seen.cubes, &seen.norm})
        EXPECT_TRUE(std::isnan(t->at(0, 0, i, 0))) << describe(s);
    }
  }
}

/// Scores that are all -infinity are as none, but the keys are seen.
TYPED_TEST(statistics, of_a_row_of_no_finite_score_are_those_of_an_empty_row_whatever_its_sink) {
  using T = TypeParam;
  constexpr double kInf = std::numeric_limits<double>::infinity();
  auto s = plain_call<T>({1, 1, 1, 2, 70, 8, 2}, 14);
  s.q.each([&](auto b, auto h, auto i, auto x) { s.q.at(b, h, i, x) = 1; });
  s.k.each([&](auto b, auto h, auto j, auto x) { s.k.at(b, h, j, x) = static_cast<T>(-kInf); });
  for (const double sink : {-kInf, 0.5, kInf, std::numeric_limits<double>::quiet_NaN()}) {
    s.sinks = {sink};
    const Seen<T> seen(s);
    for (std::int64_t i = 0; i < 2; ++i) {
      EXPECT_EQ(seen.key.at(0, 0, i, 0), -1) << sink;
      EXPECT_EQ(seen.visible.at(0, 0, i, 0), 70) << sink;
      EXPECT_EQ(seen.max_score.at(0, 0, i, 0), -kInf) << sink;
      for (const auto* t : {&seen.max_weight, &seen.entropy, &seen.mean, &seen.variance,
                            &seen.squares, &seen.cubes, &seen.norm})
        EXPECT_EQ(t->at(0, 0, i, 0), 0) << sink;
    }
  }
}

TYPED_TEST(statistics, are_nan_where_a_row_attends_to_nan_and_only_there) {
  auto s = plain_call<TypeParam>({1, 1, 1, 3, 5, 4, 1}, 8);
  s.q.at(0, 0, 1, 2) = std::numeric_limits<TypeParam>::quiet_NaN();
  const Seen<TypeParam> seen(s);
  EXPECT_EQ(seen.key.at(0, 0, 1, 0), -1);
  EXPECT_EQ(seen.visible.at(0, 0, 1, 0), 5);
  for (const auto* t : {&seen.max_score, &seen.max_weight, &seen.entropy, &seen.mean,
                        &seen.variance, &seen.squares, &seen.cubes, &seen.norm}) {
    EXPECT_TRUE(std::isfinite(t->at(0, 0, 0, 0)));
    EXPECT_TRUE(std::isnan(t->at(0, 0, 1, 0))) << t->at(0, 0, 1, 0);
    EXPECT_TRUE(std::isfinite(t->at(0, 0, 2, 0)));
  }
}

}  // namespace
}  // namespace heed_test

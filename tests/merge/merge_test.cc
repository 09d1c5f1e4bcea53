// Merging: parts of the keys, computed apart, are attention over all keys; empty parts change no
// bit.
// Method: the oracle over all keys and over each part gives truth and tolerance; bits are compared
// for identities and instruction sets. Threads, layouts and company: bits_test.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "forward/executors.h"
#include "forward/guarded.h"
#include "merged.h"

namespace heed_test {
namespace {

template <typename T>
constexpr T kInf = std::numeric_limits<T>::infinity();

/// The call over each of the parts between the cuts; a sink belongs to the first.
template <typename T>
std::vector<Call<T>> cut(const Call<T>& call, const std::vector<std::int64_t>& cuts) {
  std::vector<Call<T>> parts;
  for (std::size_t n = 0; n + 1 < cuts.size(); ++n) {
    Call<T> part = with_keys(call, range(cuts[n], cuts[n + 1]));
    if (n > 0) part.sinks = {};
    if (part.dims().keys == 0) part.keep = part.drop = {}, part.bias = {};
    part.rank = 4;
    parts.push_back(part);
  }
  return parts;
}

/// docs/numerics.md, "Merging": with the weights a_p = e^(lse_p - lse) of P parts, d_p = m - lse_p,
/// and the parts' own bounds delta_p and epsilon_p.
template <typename T>
testing::AssertionResult within_merge_bounds(const Result<T>& got, const oracle::Answer& whole,
                                             const std::vector<oracle::Answer>& parts,
                                             std::int64_t value_size) {
  const double u = std::numeric_limits<T>::epsilon() / 2;
  const double tiny = sizeof(T) == 4 ? 0x1p-126 : 0x1p-1022;
  const auto count = static_cast<double>(parts.size());
  std::size_t row = 0;
  auto result = testing::AssertionSuccess();
  got.lse.each([&](auto b, auto h, auto i, auto) {
    double m = -kInf<double>, error = 0;
    for (const auto& part : parts) m = std::max(m, part.lse.value[row]);
    const double lse = whole.lse.value[row];
    for (const auto& part : parts) {
      if (part.lse.value[row] != -kInf<double>)
        error += std::exp(part.lse.value[row] - lse) * part.lse.bound[row];
    }
    const auto check = [&](const char* name, T value, double truth, double bound) {
      const double off = std::fabs(static_cast<double>(value) - truth);
      // Of a row without keys truth is -inf, and so is the bound infinite.
      if (!result || static_cast<double>(value) == truth || (std::isfinite(off) && off <= bound))
        return;
      result = testing::AssertionFailure();
      result << name << "[" << b << ", " << h << ", " << i << "] = " << value << ", truth " << truth
             << ", error " << static_cast<double>(value) - truth << ", bound " << bound;
    };
    check("lse", got.lse.at(b, h, i, 0), lse,
          error + u * (std::fabs(lse) + std::fabs(m) + 4 * count + 4));
    for (std::int64_t x = 0; x < value_size; ++x) {
      const std::size_t at =
          row * static_cast<std::size_t>(value_size) + static_cast<std::size_t>(x);
      double bound = 0;
      for (const auto& part : parts) {
        if (part.lse.value[row] == -kInf<double>) continue;
        const double a = std::exp(part.lse.value[row] - lse), d = m - part.lse.value[row];
        const double o = std::fabs(part.o.value[at]);
        bound += a * part.o.bound[at] + a * o * (part.lse.bound[row] + error) +
                 u * a * o * (3 * d + 4 * count + 8) + tiny * o;
      }
      check("output", got.o.at(b, h, i, x), whole.o.value[at], bound + tiny);
    }
    ++row;
  });
  return result;
}

template <typename T>
void expect_whole(const Call<T>& call, const std::vector<std::int64_t>& cuts) {
  const auto calls = cut(call, cuts);
  const oracle::Answer whole = oracle::attention(problem_of(call), false);
  std::vector<oracle::Answer> truths;
  for (const auto& part : calls) truths.push_back(oracle::attention(problem_of(part), false));
  std::optional<Result<T>> first;
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    std::vector<Result<T>> parts;
    for (const auto& part : calls) parts.push_back(run(part));
    const Result<T> all = merged(parts);
    EXPECT_TRUE(within_merge_bounds(all, whole, truths, call.dims().value_size))
        << heed::name_of(isa) << ", " << calls.size() << " parts: " << describe(call);
    if (first && sizeof(T) == 4) {
      EXPECT_TRUE(same_bits(all, *first)) << heed::name_of(isa);
    }
    if (!first) first = all;
  }
}

template <typename T>
void expect_whole_everywhere() {
  std::vector<Masking> maskings = placeless();
  Random random(51);
  for (auto drawn = draws(25); drawn; ++drawn) {
    Call<T> call = random_call<T>(random, maskings);
    call.rank = 4;
    call.q = laid_out(call.q, Layout::bhtd);
    const std::int64_t keys = call.dims().keys;
    std::vector<std::int64_t> cuts{0};
    for (std::int64_t parts = random.between(0, 4); parts > 0; --parts) {
      cuts.push_back(random.between(0, keys));
    }
    cuts.push_back(keys);
    std::sort(cuts.begin(), cuts.end());
    expect_whole(call, cuts);
  }
}

TEST(merge, of_parts_is_attention_over_all_keys_in_float32) { expect_whole_everywhere<float>(); }
TEST(merge, of_parts_is_attention_over_all_keys_in_float64) { expect_whole_everywhere<double>(); }

/// The calls that begin and end at multiples of what one split of keys is, 1 to 17 of them, some of
/// them of no key: within the bounds like any others. Their bits are not those of the whole call,
/// which keeps (m, l, O) in base 2 and divides once; docs/numerics.md, section 5, promises none.
template <typename T>
void expect_split_parts() {
  constexpr std::int64_t kSplit = 768;
  int with_other_bits = 0;
  for (const std::int64_t parts : {1, 2, 3, 4, 5, 8, 16, 17}) {
    const auto seed = static_cast<std::uint64_t>(80 + parts);
    const Call<T> call = plain_call<T>({1, 2, 1, 3, parts * kSplit - 5, 16, 16}, seed);
    std::vector<std::int64_t> cuts = range(0, parts + 1);
    for (std::int64_t& cut : cuts) cut *= kSplit;
    cuts.back() -= 5;
    if (parts > 2) cuts[2] = cuts[1];  // nothing between them, and twice as much behind
    expect_whole(call, cuts);
    std::vector<Result<T>> results;
    for (const auto& part : cut(call, cuts)) results.push_back(run(part));
    const bool same = same_bits(merged(results), run(call));
    if (parts == 1) {
      EXPECT_TRUE(same);
    }
    with_other_bits += !same;
  }
  EXPECT_GT(with_other_bits, 0) << "promise it in docs/numerics.md";
}

TEST(merge, of_whole_splits_is_within_bounds_and_has_other_bits) {
  expect_split_parts<float>();
  expect_split_parts<double>();
}

// Parts whose lse lie hundreds apart, as of keys that hardly matter beside others.
TEST(merge, weighs_parts_that_lie_far_apart) {
  expect_whole(plain_call<float>({1, 2, 1, 9, 300, 16, 8}, 7, 60), {0, 3, 100, 101, 300});
}

TEST(merge, of_a_lone_key_and_of_parts_without_one) {
  expect_whole(plain_call<float>({1, 2, 1, 3, 1, 8, 8}, 9), {0, 0, 1, 1});
  expect_whole(plain_call<double>({1, 2, 1, 3, 1, 8, 8}, 9), {0, 0, 1, 1});
}

template <typename T>
void expect_identity() {
  const Result<T> part = run(plain_call<T>({2, 4, 2, 5, 130, 8, 7}, 3));
  Result<T> empty = part;  // an output that nobody may look at
  empty.o.each([&](auto b, auto h, auto i, auto x) { empty.o.at(b, h, i, x) = std::nan(""); });
  empty.lse.each([&](auto b, auto h, auto i, auto x) { empty.lse.at(b, h, i, x) = -kInf<T>; });
  EXPECT_TRUE(same_bits(merged<T>({part}), part));
  EXPECT_TRUE(same_bits(merged<T>({part, empty}), part));
  EXPECT_TRUE(same_bits(merged<T>({empty, empty, part, empty}), part));
  const Result<T> other = run(plain_call<T>({2, 4, 2, 5, 30, 8, 7}, 4));
  EXPECT_TRUE(same_bits(merged<T>({part, empty, other}), merged<T>({part, other})));
  EXPECT_FALSE(same_bits(merged<T>({part, other}), part));
  const Result<T> nothing = merged<T>({empty, empty});
  nothing.lse.each([&](auto b, auto h, auto i, auto) {
    EXPECT_EQ(nothing.lse.at(b, h, i, 0), -kInf<T>);
    for (std::int64_t x = 0; x < 7; ++x) {
      EXPECT_EQ(nothing.o.at(b, h, i, x), 0);
      EXPECT_FALSE(std::signbit(nothing.o.at(b, h, i, x)));
    }
  });
}

TEST(merge, with_an_empty_part_changes_no_bit) {
  expect_identity<float>();
  expect_identity<double>();
}

// The sign of a zero in O is that part's; lse has none, as in every call.
TEST(merge, with_an_empty_part_keeps_zeros_and_makes_those_of_lse_positive) {
  Result<float> part = run(plain_call<float>({1, 1, 1, 3, 40, 8, 4}, 5));
  part.o.at(0, 0, 1, 2) = -0.0F;
  part.lse.at(0, 0, 1, 0) = -0.0F;
  Result<float> empty = part;
  empty.lse.each([&](auto b, auto h, auto i, auto x) { empty.lse.at(b, h, i, x) = -kInf<float>; });
  Result<float> expected = part;
  expected.lse.at(0, 0, 1, 0) = 0.0F;
  EXPECT_TRUE(same_bits(merged<float>({part}), expected));
  EXPECT_TRUE(same_bits(merged<float>({empty, part}), expected));
  EXPECT_FALSE(same_bits(merged<float>({part}), part));
}

TEST(merge, stays_on_the_calling_thread_where_it_reads_fewer_than_2_18_elements) {
  constexpr std::int64_t kSize = 64;
  const auto tasks_of = [](std::size_t parts, std::int64_t rows) {
    Tensor<float> o({1, 1, rows, kSize}), lse({1, 1, rows, 1}), to({1, 1, rows, kSize});
    const std::vector<heed::AttentionPart> views(parts, {o.view(), without_last_axis(lse.view())});
    Backwards executor;
    heed::merge(views, {.output = to.out()}, {.executor = &executor});
    return executor.ran;
  };
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    for (const std::size_t parts : {1U, 2U, 3U, 7U}) {
      const std::int64_t most =
          ((1 << 18) - 1) / (static_cast<std::int64_t>(parts) * (kSize + 1));  // rows
      EXPECT_EQ(tasks_of(parts, most), 0) << parts;
      EXPECT_GE(tasks_of(parts, most + 1), 2) << parts;
    }
  }
}

TEST(merge, keeps_nan_and_infinity_where_they_belong) {
  Result<float> a = run(plain_call<float>({1, 1, 1, 6, 40, 8, 4}, 5));
  Result<float> b = run(plain_call<float>({1, 1, 1, 6, 40, 8, 4}, 6));
  const Result<float> clean = merged<float>({a, b});
  a.o.at(0, 0, 1, 2) = std::nanf("");    // one column of row 1
  b.lse.at(0, 0, 2, 0) = std::nanf("");  // all of row 2
  a.lse.at(0, 0, 3, 0) = kInf<float>;    // all of row 3
  b.o.at(0, 0, 4, 0) = kInf<float>;      // one column of row 4
  a.o.at(0, 0, 5, 1) = std::nanf("");    // weighs nothing beside b, and is attended all the same
  a.lse.at(0, 0, 5, 0) = b.lse.at(0, 0, 5, 0) - 500;
  const Result<float> got = merged<float>({a, b});
  for (std::int64_t i = 0; i < 6; ++i) {
    const bool row = i == 2 || i == 3;
    EXPECT_EQ(std::isnan(got.lse.at(0, 0, i, 0)), row) << i;
    for (std::int64_t x = 0; x < 4; ++x) {
      const bool place = row || (i == 1 && x == 2) || (i == 5 && x == 1);
      EXPECT_EQ(std::isnan(got.o.at(0, 0, i, x)), place) << i << ", " << x;
      if (!place && i < 5 && !(i == 4 && x == 0)) {
        EXPECT_EQ(got.o.at(0, 0, i, x), clean.o.at(0, 0, i, x));
      }
    }
  }
  EXPECT_EQ(got.o.at(0, 0, 4, 0), kInf<float>);
}

/// The bytes of `plain`, written by heed::merge from copies of the parts that lie between
/// unreadable pages.
void expect_same_between_pages(const std::vector<heed::AttentionPart>& parts,
                               const heed::MergeOutputs& plain, bool at_end) {
  heed::merge(parts, plain);
  GuardedCopies copies(at_end);
  std::vector<heed::AttentionPart> views;
  for (const auto& part : parts) views.push_back({copies.of(part.output), copies.of(part.lse)});
  const heed::MergeOutputs outputs{.output = copies.of(plain.output), .lse = copies.of(plain.lse)};
  heed::merge(views, outputs);
  const auto different = [](const heed::TensorView& got, const heed::TensorView& want) {
    int count = 0;
    each_element(got, want, [&](const std::byte* x, const std::byte* y) {
      count += std::memcmp(x, y, heed::size_of(want.dtype)) != 0;
    });
    return count;
  };
  EXPECT_EQ(different(outputs.output, plain.output), 0);
  EXPECT_EQ(different(outputs.lse, plain.lse), 0);
}

/// f(the outputs of three parts, at the end of their memory or not) on each instruction set, for
/// sizes around whole vectors.
template <typename T, typename F>
void each_guarded_merge(const F& f) {
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    for (const std::int64_t size : {1, 3, 7, 8, 15, 16, 17, 31, 32, 64, 65})
      for (const std::int64_t rows : {1, 3, 17, 65}) {
        SCOPED_TRACE(testing::Message() << size << " columns, " << rows << " rows");
        std::vector<Result<T>> parts;
        for (const std::uint64_t seed : {1, 2, 3})
          parts.push_back(run(plain_call<T>({1, 2, 1, rows, 5, 4, size}, seed)));
        for (const bool at_end : {false, true}) f(parts, at_end);
      }
  }
}

template <typename T>
void expect_nothing_beyond() {
  each_guarded_merge<T>([](const std::vector<Result<T>>& parts, bool at_end) {
    std::vector<heed::AttentionPart> views;
    for (const Result<T>& part : parts)
      views.push_back({part.o.view(), without_last_axis(part.lse.view())});
    Result<T> to = parts[0];  // lends its shapes
    expect_same_between_pages(views, {.output = to.o.out(), .lse = without_last_axis(to.lse.out())},
                              at_end);
  });
}

TEST(merge, touches_nothing_beyond_a_tensor_and_writes_no_part) {
  expect_nothing_beyond<float>();
  expect_nothing_beyond<double>();
}

TEST(merge, touches_nothing_beyond_a_tensor_of_sixteen_bits) {
  for (const heed::DType dtype : {heed::DType::f16, heed::DType::bf16}) {
    each_guarded_merge<float>([&](const std::vector<Result<float>>& parts, bool at_end) {
      std::vector<Halves> halves;
      for (const auto& part : parts) halves.emplace_back(nearest(part.o, dtype), dtype);
      std::vector<heed::AttentionPart> views;
      for (std::size_t n = 0; n < parts.size(); ++n)
        views.push_back({halves[n].view(4), without_last_axis(parts[n].lse.view())});
      Halves o(parts[0].o.shape, Layout::bhtd, dtype);
      Tensor<float> lse(parts[0].lse.shape);
      expect_same_between_pages(views, {.output = o.out(4), .lse = without_last_axis(lse.out())},
                                at_end);
    });
  }
}

// A prefix that all sequences share is one call whose query rows are those of all of them; each
// sequence's own keys are another. Against one call whose keys are repeated for each sequence.
TEST(merge, serves_a_prefix_computed_once_for_all_sequences) {
  constexpr std::int64_t kSequences = 5, kHeads = 4, kKvHeads = 2, kPrefix = 900, kOwn = 70,
                         kD = 16;
  Call<float> whole =
      plain_call<float>({kSequences, kHeads, kKvHeads, 1, kPrefix + kOwn, kD, kD}, 9);
  for (std::int64_t s = 1; s < kSequences; ++s) {
    for (std::int64_t h = 0; h < kKvHeads; ++h)
      for (std::int64_t j = 0; j < kPrefix; ++j)
        for (std::int64_t x = 0; x < kD; ++x) {
          whole.k.at(s, h, j, x) = whole.k.at(0, h, j, x);
          whole.v.at(s, h, j, x) = whole.v.at(0, h, j, x);
        }
  }
  const auto calls = cut(whole, {0, kPrefix, kPrefix + kOwn});
  std::vector<Result<float>> parts{run(calls[0]), run(calls[1])};
  const Result<float> apart = merged<float>(parts);

  // Sequences are the query rows of one batch entry: [S, H, 1, D] seen as [1, H, S, D].
  Tensor<float> o({kSequences, kHeads, 1, kD}), lse({kSequences, kHeads, 1, 1});
  const auto rows = [](auto view) {
    view.shape = {1, view.shape[1], view.shape[0], view.shape[3]};
    view.stride = {0, view.stride[1], view.stride[0], view.stride[3]};
    return view;
  };
  heed::TensorView lse_rows = rows(lse.out());
  --lse_rows.rank;
  const Call<float> prefix = with_batch(calls[0], {0});
  heed::attention_forward(rows(whole.q.view()), prefix.k.view(), prefix.v.view(),
                          {.output = rows(o.out()), .lse = lse_rows});
  parts[0] = {o, lse, {}};
  EXPECT_TRUE(same_bits(merged<float>(parts), apart));
  const oracle::Answer truth = oracle::attention(problem_of(whole), false);
  EXPECT_TRUE(within_merge_bounds(apart, truth,
                                  {oracle::attention(problem_of(calls[0]), false),
                                   oracle::attention(problem_of(calls[1]), false)},
                                  kD));
}

TEST(merge, says_what_does_not_fit_before_it_writes) {
  std::vector<float> numbers(64, 1.0F), out(64, 7.0F);
  const auto in = [&](std::initializer_list<std::int64_t> shape) {
    return heed::view(static_cast<const float*>(numbers.data()), shape);
  };
  const auto to = [&](std::initializer_list<std::int64_t> shape) {
    return heed::view(out.data(), shape);
  };
  const auto message = [&](const std::vector<heed::AttentionPart>& parts,
                           const heed::MergeOutputs& outputs) -> std::string {
    try {
      heed::merge(parts, outputs);
    } catch (const heed::Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  const heed::AttentionPart good{in({2, 3, 4}), in({2, 3})};
  EXPECT_EQ(message({}, {.output = to({2, 3, 4})}), "merge: there are 0 parts; expected 1 or more");
  EXPECT_EQ(message({good, {in({2, 3, 4}), {}}}, {.output = to({2, 3, 4})}),
            "merge: parts[1].lse is absent; expected a view to read from");
  EXPECT_EQ(message({good, {in({2, 3, 5}), in({2, 3})}}, {.output = to({2, 3, 4})}),
            "merge: parts[1].output has shape [2, 3, 5]; expected [2, 3, 4]");
  EXPECT_EQ(message({good}, {.output = {}}),
            "merge: output is absent; expected a view to write to");
  EXPECT_EQ(message({good}, {.output = to({2, 3, 4}), .lse = to({2, 4})}),
            "merge: lse has shape [2, 4]; expected [2, 3]");
  const std::vector<double> wide(64);
  EXPECT_EQ(
      message({good, {heed::view(wide.data(), {2, 3, 4}), in({2, 3})}}, {.output = to({2, 3, 4})}),
      "merge: parts[1].output is float64; expected float32, the type of parts[0].output");
  EXPECT_EQ(message({{heed::view(numbers.data(), heed::DType::i32, {2, 3, 4}), in({2, 3})}},
                    {.output = to({2, 3, 4})}),
            "merge: parts[0].output is int32; expected float16, bfloat16, float32 or float64");
  EXPECT_EQ(message({{heed::view(numbers.data(), heed::DType::f16, {2, 3, 4}), in({2, 3})}},
                    {.output = to({2, 3, 4})}),
            "merge: output is float32; expected float16, the type of parts[0].output");
  EXPECT_EQ(
      message({{in({4}), in({4})}}, {.output = to({4})}),
      "merge: parts[0].output has rank 1; expected 2 [T, Dv], 3 [B, T, Dv] or 4 [B, H, T, Dv]");
  EXPECT_EQ(message({{to({2, 3, 4}), in({2, 3})}}, {.output = to({2, 3, 4})}),
            "merge: output overlaps parts[0].output in memory; expected memory of its own");
  for (const float x : out) EXPECT_EQ(x, 7.0F);
}

/// However long they are: there is nothing to divide among tasks.
TEST(merge, of_no_rows_at_all_does_nothing) {
  float none = 7;
  for (const std::int64_t size : {std::int64_t{0}, std::int64_t{3}, (std::int64_t{1} << 58) - 1}) {
    const auto output = heed::view(&none, {0, size});
    const auto lse = heed::view(&none, {0});
    float result = 7;
    heed::merge(output, lse, output, lse, {.output = heed::view(&result, {0, size})});
    EXPECT_EQ(result, 7);
  }
}

/// However many they are: only lse has anything to be merged.
TEST(merge, of_rows_without_values_does_nothing_but_lse) {
  const float one = 1, two = 2;
  float none = 7;
  const std::int64_t rows = std::int64_t{1} << 40;
  const heed::ConstTensorView lse{&one, heed::DType::f32, 1, {rows}, {0}};
  const auto output = heed::view(&none, {rows, 0});
  heed::merge(output, lse, output, lse, {.output = output});
  float merged = 0;
  const auto row = heed::view(&none, {1, 0});
  heed::merge(row, heed::view(&one, {1}), row, heed::view(&two, {1}),
              {.output = row, .lse = heed::view(&merged, {1})});
  EXPECT_NEAR(merged, std::log(std::exp(1.0) + std::exp(2.0)), 1e-6);
  EXPECT_EQ(none, 7);
}

/// Outputs of 16 bits are widened, and the result rounded once; lse stays float32.
TEST(merge, of_sixteen_bits_has_the_bits_of_float32_rounded_once) {
  for (const heed::DType dtype : {heed::DType::f16, heed::DType::bf16}) {
    std::vector<Result<float>> parts;
    std::vector<Halves> halves;
    std::vector<heed::AttentionPart> views;
    for (const std::uint64_t seed : {5, 6, 7}) {
      parts.push_back(run(plain_call<float>({2, 2, 1, 5, 40, 8, 13}, seed)));
      parts.back().o = nearest(parts.back().o, dtype);
      halves.emplace_back(parts.back().o, dtype, seed % 2);
    }
    parts[1].lse.at(1, 1, 2, 0) = -kInf<float>;
    for (std::size_t n = 0; n < parts.size(); ++n) {
      views.push_back({halves[n].view(4), without_last_axis(parts[n].lse.view())});
    }
    for (const heed::Isa isa : runnable_isas()) {
      const Forced forced(isa);
      Halves o(parts[0].o.shape, Layout::bthd, dtype);
      Tensor<float> lse(parts[0].lse.shape);
      heed::merge(views, {.output = o.out(4), .lse = without_last_axis(lse.out())});
      const Result<float> wide = merged(parts);
      EXPECT_TRUE(same_bits(o.written("output"), nearest(wide.o, dtype)));
      EXPECT_TRUE(same_bits(lse, wide.lse));
    }
  }
}

TEST(merge, of_two_parts_has_a_form_of_its_own) {
  const Result<float> a = run(plain_call<float>({1, 1, 1, 3, 40, 8, 4}, 5));
  const Result<float> b = run(plain_call<float>({1, 1, 1, 3, 50, 8, 4}, 6));
  Tensor<float> o(a.o.shape);
  heed::merge(a.o.view(), without_last_axis(a.lse.view()), b.o.view(),
              without_last_axis(b.lse.view()), {.output = o.out()});
  EXPECT_TRUE(same_bits(o, merged<float>({a, b}).o));
}

}  // namespace
}  // namespace heed_test

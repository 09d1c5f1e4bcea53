// What inspect_weights promises beside its numbers: bits, memory, rows of NaN, errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>

#include "forward/executors.h"
#include "inspection/looked.h"
#include "sanitized.h"

namespace heed_test {
namespace {

using heed::view;

template <typename T>
void expect_same_where_threads_share(const Call<T>& s) {
  SCOPED_TRACE(describe(s));
  const auto lse = run(s).lse;
  expect_same_where_64_threads_share(
      [&](const auto& execution) { return Looked<T>(s, lse, {}, execution); },
      [](const Looked<T>& many, const Looked<T>& one) { return one.same(many); });
}

TEST(inspect_weights, has_the_same_bits_where_64_threads_share) {
  const auto s = for_many_threads<float>(Masking::everything, 1030, 50);
  expect_same_where_threads_share(s);
  expect_same_where_threads_share(for_many_threads<double>(Masking::everything, 1030, 50));
  for (const heed::DType dtype : {heed::DType::f16, heed::DType::bf16})
    expect_same_where_threads_share(narrowed(s, dtype));
}

TEST(inspect_weights, has_the_same_bits_for_any_number_of_threads_and_any_batch) {
  auto s = plain_call<float>({3, 4, 2, 700, 90, 16, 4}, 52);
  s.causal = true;
  const auto lse = run(s).lse;
  const Looked<float> one(s, lse, {});
  for (const int threads : thread_counts()) {
    EXPECT_TRUE(one.same(Looked<float>(s, lse, {}, {.threads = threads}))) << threads;
  }
  const auto last = with_batch(s, {2});
  EXPECT_TRUE(one.part(0, {2}).same(Looked<float>(last, run(last).lse, {})));
}

TEST(inspect_weights, writes_to_views_of_any_strides) {
  auto s = plain_call<float>({2, 2, 2, 33, 41, 8, 4}, 53);
  const auto lse = run(s).lse;
  const Looked<float> dense(s, lse, {});
  for (const Layout layout : {Layout::bthd, Layout::reversed, Layout::strided_last,
                              Layout::transposed, Layout::off_by_one}) {
    EXPECT_TRUE(dense.same(Looked<float>(s, lse, {}, {}, layout))) << name_of(layout);
  }
}

TEST(inspect_weights, sees_weights_as_they_are_before_dropout) {
  auto s = plain_call<float>({2, 4, 2, 70, 130, 8, 4}, 61);
  s.causal = true;
  const Looked<float> whole(s, run(s).lse, {});
  s.dropout = {.p = 0.4, .seed = 7};
  EXPECT_TRUE(whole.same(Looked<float>(s, run(s).lse, {})));
}

TEST(inspect_weights, takes_inputs_of_rank_two_and_three) {
  for (const int rank : {2, 3}) {
    auto s = plain_call<float>({rank == 2 ? 1 : 2, 1, 1, 33, 41, 8, 4}, 54);
    const auto lse = run(s).lse;
    const Looked<float> four(s, lse, {});
    s.rank = rank;
    EXPECT_TRUE(four.same(Looked<float>(s, lse, {})));
  }
}

TEST(inspect_weights, of_a_row_with_a_NaN_are_NaN_and_others_stay) {
  auto s = plain_call<float>({1, 1, 1, 4, 6, 8, 4}, 55);
  const Looked<float> clean(s, run(s).lse, {.rows = 2, .columns = 3});
  s.q.at(0, 0, 0, 3) = NAN;
  const Looked<float> seen(s, run(s).lse, {.rows = 2, .columns = 3});
  auto one = plain_call<float>({1, 1, 1, 4, 6, 8, 4}, 55);
  one.bias = Tensor<double>({1, 1, 4, 6});
  std::fill(one.bias.memory.begin(), one.bias.memory.end(), 0.0);
  one.bias.at(0, 0, 0, 3) = NAN;  // one score of row 0
  const Looked<float> seen_one(one, run(one).lse, {.rows = 2, .columns = 3});
  for (std::int64_t j = 0; j < 6; ++j) {
    EXPECT_TRUE(std::isnan(seen.row_weights.at(0, 0, 1, j)));  // row 0
    EXPECT_EQ(seen.row_weights.at(0, 0, 0, j), clean.row_weights.at(0, 0, 0, j));
    EXPECT_TRUE(std::isnan(seen.column_sums.at(0, 0, j, 0)));
  }
  const auto counted = [](const Looked<float>& looked) {
    std::int64_t all = 0;
    for (const auto n : looked.histogram.memory) all += n;
    return all;
  };
  EXPECT_EQ(counted(clean), 4 * 6);
  EXPECT_EQ(counted(seen), 3 * 6) << "no score of row 0";
  EXPECT_EQ(counted(seen_one), 3 * 6) << "no other score of row 0 either";
  for (std::int64_t c = 0; c < 3; ++c) {
    EXPECT_TRUE(std::isnan(seen.lift_map.at(0, 0, 0, c)));
    EXPECT_EQ(seen.lift_map.at(0, 0, 1, c), clean.lift_map.at(0, 0, 1, c));
  }
  EXPECT_EQ(seen.top_keys.at(0, 0, 0, 0), -1);
  EXPECT_EQ(seen.top_weights.at(0, 0, 0, 0), 0);
}

TEST(inspect_weights, never_sees_what_is_masked) {
  auto s = plain_call<float>({1, 2, 1, 30, 50, 8, 4}, 56);
  s.key_lengths = {37};
  const auto lse = run(s).lse;
  const Looked<float> clean(s, lse, {});
  for (std::int64_t j = 37; j < 50; ++j) s.k.at(0, 0, j, 1) = j % 2 == 0 ? NAN : INFINITY;
  EXPECT_TRUE(clean.same(Looked<float>(s, lse, {})));
}

TEST(inspect_weights, rows_of_uniform_weights_have_a_lift_of_zero) {
  auto s = plain_call<double>({1, 1, 1, 32, 64, 4, 4}, 57);
  s.scale = {0};
  s.causal = true;
  s.query_start = {32};
  const Looked<double> seen(s, run(s).lse, {.rows = 4, .columns = 8});
  seen.lift_map.each([&](auto b, auto h, auto r, auto c) {
    const double lift = seen.lift_map.at(b, h, r, c);
    if (8 * c > 32 + 8 * r + 7) {
      EXPECT_TRUE(std::isnan(lift));  // keys 8 c .. are past the positions 32 + 8 r ..
    } else {
      EXPECT_NEAR(lift, 0, 1e-14);
    }
  });
}

TEST(inspect_weights, of_nothing_are_nothing) {
  for (const Dims& d : {Dims{1, 1, 1, 0, 5, 4, 4}, Dims{1, 1, 1, 3, 0, 4, 4}}) {
    auto s = plain_call<float>(d, 58);
    Tensor<float> lse({1, 1, d.queries, 1});
    Tensor<float> sums({1, 1, d.keys, 1}), mass({1, 1, 5, 1});
    std::fill(lse.memory.begin(), lse.memory.end(), -INFINITY);
    auto sums_view = sums.out(), mass_view = mass.out();
    auto lse_view = lse.view();
    --sums_view.rank, --mass_view.rank, --lse_view.rank;
    heed::inspect_weights({.q = s.q.view(), .k = s.k.view(), .lse = lse_view},
                          {.column_sums = sums_view, .distance_mass = mass_view});
    sums.each([&](auto b, auto h, auto j, auto) { EXPECT_EQ(sums.at(b, h, j, 0), 0); });
    mass.each([&](auto b, auto h, auto j, auto) { EXPECT_EQ(mass.at(b, h, j, 0), 0); });
  }
  // Rows that are one number in memory are as many as their view may have; each has no weights.
  const std::int64_t first = 0, many = std::int64_t{1} << 40;
  const auto s = plain_call<float>({1, 1, 1, 3, 0, 4, 4}, 58);
  const std::vector<float> lse(3, -INFINITY);
  heed::inspect_weights(
      {.q = s.q.view(), .k = s.k.view(), .lse = heed::view(lse.data(), {1, 1, 3})},
      {.rows = {&first, heed::DType::i64, 1, {many}, {0}},
       .row_weights = heed::view(static_cast<void*>(nullptr), heed::DType::f32, {1, 1, many, 0})});
}

TEST(inspect_weights, have_scores_whose_zeros_have_no_sign) {
  const float one = 1;
  float keys[] = {-1, 1, 0, -0.0f}, lse = 0, scores[4];
  std::int64_t first = 0;
  heed::inspect_weights({.q = view(&one, {1, 1}), .k = view(keys, {4, 1}), .lse = view(&lse, {1})},
                        {.rows = view(&first, {1}), .row_scores = view(scores, {1, 4})},
                        {.scale = 0.0});
  for (const float score : scores) EXPECT_TRUE(score == 0 && !std::signbit(score));
}

/// lse = -inf says that the row sees no key, whatever its scores are.
TEST(inspect_weights, of_a_row_whose_lse_is_none_are_zero) {
  const float one = 1, lse = -std::numeric_limits<float>::infinity();
  float keys[] = {-1, 1, 0}, weights[3];
  std::int64_t first = 0;
  heed::inspect_weights({.q = view(&one, {1, 1}), .k = view(keys, {3, 1}), .lse = view(&lse, {1})},
                        {.rows = view(&first, {1}), .row_weights = view(weights, {1, 3})});
  for (const float weight : weights) EXPECT_EQ(weight, 0);
  const float lowest = std::numeric_limits<float>::lowest();  // of a row full of finfo.min
  heed::inspect_weights(
      {.q = view(&one, {1, 1}), .k = view(keys, {3, 1}), .lse = view(&lowest, {1})},
      {.rows = view(&first, {1}), .row_weights = view(weights, {1, 3})});
  for (const float weight : weights) EXPECT_EQ(weight, 1);
}

TEST(inspect_weights, of_a_map_without_cells_are_what_else_is_asked_for) {
  auto s = plain_call<double>({1, 2, 1, 200, 300, 8, 4}, 60);
  const auto lse = run(s).lse;
  auto lse_view = lse.view();
  --lse_view.rank;
  const auto largest = [&](const heed::TensorView& mean_map, const heed::TensorView& lift_map) {
    Tensor<double> top({1, 2, 200, 3});
    heed::inspect_weights({.q = s.q.view(), .k = s.k.view(), .lse = lse_view},
                          {.top_weights = top.out(), .mean_map = mean_map, .lift_map = lift_map});
    return top.memory;
  };
  const auto wanted = largest({}, {});
  double nothing = 7;
  for (const auto& shape : {Shape{1, 2, 4, 0}, Shape{1, 2, 0, 4}, Shape{1, 2, 0, 0}}) {
    const auto map = view(&nothing, {shape[0], shape[1], shape[2], shape[3]});
    EXPECT_EQ(largest(map, {}), wanted);
    EXPECT_EQ(largest({}, map), wanted);
  }
  EXPECT_EQ(nothing, 7);
}

TEST(inspect_weights, count_a_score_below_the_last_bin_in_it_however_close) {
  constexpr std::int64_t kKeys = 64;
  const double one = 1;
  double lse = 0, keys[kKeys];
  std::int64_t counts[16 + 2];
  for (std::int64_t j = 0; j < kKeys; ++j) keys[j] = 4 - 0.03 * static_cast<double>(j);
  const heed::Attended attended{
      .q = view(&one, {1, 1}), .k = view(keys, {kKeys, 1}), .lse = view(&lse, {1})};
  for (const double score : keys) {
    // Two roundings are 2 log2(e) = 2.9 in base 2, where a rounding is 1 or 2: never the same bits.
    const double high = std::nextafter(std::nextafter(score, 5.0), 5.0);
    heed::inspect_weights(
        attended,
        {.score_histogram = view(counts, {16 + 2}), .score_low = -high, .score_high = high});
    const auto above = std::count_if(keys, keys + kKeys, [&](double x) { return x >= high; });
    EXPECT_EQ(counts[16 + 1], above) << score;
    EXPECT_GE(counts[16], 1) << score;
  }
}

template <typename T>
std::vector<std::int64_t> counts_between(const std::vector<T>& keys, double low, double high,
                                         std::int64_t bins) {
  const T one = 1, lse = 0;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(bins + 2));
  const auto count = static_cast<std::int64_t>(keys.size());
  heed::inspect_weights(
      {.q = view(&one, {1, 1}), .k = view(keys.data(), {count, 1}), .lse = view(&lse, {1})},
      {.score_histogram = view(counts.data(), {bins + 2}), .score_low = low, .score_high = high});
  return counts;
}

TEST(inspect_weights, count_a_score_on_an_edge_in_the_bin_that_begins_there) {
  using Counts = std::vector<std::int64_t>;
  const Counts expected{1, 1, 1, 1, 1, 1, 1, 1, 2};
  EXPECT_EQ(counts_between<float>({-4, -3, -2, -1, 0, 1, 2, 3, 4, 8}, -3, 4, 7), expected);
  EXPECT_EQ(counts_between<double>({-4, -3, -2, -1, 0, 1, 2, 3, 4, 8}, -3, 4, 7), expected);
  const Counts around_zero{0, 2, 2, 0};
  EXPECT_EQ(counts_between<float>({-1, -1e-30F, 0, 1e-30F}, -1, 1, 2), around_zero);
  EXPECT_EQ(counts_between<double>({-1, -1e-300, 0, 1e-300}, -1, 1, 2), around_zero);
}

/// Each edge as the type has it, and what lies 8 roundings beside it.
template <typename T>
void expect_every_edge_found() {
  constexpr std::int64_t kBins = 300;
  constexpr double kLow = -20, kHigh = 13.7, kWidth = (kHigh - kLow) / kBins;
  const auto edge = [&](std::int64_t n) {
    return static_cast<T>(n == kBins ? kHigh : kLow + static_cast<double>(n) * kWidth);
  };
  constexpr T kBeside = 8 * std::numeric_limits<T>::epsilon();
  std::vector<T> keys;
  for (std::int64_t n = 0; n <= kBins; ++n) {
    const T apart = std::abs(edge(n)) * kBeside;
    keys.insert(keys.end(), {edge(n) - apart, edge(n), edge(n) + apart});
  }
  std::vector<std::int64_t> expected(kBins + 2, 3);  // an edge, beside it, and beside the next
  expected.front() = 1;
  expected.back() = 2;
  EXPECT_EQ(counts_between(keys, kLow, kHigh, kBins), expected);
}

TEST(inspect_weights, count_what_is_on_an_edge_or_close_to_it_where_it_is) {
  expect_every_edge_found<float>();
  expect_every_edge_found<double>();
}

TEST(inspect_weights, count_between_edges_that_the_type_cannot_tell_apart_or_hold) {
  using Counts = std::vector<std::int64_t>;
  EXPECT_EQ(counts_between<float>({1, std::nextafter(1.0F, 2.0F), 2}, 1, 1 + 1e-12, 5),
            Counts({0, 0, 0, 0, 0, 0, 3}));
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kMost = std::numeric_limits<float>::max();
  EXPECT_EQ(counts_between<float>({-kInf, -1e38F, 1, 1e38F}, -1e300, 1e300, 2),
            Counts({1, 1, 2, 0}));
  const float biases[] = {-kMost, 0, kMost, kInf};
  const float zeros[4] = {};
  std::vector<std::int64_t> counts(4);
  const float lse = 0;
  heed::inspect_weights(
      {.q = view(zeros, {1, 1}), .k = view(zeros, {4, 1}), .lse = view(&lse, {1})},
      {.score_histogram = view(counts.data(), {4}), .score_low = -1e300, .score_high = 1e300},
      {.bias = view(biases, {1, 4})});
  EXPECT_EQ(counts, Counts({0, 1, 2, 1}));
}

/// A field of /proc/self/status in bytes; 0 where there is none.
std::int64_t status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return std::stoll(line.substr(field.size() + 1)) * 1024;
  }
  return 0;
}

TEST(inspect_weights, of_a_large_map_take_little_more_than_its_sums) {
  if (sanitized()) GTEST_SKIP() << "a sanitizer's own memory counts as well";
  constexpr std::int64_t kCells = 2048;
  auto s = plain_call<float>({1, 1, 1, kCells, kCells, 4, 4}, 59);
  const auto lse = run(s).lse;
  Tensor<float> map({1, 1, kCells, kCells});
  auto lse_view = lse.view();
  --lse_view.rank;
  std::ofstream("/proc/self/clear_refs") << "5";  // the greatest so far is forgotten
  const std::int64_t before = status_bytes("VmRSS");
  heed::inspect_weights({.q = s.q.view(), .k = s.k.view(), .lse = lse_view},
                        {.mean_map = map.out()});
  const std::int64_t most = status_bytes("VmHWM");
  ASSERT_GT(before, 0);
  ASSERT_GE(most, before);
  // Sums of a map are float64: 32 MiB. Eight slabs of it, for two heads, of three kinds took 768.
  EXPECT_LT(most - before, std::int64_t{96} << 20);
}

/// The message of a call that changes one thing of a good one.
class errors : public testing::Test {
 protected:
  static constexpr std::int64_t kRows = 3, kKeys = 5, kSize = 2;
  float q_[kRows * kSize] = {}, k_[kKeys * kSize] = {}, lse_[kRows] = {};
  float floats_[64] = {};
  std::int64_t integers_[64] = {};
  heed::Attended attended_{
      .q = view(q_, {kRows, kSize}), .k = view(k_, {kKeys, kSize}), .lse = view(lse_, {kRows})};

  /// Of what is refused nothing is written.
  std::string message(const heed::WeightViews& views, const heed::AttentionOptions& options = {}) {
    std::ranges::fill(floats_, 7.0F);
    const auto integers = std::to_array(integers_);
    try {
      heed::inspect_weights(attended_, views, options);
    } catch (const heed::Error& error) {
      EXPECT_TRUE(std::ranges::all_of(floats_, [](float x) { return x == 7; })) << error.what();
      EXPECT_EQ(std::to_array(integers_), integers) << error.what();
      return error.what();
    }
    return "no error";
  }
};

TEST_F(errors, name_the_argument_what_was_expected_and_what_came) {
  const auto sums = view(floats_, {kKeys});
  EXPECT_EQ(message({.column_sums = sums}), "no error");
  EXPECT_EQ(message({.column_sums = view(floats_, {kKeys + 1})}),
            "inspect_weights: column_sums has shape [6]; expected [5]");
  EXPECT_EQ(
      message({.rows = view(integers_, {2})}),
      "inspect_weights: rows is given, row_weights and row_scores absent; expected one of them");
  EXPECT_EQ(message({.row_weights = view(floats_, {2, kKeys})}),
            "inspect_weights: row_weights is given, rows absent; expected both or none");
  EXPECT_EQ(message({.row_scores = view(floats_, {2, kKeys})}),
            "inspect_weights: row_scores is given, rows absent; expected both or none");
  integers_[1] = 3;
  EXPECT_EQ(message({.rows = view(integers_, {2}), .row_weights = view(floats_, {2, kKeys})}),
            "inspect_weights: rows[1] is 3; expected 0 .. 2");
  integers_[1] = -1;
  EXPECT_EQ(message({.rows = view(integers_, {2}), .row_weights = view(floats_, {2, kKeys})}),
            "inspect_weights: rows[1] is -1; expected 0 .. 2");
  EXPECT_EQ(message({.rows = view(floats_ + 20, {2}), .row_weights = view(floats_, {2, kKeys})}),
            "inspect_weights: rows is float32; expected int64");
  EXPECT_EQ(message({.rows = view(integers_, {1, 2}), .row_weights = view(floats_, {2, kKeys})}),
            "inspect_weights: rows has shape [1, 2]; expected one axis");
  EXPECT_EQ(message({.top_keys = view(integers_, {kRows, 0})}),
            "inspect_weights: top_keys and top_weights have 0 places; expected 1 or more");
  EXPECT_EQ(message({.top_keys = view(floats_, {kRows, 2})}),
            "inspect_weights: top_keys is float32; expected int64");
  EXPECT_EQ(
      message({.top_keys = view(integers_, {kRows, 2}), .top_weights = view(floats_, {kRows, 3})}),
      "inspect_weights: top_weights has shape [3, 3]; expected [3, 2]");
  EXPECT_EQ(message({.top_mass = view(floats_, {kRows})}),
            "inspect_weights: top_mass is given, top_keys and top_weights absent; expected one of "
            "them, for K");
  EXPECT_EQ(
      message({.mean_map = view(floats_, {2, 6})}),
      "inspect_weights: mean_map has shape [2, 6]; expected at most 3 rows (Tq) and 5 columns "
      "(Tk) of cells");
  EXPECT_EQ(
      message({.lift_map = view(floats_, {4, 1})}),
      "inspect_weights: lift_map has shape [4, 1]; expected at most 3 rows (Tq) and 5 columns "
      "(Tk) of cells");
  EXPECT_EQ(message({.mean_map = view(floats_, {2, 2}), .lift_map = view(floats_ + 9, {2, 3})}),
            "inspect_weights: lift_map has shape [2, 3]; expected [2, 2]");
  EXPECT_EQ(message({.distance_mass = view(floats_, {4})}),
            "inspect_weights: distance_mass has 4 distances; expected an odd number, 0 in the "
            "middle");
  EXPECT_EQ(
      message({.score_histogram = view(integers_, {2})}),
      "inspect_weights: score_histogram has 2 counts; expected 3 or more: below, bins, above");
  EXPECT_EQ(
      message({.score_histogram = view(integers_, {9}), .score_low = 1, .score_high = 1}),
      "inspect_weights: score_low is 1, score_high 1; expected finite numbers, the first below "
      "the second");
  EXPECT_EQ(
      message({.score_histogram = view(integers_, {9}), .score_low = 0, .score_high = 1e-310}),
      "inspect_weights: score_low is 0, score_high 1e-310; expected wider bins");
  EXPECT_EQ(message({.column_sums = view(k_, {kKeys})}),
            "inspect_weights: column_sums overlaps k in memory; expected memory of its own");
  EXPECT_EQ(message({.column_sums = sums, .distance_mass = view(floats_ + 4, {3})}),
            "inspect_weights: column_sums overlaps distance_mass in memory; expected memory of its "
            "own");
  EXPECT_EQ(message({.column_sums = sums}, {.softcap = 0.0}),
            "inspect_weights: softcap is 0; expected 2^-100 .. 2^100");
}

TEST_F(errors, name_views_of_more_axes_than_there_can_be) {
  // Sizes past the shape are not looked at: what stands there would be taken for numbers of cells.
  heed::TensorView deep = view(floats_, {2, 2, 2, 9});
  deep.rank = heed::kMaxRank + 1;
  deep.stride[0] = 2;
  const auto with = [&](heed::TensorView heed::WeightViews::*which) {
    heed::WeightViews views;
    views.*which = deep;
    return message(views);
  };
  using Views = heed::WeightViews;
  const std::string text = " has rank 5; expected at most 4";
  EXPECT_EQ(with(&Views::mean_map), "inspect_weights: mean_map" + text);
  EXPECT_EQ(with(&Views::lift_map), "inspect_weights: lift_map" + text);
  EXPECT_EQ(with(&Views::top_weights), "inspect_weights: top_weights" + text);
  EXPECT_EQ(with(&Views::distance_mass), "inspect_weights: distance_mass" + text);
  deep.dtype = heed::DType::i64;
  EXPECT_EQ(with(&Views::top_keys), "inspect_weights: top_keys" + text);
  deep.stride[0] = 1;
  EXPECT_EQ(with(&Views::score_histogram), "inspect_weights: score_histogram" + text);
}

TEST_F(errors, of_keys_with_too_many_axes_come_before_anything_is_read_or_written) {
  for (const int rank : {5, 9, 40}) {
    attended_.k = view(floats_, {kKeys, 2});
    attended_.k.rank = rank;
    EXPECT_EQ(message({.column_sums = view(floats_, {kKeys})}),
              "inspect_weights: k has rank " + std::to_string(rank) + "; expected at most 4");
  }
}

TEST_F(errors, name_what_is_wrong_with_q_k_and_lse) {
  const auto sums = view(floats_, {kKeys});
  attended_.lse = {};
  EXPECT_EQ(message({.column_sums = sums}),
            "inspect_weights: lse is absent; expected what attention_forward returned");
  attended_.lse = view(lse_, {2});
  EXPECT_EQ(message({.column_sums = sums}), "inspect_weights: lse has shape [2]; expected [3]");
  double wide[kRows] = {};
  attended_.lse = view(wide, {kRows});
  EXPECT_EQ(message({.column_sums = sums}),
            "inspect_weights: lse is float64; expected float32, the type of q");
  attended_.lse = view(lse_, {kRows});
  attended_.k = {};
  EXPECT_EQ(message({.column_sums = sums}),
            "inspect_weights: k is absent; expected a view to read from");
}

}  // namespace
}  // namespace heed_test

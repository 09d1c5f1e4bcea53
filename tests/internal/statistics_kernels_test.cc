// What is counted beside the softmax step, against the definitions in double.
#include "kernels_support.h"

namespace heed::kernels {
namespace {

constexpr double kUnit = 0x1p-24;

double at(const std::vector<float>& s, const Bench& b, int j, int r) {
  return static_cast<double>(s[static_cast<std::size_t>(j * b.width + r)]);
}

/// The state and sums of rows over some keys, by the kernels, block after block.
struct State {
  std::vector<float> m, l, a, seen, first;
  RowSums<float> sums{};

  explicit State(const Bench& b)
      : m(static_cast<std::size_t>(b.width), -kInf),
        l(m.size(), 0.0f),
        a(m.size()),
        seen(m.size()),
        first(m.size()) {}

  void fold(Bench& b, std::vector<float> s, int keys) {
    std::vector<float> highest(m.size());
    b.kernels.maxima(s.data(), keys, b.vectors, highest.data());
    b.kernels.observe(s.data(), keys, b.vectors, nullptr, highest.data(), sums, seen.data(),
                      first.data());
    b.kernels.softmax_counted(s.data(), keys, b.vectors, highest.data(), m.data(), l.data(),
                              a.data(), sums);
  }
};

/// u, squares, cubes, count, mean and deviations of row r over all keys, and how far off they may
/// be: a unit for each addition, some for 2^x, and two for each move from one maximum to the next.
void expect_sums(const Bench& b, const State& state, const std::vector<float>& s, int keys, int r,
                 int moves) {
  double m = -INFINITY, sum = 0, magnitude = 0;
  for (int j = 0; j < keys; ++j) {
    m = std::max(m, at(s, b, j, r));
    sum += at(s, b, j, r);
    magnitude += std::fabs(at(s, b, j, r));
  }
  const double mean = sum / keys;
  double u = 0, squares = 0, cubes = 0, deviations = 0;
  for (int j = 0; j < keys; ++j) {
    const double x = at(s, b, j, r) - m;
    u += x * std::exp2(x);
    squares += std::exp2(2 * x);
    cubes += std::exp2(3 * x);
    deviations += (at(s, b, j, r) - mean) * (at(s, b, j, r) - mean);
  }
  const double units = (keys + 12 + 6 * moves) * kUnit;
  const auto i = static_cast<std::size_t>(r);
  EXPECT_EQ(state.sums.count[i], static_cast<float>(keys));
  // x is as exact as s is large; what a move subtracts from u may be larger than u itself.
  const double moved = 8 * moves * (std::fabs(m) + 8) * state.l[i] * kUnit;
  EXPECT_NEAR(state.sums.u[i], u, units * (std::fabs(u) + magnitude / keys) + moved);
  EXPECT_NEAR(state.sums.squares[i], squares, 2 * units * squares);
  EXPECT_NEAR(state.sums.cubes[i], cubes, 3 * units * cubes);
  const double shift = units * magnitude / keys;
  EXPECT_NEAR(state.sums.mean[i], mean, shift);
  EXPECT_NEAR(state.sums.deviations[i], deviations,
              units * deviations + keys * shift * shift + units * shift * keys);
}

}  // namespace

void test_softmax_counted(Bench& b) {
  for (const int keys : {1, 2, 7, 96}) {
    const auto scores = b.draw(keys * b.width, 4.0f);
    State state(b);
    state.fold(b, scores, keys);
    for (int r = 0; r < b.width; ++r) expect_sums(b, state, scores, keys, r, 0);
    // What is counted changes no bit of the step itself.
    std::vector<float> highest(state.m.size()), m(state.m.size(), -kInf), l(m.size(), 0.0f),
        a(m.size());
    auto plain = scores, counted = scores;
    b.kernels.maxima(plain.data(), keys, b.vectors, highest.data());
    b.kernels.softmax(plain.data(), keys, b.vectors, highest.data(), m.data(), l.data(), a.data());
    State again(b);
    b.kernels.softmax_counted(counted.data(), keys, b.vectors, highest.data(), again.m.data(),
                              again.l.data(), again.a.data(), again.sums);
    EXPECT_EQ(counted, plain);
    EXPECT_EQ(again.m, m);
    EXPECT_EQ(again.l, l);
    EXPECT_EQ(again.a, a);
  }
  // A masked key counts for nothing, and leaves no NaN.
  auto s = b.draw(3 * b.width);
  for (int r = 0; r < b.width; ++r) s[static_cast<std::size_t>(b.width + r)] = -kInf;
  State state(b);
  state.fold(b, s, 3);
  for (int r = 0; r < b.width; ++r) {
    EXPECT_TRUE(std::isfinite(state.sums.u[r]) && std::isfinite(state.sums.deviations[r]));
    EXPECT_EQ(state.sums.count[r], 2.0f);
  }
}

void test_observe(Bench& b) {
  const int keys = 65;
  auto s = b.draw(keys * b.width);
  const auto words = b.draw_words();
  for (int r = 0; r < b.width; ++r) {  // a tie, and a score of -inf that was not masked
    s[static_cast<std::size_t>(9 * b.width + r)] = s[static_cast<std::size_t>(40 * b.width + r)] =
        9;
  }
  s[static_cast<std::size_t>(3 * b.width)] = -kInf;
  std::vector<float> highest(static_cast<std::size_t>(b.width));
  b.kernels.maxima(s.data(), keys, b.vectors, highest.data());
  State all(b), some(b);
  b.kernels.observe(s.data(), keys, b.vectors, nullptr, highest.data(), all.sums, all.seen.data(),
                    all.first.data());
  for (int j = 0; j < keys; ++j) {
    for (int r = 0; r < b.width; ++r) {
      if ((words[static_cast<std::size_t>(j)] >> r & 1) == 0) {
        s[static_cast<std::size_t>(j * b.width + r)] = -kInf;
      }
    }
  }
  b.kernels.maxima(s.data(), keys, b.vectors, highest.data());
  b.kernels.observe(s.data(), keys, b.vectors, words.data(), highest.data(), some.sums,
                    some.seen.data(), some.first.data());
  for (int r = 0; r < b.width; ++r) {
    const auto i = static_cast<std::size_t>(r);
    EXPECT_EQ(all.first[i], 9.0f) << "the lower one of two equal scores";
    EXPECT_EQ(all.seen[i], 65.0f);
    EXPECT_EQ(all.sums.count[i], r == 0 ? 64.0f : 65.0f) << "-inf is no score";
    int visible = 0, counted = 0;
    for (int j = 0; j < keys; ++j) {
      visible += static_cast<int>(words[static_cast<std::size_t>(j)] >> r & 1);
      counted += at(s, b, j, r) != -INFINITY ? 1 : 0;
    }
    EXPECT_EQ(some.seen[i], static_cast<float>(visible));
    EXPECT_EQ(some.sums.count[i], static_cast<float>(counted));
    EXPECT_EQ(at(s, b, static_cast<int>(some.first[i]), r), static_cast<double>(highest[i]));
  }
}

void test_merge_sums(Bench& b) {
  const auto scores = b.draw(40 * b.width, 4.0f);
  const auto middle = scores.begin() + std::ptrdiff_t{13} * b.width;
  State left(b), right(b), none(b);
  left.fold(b, {scores.begin(), middle}, 13);
  right.fold(b, {middle, scores.end()}, 27);
  // The identity on either side changes no bit of what has one.
  const RowSums<float> before = left.sums;
  b.kernels.merge_sums(left.m.data(), left.l.data(), left.sums, none.m.data(), none.l.data(),
                       none.sums, b.vectors);
  State first(b);
  b.kernels.merge_sums(first.m.data(), first.l.data(), first.sums, left.m.data(), left.l.data(),
                       left.sums, b.vectors);
  for (const RowSums<float>* got : {&left.sums, &first.sums}) {
    for (int r = 0; r < b.width; ++r) {
      EXPECT_EQ(got->u[r], before.u[r]);
      EXPECT_EQ(got->squares[r], before.squares[r]);
      EXPECT_EQ(got->cubes[r], before.cubes[r]);
      EXPECT_EQ(got->count[r], before.count[r]);
      EXPECT_EQ(got->mean[r], before.mean[r]);
      EXPECT_EQ(got->deviations[r], before.deviations[r]);
    }
  }
  b.kernels.merge_sums(left.m.data(), left.l.data(), left.sums, right.m.data(), right.l.data(),
                       right.sums, b.vectors);
  for (std::size_t r = 0; r < left.l.size(); ++r) left.l[r] += right.l[r];  // for the bound alone
  for (int r = 0; r < b.width; ++r) expect_sums(b, left, scores, 40, r, 1);
}

void test_finish_sums(Bench& b) {
  // Two equal keys at score 3 (base 2), and a sink that takes as much as both together.
  std::vector<float> s(static_cast<std::size_t>(2 * b.width), 3.0f);
  State state(b), none(b);
  state.fold(b, s, 2);
  RowNumbers<float> alone, with_sink, empty;
  const std::vector<float> four(state.l.size(), 4.0f);
  b.kernels.finish_sums(state.m.data(), state.l.data(), state.sums, state.m.data(), state.l.data(),
                        b.vectors, alone);
  b.kernels.finish_sums(state.m.data(), state.l.data(), state.sums, state.m.data(), four.data(),
                        b.vectors, with_sink);
  b.kernels.finish_sums(none.m.data(), none.l.data(), none.sums, none.m.data(), none.l.data(),
                        b.vectors, empty);
  for (int r = 0; r < b.width; ++r) {
    EXPECT_EQ(alone.max_weight[r], 0.5f);
    EXPECT_NEAR(alone.entropy[r], std::log(2.0), 2 * kUnit);
    EXPECT_EQ(alone.sum_squared_weights[r], 0.5f);
    EXPECT_EQ(alone.sum_cubed_weights[r], 0.25f);
    EXPECT_NEAR(alone.jacobian_norm[r], 0.5, 4 * kUnit);
    EXPECT_NEAR(alone.max_score[r], 3 * std::log(2.0), 4 * kUnit);
    EXPECT_NEAR(alone.score_mean[r], 3 * std::log(2.0), 4 * kUnit);
    EXPECT_EQ(alone.score_variance[r], 0.0f);
    EXPECT_EQ(with_sink.max_weight[r], 0.25f);
    EXPECT_NEAR(with_sink.entropy[r], -2 * 0.25 * std::log(0.25), 4 * kUnit);
    EXPECT_EQ(with_sink.sum_squared_weights[r], 0.125f);
    EXPECT_EQ(empty.max_score[r], -kInf);
    for (const float x :
         {empty.max_weight[r], empty.entropy[r], empty.score_mean[r], empty.score_variance[r],
          empty.sum_squared_weights[r], empty.sum_cubed_weights[r], empty.jacobian_norm[r]}) {
      EXPECT_EQ(x, 0.0f);
    }
  }
}

}  // namespace heed::kernels

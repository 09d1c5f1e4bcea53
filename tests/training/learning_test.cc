// Embeddings, the normalisation, the loss and Adam: gradients against central differences in
// double, and the copy task against its definition.
#include "training/learning.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>

#include "heed/runtime.h"
#include "training/copy_task.h"

namespace heed::training {
namespace {

std::vector<float> draw(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> numbers(count);
  for (float& x : numbers) x = static_cast<float>(2 * random.uniform() - 1);
  return numbers;
}

/// gain 1, bias 0: what LayerNorm begins with.
std::vector<double> normalised(const std::vector<double>& x) {
  double mean = 0, variance = 0;
  for (const double v : x) mean += v / static_cast<double>(x.size());
  for (const double v : x) variance += (v - mean) * (v - mean) / static_cast<double>(x.size());
  std::vector<double> y;
  for (const double v : x) y.push_back((v - mean) / std::sqrt(variance + 1e-5));
  return y;
}

TEST(training, layer_norm_has_the_gradient_of_its_formula) {
  constexpr std::size_t kSize = 7;
  LayerNorm norm(kSize);
  const auto x = draw(2 * kSize, 1), dy = draw(2 * kSize, 2);
  std::vector<float> y(x.size()), dx(x.size(), 1.0F);  // dx is added to
  norm.forward(x, y);
  norm.backward(x, dy, dx);
  for (std::size_t n = 0; n < x.size(); n += kSize) {
    const std::vector<double> row(x.begin() + static_cast<long>(n),
                                  x.begin() + static_cast<long>(n + kSize));
    for (std::size_t i = 0; i < kSize; ++i) {
      EXPECT_NEAR(y[n + i], normalised(row)[i], 1e-6);
      double slope = 0;
      for (const double step : {1e-5, -1e-5}) {
        auto moved = row;
        moved[i] += step;
        const auto after = normalised(moved);
        for (std::size_t k = 0; k < kSize; ++k) slope += double{dy[n + k]} * after[k] / (2 * step);
      }
      EXPECT_NEAR(dx[n + i], 1 + slope, 1e-5) << i;  // float32 over sums of 7
    }
  }
}

TEST(training, cross_entropy_is_the_negative_logarithm_and_its_gradient) {
  std::vector<float> logits = draw(20, 3);
  const auto before = logits;
  const std::vector<std::int64_t> targets{2, kNoTarget, 0, 4};
  const Loss loss = cross_entropy(logits, targets);
  double expected = 0;
  for (std::size_t n = 0; n < 4; ++n) {
    double sum = 0;
    for (std::size_t c = 0; c < 5; ++c) sum += std::exp(double{before[5 * n + c]});
    for (std::size_t c = 0; c < 5; ++c) {
      const double p = std::exp(double{before[5 * n + c]}) / sum;
      const bool hit = static_cast<std::int64_t>(c) == targets[n];
      if (hit) expected -= std::log(p) / 3;
      const double gradient = targets[n] == kNoTarget ? 0 : (p - (hit ? 1 : 0)) / 3;
      EXPECT_NEAR(logits[5 * n + c], gradient, 1e-7);
    }
  }
  EXPECT_NEAR(loss.mean, expected, 1e-12);
}

TEST(training, embeddings_give_and_gather_rows) {
  Embedding embedding(3, 2, 1.0, 4);
  const std::vector<std::int64_t> which{2, 0, 2};
  std::vector<float> y(6, 10.0F);
  embedding.add(which, y);
  const Parameter weight = embedding.parameters()[0];
  EXPECT_EQ(y[1], 10 + weight.values[5]);
  EXPECT_EQ(y[2], 10 + weight.values[0]);
  embedding.backward(which, std::vector<float>{1, 2, 3, 4, 5, 6});
  const std::vector<float> gradient(weight.gradient.begin(), weight.gradient.end());
  EXPECT_EQ(gradient, (std::vector<float>{3, 4, 0, 0, 6, 8}));
}

// The first step of Adam is the rate against the sign of the gradient; parameters whose gradient
// was cut move as well, since both moments are.
TEST(training, adam_begins_with_steps_of_its_rate) {
  std::vector<float> values{1, 1, 1}, gradient{0.5F, -300, 0};
  Adam adam({{"x", {3}, values, gradient}}, {.rate = 0.01});
  adam.step();
  EXPECT_NEAR(values[0], 0.99, 1e-6);
  EXPECT_NEAR(values[1], 1.01, 1e-6);
  EXPECT_EQ(values[2], 1);
  EXPECT_EQ(gradient, (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(adam.state().size(), 3U);
}

TEST(training, copies_ask_for_the_token_after_the_last_one_like_it) {
  const CopyOptions options{.vocabulary = 4, .length = 20, .batch = 30};
  Random random(5);
  const CopyBatch batch = draw_copies(options, random);
  int asked = 0;
  for (std::size_t n = 0; n < batch.tokens.size(); ++n) {
    const std::size_t first = n / 20 * 20;
    std::int64_t expected = kNoTarget;
    for (std::size_t j = first; j < n; ++j) {
      if (batch.tokens[j] == batch.tokens[n])
        expected = j + 1 == n ? kNoTarget : batch.tokens[j + 1];
    }
    EXPECT_EQ(batch.targets[n], expected);
    asked += expected != kNoTarget;
  }
  EXPECT_GT(asked, 300);
}

/// The losses of some steps, each bit of them, behind the number of threads that the steps had.
/// Large enough for several threads to share.
std::string losses_of_a_model() {
  CopyModel model({.length = 64, .batch = 16, .d_model = 64});
  std::string losses = "threads " + std::to_string(default_threads()) + ":";
  for (int n = 0; n < 3; ++n) {
    char text[40];
    std::snprintf(text, sizeof text, " %a", model.train().mean);
    losses += text;
  }
  return losses;
}

TEST(training, the_same_seed_is_the_same_model) {
  const std::string losses = losses_of_a_model();
  EXPECT_EQ(losses_of_a_model(), losses);
  std::printf("%s\n", losses.c_str());  // for the test below
}

/// How many threads there are is found once per process, so each number is a process of its own.
TEST(training, the_same_seed_is_the_same_model_for_any_threads) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::string one;
  for (const int threads : {1, 2, 3, 8}) {
    const std::string command = "HEED_NUM_THREADS=" + std::to_string(threads) + " '" + self +
                                "' --gtest_filter=training.the_same_seed_is_the_same_model";
    FILE* const pipe = popen(command.c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    std::string told;
    for (char text[256]; std::fgets(text, sizeof text, pipe) != nullptr;) told += text;
    ASSERT_EQ(pclose(pipe), 0) << told;
    const std::string begin = "threads " + std::to_string(threads) + ":";
    const std::size_t at = told.find(begin);
    ASSERT_NE(at, std::string::npos) << told;
    const std::string losses =
        told.substr(at + begin.size(), told.find('\n', at) - at - begin.size());
    if (one.empty()) one = losses;
    EXPECT_EQ(losses, one) << threads;
  }
}

}  // namespace
}  // namespace heed::training

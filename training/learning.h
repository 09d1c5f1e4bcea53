// What training takes beside attention: embeddings, a normalisation, a loss, a step downhill. For
// the examples and the study of training; no part of the library.
#pragma once

#include <heed/heed.h>

#include <cstdint>
#include <span>
#include <vector>

namespace heed::training {

/// SplitMix64: the same numbers on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits();
  /// in [0, n)
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(n));
  }
  /// in [0, 1)
  double uniform() { return static_cast<double>(bits() >> 11U) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

/// Rows of a table, by number: y[n] = weight[which[n]].
class Embedding {
 public:
  Embedding(std::int64_t count, std::int64_t size, double deviation, std::uint64_t seed);

  /// y += rows, so that several embeddings add up.
  void add(std::span<const std::int64_t> which, std::span<float> y) const;
  void backward(std::span<const std::int64_t> which, std::span<const float> dy);
  [[nodiscard]] std::vector<Parameter> parameters();

 private:
  std::int64_t count_, size_;
  std::vector<float> weight_, d_weight_;
};

/// y = gain (x - mean) / sqrt(variance + 1e-5) + bias over each row, gain 1 and bias 0 at first.
class LayerNorm {
 public:
  explicit LayerNorm(std::int64_t size);

  void forward(std::span<const float> x, std::span<float> y) const;
  /// dx += the gradient: residual streams add up.
  void backward(std::span<const float> x, std::span<const float> dy, std::span<float> dx);
  [[nodiscard]] std::vector<Parameter> parameters();

 private:
  std::size_t size_;
  std::vector<float> gain_, d_gain_, bias_, d_bias_;
};

/// What cross_entropy does with a row that has no target.
inline constexpr std::int64_t kNoTarget = -1;

struct Loss {
  double mean = 0;      ///< of -ln softmax(logits)[target] over the rows with a target, in nats
  double accuracy = 0;  ///< share of them whose largest logit is the target's
};

/// `logits` [rows, classes] become their gradient.
Loss cross_entropy(std::span<float> logits, std::span<const std::int64_t> targets);

struct AdamOptions {
  double rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.99;
  double longest = 1;  ///< gradients together are cut to this length
};

/// Adam (Kingma and Ba, 2015).
class Adam {
 public:
  explicit Adam(std::vector<Parameter> parameters, const AdamOptions& options = {});

  /// One step against the gradients, which are then zero.
  void step();

  /// Parameters and moments, to save and load: with the number of steps, all that the next step
  /// takes.
  [[nodiscard]] std::vector<Parameter> state();
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }
  /// Numbers that are learnt.
  [[nodiscard]] std::int64_t size() const;

 private:
  std::vector<Parameter> parameters_;
  AdamOptions options_;
  std::vector<std::vector<float>> first_, second_;
  std::int64_t steps_ = 0;
};

/// All parameters of several modules.
void append(std::vector<Parameter>& all, std::vector<Parameter> more);

}  // namespace heed::training

// Embeddings, a normalisation, a loss and Adam.
#include "training/learning.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace heed::training {
namespace {

constexpr float kSmallest = 1e-5F;  // added to a variance

/// Mean and 1 / standard deviation of a row.
std::pair<float, float> moments(const float* x, std::size_t size) {
  float mean = 0, variance = 0;
  for (std::size_t i = 0; i < size; ++i) mean += x[i];
  mean /= static_cast<float>(size);
  for (std::size_t i = 0; i < size; ++i) variance += (x[i] - mean) * (x[i] - mean);
  return {mean, 1 / std::sqrt(variance / static_cast<float>(size) + kSmallest)};
}

}  // namespace

std::uint64_t Random::bits() {
  std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

Embedding::Embedding(std::int64_t count, std::int64_t size, double deviation, std::uint64_t seed)
    : count_(count),
      size_(size),
      weight_(static_cast<std::size_t>(count * size)),
      d_weight_(weight_.size()) {
  initialise(weight_, count, size,
             {.draw = Draw::constant_deviation, .deviation = deviation, .seed = seed});
}

void Embedding::add(std::span<const std::int64_t> which, std::span<float> y) const {
  const auto size = static_cast<std::size_t>(size_);
  for (std::size_t n = 0; n < which.size(); ++n) {
    const float* const row = weight_.data() + static_cast<std::size_t>(which[n]) * size;
    for (std::size_t i = 0; i < size; ++i) y[n * size + i] += row[i];
  }
}

void Embedding::backward(std::span<const std::int64_t> which, std::span<const float> dy) {
  const auto size = static_cast<std::size_t>(size_);
  for (std::size_t n = 0; n < which.size(); ++n) {
    float* const row = d_weight_.data() + static_cast<std::size_t>(which[n]) * size;
    for (std::size_t i = 0; i < size; ++i) row[i] += dy[n * size + i];
  }
}

std::vector<Parameter> Embedding::parameters() {
  return {{"weight", {count_, size_}, weight_, d_weight_}};
}

LayerNorm::LayerNorm(std::int64_t size)
    : size_(static_cast<std::size_t>(size)),
      gain_(size_, 1.0F),
      d_gain_(size_),
      bias_(size_),
      d_bias_(size_) {}

void LayerNorm::forward(std::span<const float> x, std::span<float> y) const {
  for (std::size_t n = 0; n < x.size(); n += size_) {
    const auto [mean, inverse] = moments(x.data() + n, size_);
    for (std::size_t i = 0; i < size_; ++i) {
      y[n + i] = (x[n + i] - mean) * inverse * gain_[i] + bias_[i];
    }
  }
}

void LayerNorm::backward(std::span<const float> x, std::span<const float> dy, std::span<float> dx) {
  for (std::size_t n = 0; n < x.size(); n += size_) {
    const auto [mean, inverse] = moments(x.data() + n, size_);
    float sum = 0, along = 0;  // of g, and of g times the normalised row, g = gain dy
    for (std::size_t i = 0; i < size_; ++i) {
      const float hat = (x[n + i] - mean) * inverse;
      d_gain_[i] += dy[n + i] * hat;
      d_bias_[i] += dy[n + i];
      sum += gain_[i] * dy[n + i];
      along += gain_[i] * dy[n + i] * hat;
    }
    sum /= static_cast<float>(size_);
    along /= static_cast<float>(size_);
    for (std::size_t i = 0; i < size_; ++i) {
      const float hat = (x[n + i] - mean) * inverse;
      dx[n + i] += inverse * (gain_[i] * dy[n + i] - sum - hat * along);
    }
  }
}

std::vector<Parameter> LayerNorm::parameters() {
  const auto size = static_cast<std::int64_t>(size_);
  return {{"gain", {size}, gain_, d_gain_}, {"bias", {size}, bias_, d_bias_}};
}

Loss cross_entropy(std::span<float> logits, std::span<const std::int64_t> targets) {
  const std::size_t classes = logits.size() / targets.size();
  const auto count = static_cast<double>(
      std::count_if(targets.begin(), targets.end(), [](auto t) { return t != kNoTarget; }));
  Loss loss;
  for (std::size_t n = 0; n < targets.size(); ++n) {
    float* const row = logits.data() + n * classes;
    if (targets[n] == kNoTarget) {
      std::fill_n(row, classes, 0.0F);
      continue;
    }
    const auto target = static_cast<std::size_t>(targets[n]);
    const float* const largest = std::max_element(row, row + classes);
    const auto top = static_cast<double>(*largest);
    loss.accuracy += largest == row + target;
    const double wanted = static_cast<double>(row[target]) - top;
    double sum = 0;
    for (std::size_t c = 0; c < classes; ++c) sum += std::exp(static_cast<double>(row[c]) - top);
    loss.mean += std::log(sum) - wanted;
    for (std::size_t c = 0; c < classes; ++c) {
      const double p = std::exp(static_cast<double>(row[c]) - top) / sum;
      row[c] = static_cast<float>((p - (c == target ? 1.0 : 0.0)) / count);
    }
  }
  return {loss.mean / count, loss.accuracy / count};
}

Adam::Adam(std::vector<Parameter> parameters, const AdamOptions& options)
    : parameters_(std::move(parameters)), options_(options) {
  for (const Parameter& p : parameters_) {
    first_.emplace_back(p.values.size());
    second_.emplace_back(p.values.size());
  }
}

void Adam::step() {
  ++steps_;
  double squares = 0;
  for (const Parameter& p : parameters_) {
    for (const float g : p.gradient) squares += static_cast<double>(g * g);
  }
  const double shrink = std::min(1.0, options_.longest / std::sqrt(squares));
  const auto n = static_cast<double>(steps_);
  const double rate = options_.rate * std::sqrt(1 - std::pow(options_.beta2, n)) /
                      (1 - std::pow(options_.beta1, n));
  const auto f = static_cast<float>(shrink), b1 = static_cast<float>(options_.beta1),
             b2 = static_cast<float>(options_.beta2), r = static_cast<float>(rate);
  for (std::size_t k = 0; k < parameters_.size(); ++k) {
    const Parameter& p = parameters_[k];
    for (std::size_t i = 0; i < p.values.size(); ++i) {
      const float g = f * p.gradient[i];
      float& m = first_[k][i];
      float& v = second_[k][i];
      m = b1 * m + (1 - b1) * g;
      v = b2 * v + (1 - b2) * g * g;
      p.values[i] -= r * m / (std::sqrt(v) + 1e-8F);
      p.gradient[i] = 0;
    }
  }
}

std::vector<Parameter> Adam::state() {
  std::vector<Parameter> all = parameters_;
  for (std::size_t k = 0; k < parameters_.size(); ++k) {
    all.push_back({"adam.first." + parameters_[k].name, parameters_[k].shape, first_[k], {}});
    all.push_back({"adam.second." + parameters_[k].name, parameters_[k].shape, second_[k], {}});
  }
  return all;
}

std::int64_t Adam::size() const {
  std::int64_t count = 0;
  for (const Parameter& p : parameters_) count += static_cast<std::int64_t>(p.values.size());
  return count;
}

void append(std::vector<Parameter>& all, std::vector<Parameter> more) {
  for (Parameter& p : more) all.push_back(std::move(p));
}

}  // namespace heed::training

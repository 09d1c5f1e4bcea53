// Why attention divides by sqrt(d): the variance of q . k grows with d, and softmax then saturates.
//
//     q, k ~ N(0, 1), independent   =>   var(q . k) = d,   var(q . k / sqrt(d)) = 1
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "heed/heed.h"

namespace {

constexpr std::int64_t kTokens = 256;

struct Row {
  double variance = 0;  // of the scores
  double entropy = 0;   // of the weights, 1 = uniform, 0 = one key takes all
  double peak = 0;      // the largest weight, mean over queries
};

Row measure(const std::vector<double>& q, const std::vector<double>& k, std::int64_t size,
            double scale) {
  std::vector<double> output(q.size()), lse(kTokens), weights(kTokens * kTokens);
  const auto tokens = heed::view(q.data(), {kTokens, size});
  heed::attention_forward(tokens, heed::view(k.data(), {kTokens, size}), tokens,
                          {.output = heed::view(output.data(), {kTokens, size}),
                           .lse = heed::view(lse.data(), {kTokens}),
                           .weights = heed::view(weights.data(), {kTokens, kTokens})},
                          {.scale = scale});
  Row row;
  for (std::int64_t i = 0; i < kTokens; ++i) {
    double peak = 0;
    for (std::int64_t j = 0; j < kTokens; ++j) {
      double score = 0;
      for (std::int64_t c = 0; c < size; ++c) score += scale * q[i * size + c] * k[j * size + c];
      const double weight = weights[i * kTokens + j];
      row.variance += score * score / (kTokens * kTokens);
      row.entropy += weight * (lse[i] - score) / kTokens;  // ln p = score - lse
      peak = std::fmax(peak, weight);
    }
    row.peak += peak / kTokens;
  }
  row.entropy /= std::log(static_cast<double>(kTokens));
  return row;
}

}  // namespace

int main() {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  std::printf("256 keys      without 1/sqrt(d)              with 1/sqrt(d)\n");
  std::printf("   d   variance  entropy  peak      variance  entropy  peak\n");
  for (const std::int64_t size : {4, 16, 64, 256}) {
    std::vector<double> q(kTokens * size), k(kTokens * size);
    for (double& x : q) x = normal(random);
    for (double& x : k) x = normal(random);
    const Row raw = measure(q, k, size, 1.0);
    const Row scaled = measure(q, k, size, 1.0 / std::sqrt(static_cast<double>(size)));
    std::printf("%4d   %8.2f  %7.2f  %4.2f      %8.2f  %7.2f  %4.2f\n", static_cast<int>(size),
                raw.variance, raw.entropy, raw.peak, scaled.variance, scaled.entropy, scaled.peak);
  }
}

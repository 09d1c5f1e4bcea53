// Looking inside 2,000 tokens: statistics from the pass that attends, then chosen weights, no
// matrix.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "heed/heed.h"

int main() {
  constexpr std::int64_t kTokens = 2000, kSize = 64, kTop = 4;
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> q(kTokens * kSize), k(q.size()), output(q.size());
  for (float& x : q) x = normal(random);
  for (float& x : k) x = normal(random);
  // A sink: all queries look for what key 0 has, 4 * 12 / sqrt(64) is a score of 6.
  for (std::int64_t i = 0; i < kTokens; ++i) q[i * kSize] = 4;
  for (std::int64_t x = 0; x < kSize; ++x) k[x] = x == 0 ? 12 : 0;
  const auto shaped = [](auto* data) { return heed::view(data, {kTokens, kSize}); };
  const auto per_row = [](auto* data) { return heed::view(data, {kTokens}); };
  const heed::AttentionOptions options{.mask = {.causal = true}};

  // 1. Statistics of every row, in the pass that computes the output.
  std::vector<float> lse(kTokens), entropy(kTokens), largest(kTokens), shares(kTokens);
  std::vector<std::int64_t> visible(kTokens);
  const heed::RowStatistics statistics{.max_weight = per_row(largest.data()),
                                       .entropy = per_row(entropy.data()),
                                       .visible_keys = per_row(visible.data())};
  heed::attention_forward(
      shaped(q.data()), shaped(k.data()), shaped(k.data()),
      {.output = shaped(output.data()), .lse = per_row(lse.data()), .statistics = &statistics},
      options);

  // 2. What they say of the head: a line for each head, here there is one.
  for (std::int64_t i = 0; i < kTokens; ++i) {
    shares[i] = static_cast<float>(heed::entropy_share(entropy[i], visible[i]));
  }
  const auto rows = per_row(visible.data());
  const heed::Summary share = heed::summarize(per_row(shares.data()), rows)[0];
  const double saturated = heed::saturation(per_row(largest.data()), rows, 0.99)[0];
  std::printf("entropy share %.2f, median %.2f; %.2f %% of the rows are saturated\n", share.mean,
              share.quantiles[2], 100 * saturated);

  // 3. Weights on demand, from q, k and the lse: one row in full, the largest of each row, and how
  //    much each key is attended to.
  const std::int64_t last = kTokens - 1;
  std::vector<float> row(kTokens), columns(kTokens), weights(kTokens * kTop), mass(kTokens);
  std::vector<std::int64_t> keys(kTokens * kTop);
  heed::inspect_weights({.q = shaped(q.data()), .k = shaped(k.data()), .lse = per_row(lse.data())},
                        {.rows = heed::view(&last, {1}),
                         .row_weights = heed::view(row.data(), {1, kTokens}),
                         .top_keys = heed::view(keys.data(), {kTokens, kTop}),
                         .top_weights = heed::view(weights.data(), {kTokens, kTop}),
                         .top_mass = per_row(mass.data()),
                         .column_sums = per_row(columns.data())},
                        options);
  std::printf("key 0 has %.0f %% of all weight, and %.0f %% of the last row\n",
              100.0 * static_cast<double>(columns[0]) / kTokens,
              100.0 * static_cast<double>(row[0]));
  std::printf("the last row's largest weights:");
  for (std::int64_t n = last * kTop; n < kTokens * kTop; ++n) {
    std::printf("  key %lld %.3f", static_cast<long long>(keys[n]),
                static_cast<double>(weights[n]));
  }
  std::printf("\nthey cover %.3f of it; the matrix would have had %lld weights\n",
              static_cast<double>(mass[last]), static_cast<long long>(kTokens * kTokens));
}

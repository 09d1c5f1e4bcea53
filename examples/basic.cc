// Attention as a soft look-up: a query finds the keys that resemble it and gets their values' mean.
#include <cstdio>

#include "heed/heed.h"

int main() {
  constexpr int kQueries = 3, kKeys = 4, kSize = 2, kValueSize = 2;

  // Fruit, described by (round, long), with price and grams as the values to look up.
  const char* const names[kKeys] = {"apple", "cherry", "banana", "cucumber"};
  const float keys[kKeys][kSize] = {{4, 0}, {4, 0}, {0, 4}, {0, 4}};
  const float values[kKeys][kValueSize] = {{2, 180}, {5, 8}, {1, 120}, {3, 300}};
  const float queries[kQueries][kSize] = {{4, 0}, {0, 4}, {1, 1}};
  const char* const wanted[kQueries] = {"something round", "something long", "anything"};

  float output[kQueries][kValueSize], weights[kQueries][kKeys], lse[kQueries];
  heed::attention_forward(heed::view(&queries[0][0], {kQueries, kSize}),
                          heed::view(&keys[0][0], {kKeys, kSize}),
                          heed::view(&values[0][0], {kKeys, kValueSize}),
                          {.output = heed::view(&output[0][0], {kQueries, kValueSize}),
                           .lse = heed::view(lse, {kQueries}),
                           .weights = heed::view(&weights[0][0], {kQueries, kKeys})});

  std::printf("%-16s", "");
  for (const char* name : names) std::printf("%10s", name);
  std::printf("%10s%10s%8s\n", "price", "grams", "lse");
  for (int i = 0; i < kQueries; ++i) {
    std::printf("%-16s", wanted[i]);
    for (const float weight : weights[i]) std::printf("%10.4f", static_cast<double>(weight));
    for (const float value : output[i]) std::printf("%10.2f", static_cast<double>(value));
    std::printf("%8.3f\n", static_cast<double>(lse[i]));
  }
}

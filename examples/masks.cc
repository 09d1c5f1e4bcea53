// Kinds of masks, on scores that are all equal: a weight is then 1 / (number of keys in sight).
#include <cstdio>
#include <limits>

#include "heed/heed.h"

namespace {

constexpr int kRows = 4;
constexpr float kNever = -std::numeric_limits<float>::infinity();

void show(const char* what, const heed::AttentionOptions& options) {
  const float q[kRows] = {}, k[kRows] = {}, v[kRows] = {1, 2, 3, 4};
  float output[kRows], weights[kRows][kRows];
  heed::attention_forward(heed::view(q, {kRows, 1}), heed::view(k, {kRows, 1}),
                          heed::view(v, {kRows, 1}),
                          {.output = heed::view(output, {kRows, 1}),
                           .weights = heed::view(&weights[0][0], {kRows, kRows})},
                          options);
  std::printf("%s\n", what);
  for (int i = 0; i < kRows; ++i) {
    std::printf("  ");
    for (const float weight : weights[i]) std::printf("%6.2f", static_cast<double>(weight));
    std::printf("   -> %.2f\n", static_cast<double>(output[i]));
  }
}

}  // namespace

int main() {
  show("no mask: each row is the mean of 1 2 3 4", {});
  show("causal: no look into the future", {.mask = {.causal = true}});
  show("causal, and no further back than one key",
       {.mask = {.causal = true, .window = {.left = 1}}});
  show("two keys are real, the others padding", {.mask = {.key_lengths = 2}});

  // keep is true where a query may look, drop where it may not. One row serves all: it broadcasts.
  const bool but_the_first[] = {false, true, true, true};
  show("keep all but the first key", {.mask = {.keep = heed::view(but_the_first, {1, kRows})}});
  show("drop the same keys: the opposite",
       {.mask = {.drop = heed::view(but_the_first, {1, kRows})}});

  // A bias adds to the score, so 0.69 = ln 2 doubles a weight, and -inf masks.
  const float bias[] = {0.6931472F, 0, 0, kNever};
  show("bias: key 0 counts twice, key 3 not at all", {.bias = heed::view(bias, {1, kRows})});

  // Conditions add up. Row 0 may see key 0 only, which is dropped: it gets 0, not NaN.
  const bool the_first[] = {true, false, false, false};
  show("causal, first key dropped: row 0 sees nothing and is 0",
       {.mask = {.causal = true, .drop = heed::view(the_first, {1, kRows})}});
}

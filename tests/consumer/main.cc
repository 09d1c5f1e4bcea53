// Two equal keys: attention is the mean of their values, 2 and 4.
#include <heed/heed.h>

#include <cstdio>

int main() {
  const float q[] = {1, 1}, k[] = {1, 0, 1, 0}, v[] = {2, 4};
  float output[1];
  heed::attention_forward(heed::view(q, {1, 2}), heed::view(k, {2, 2}), heed::view(v, {2, 1}),
                          {.output = heed::view(output, {1, 1})});
  std::printf("%g\n", static_cast<double>(output[0]));
}

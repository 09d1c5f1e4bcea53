// A self-attention layer learns what another one computes: forward, backward, a step downhill.
#include <heed/heed.h>

#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  constexpr std::int64_t kBatch = 16, kRows = 12, kSize = 8;
  constexpr float kCount = kBatch * kRows;
  heed::SelfAttention teacher(
      {.d_model = kSize,
       .initialisation = {.draw = heed::Draw::constant_deviation, .deviation = 0.6, .seed = 1}});
  heed::SelfAttention student({.d_model = kSize, .initialisation = {.seed = 2}});
  std::vector<float> x(static_cast<std::size_t>(kBatch * kRows * kSize)), wanted(x.size()),
      y(x.size()), dy(x.size());
  const auto seen = [](std::vector<float>& numbers) {
    return heed::view(numbers.data(), {kBatch, kRows, kSize});
  };
  const heed::AttentionOptions causal{.mask = {.causal = true}};
  heed::SavedAttention saved;
  for (int step = 0; step <= 800; ++step) {
    heed::initialise(x, kBatch * kRows, kSize,
                     {.draw = heed::Draw::constant_deviation,
                      .deviation = 1,
                      .seed = 1000 + static_cast<unsigned>(step)});
    teacher.forward(seen(x), {.output = seen(wanted)}, causal);
    student.forward(seen(x), {.output = seen(y), .saved = &saved}, causal);
    double loss = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      const float apart = y[i] - wanted[i];
      dy[i] = 2 * apart / kCount;
      loss += static_cast<double>(apart * apart / kCount);
    }
    student.zero_gradients();
    student.backward(seen(x), saved, seen(dy), {}, causal);
    for (const heed::Parameter& p : student.parameters()) {
      for (std::size_t i = 0; i < p.values.size(); ++i) p.values[i] -= 0.05F * p.gradient[i];
    }
    if (step % 200 == 0) std::printf("step %3d: loss %9.6f\n", step, loss);
  }
}

// heed's side of bench/modules.py: a multi-head attention that runs when a line on stdin asks, and
// tells the seconds it took.
//
// heed_bench_modules BATCH LENGTH D_MODEL HEADS THREADS; lines are "forward" (evaluation) and
// "step" (forward, backward, with the gradient of x).
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "heed/heed.h"

int main(int count, char** arguments) try {
  if (count != 6) {
    std::fputs("heed_bench_modules BATCH LENGTH D_MODEL HEADS THREADS\n", stderr);
    return 2;
  }
  const std::int64_t batch = std::atoll(arguments[1]), length = std::atoll(arguments[2]);
  const std::int64_t d_model = std::atoll(arguments[3]);
  const heed::Execution execution{.threads = std::atoi(arguments[5])};
  heed::MultiHeadAttention module(
      {.d_model = d_model, .heads = std::atoll(arguments[4]), .bias = true});
  const auto drawn = [&](std::uint64_t seed) {
    std::vector<float> numbers(static_cast<std::size_t>(batch * length * d_model));
    heed::initialise(numbers, batch * length, d_model,
                     {.draw = heed::Draw::constant_deviation, .deviation = 1, .seed = seed});
    return numbers;
  };
  std::vector<float> x = drawn(1), d_output = drawn(2), output = drawn(3), dx = drawn(4);
  const auto seen = [&](std::vector<float>& numbers) {
    return heed::view(numbers.data(), {batch, length, d_model});
  };
  heed::SavedAttention saved;
  for (std::string line; std::getline(std::cin, line);) {
    const auto begin = std::chrono::steady_clock::now();
    if (line == "forward") {
      module.forward({.x = seen(x)}, {.output = seen(output)}, {}, execution);
    } else {
      module.zero_gradients();
      module.forward({.x = seen(x)}, {.output = seen(output), .saved = &saved}, {}, execution);
      module.backward({.x = seen(x)}, saved, seen(d_output), {.dx = seen(dx)}, {}, execution);
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("%.9f\n", took.count());
    std::fflush(stdout);
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "heed_bench_modules: %s\n", error.what());
  return 2;
}

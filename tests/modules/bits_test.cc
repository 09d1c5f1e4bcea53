// The same bits for any number of threads, executors, batches and instruction sets.
#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "called.h"
#include "forward/draws.h"
#include "forward/executors.h"

namespace heed_test {
namespace {

Asked large() {
  return {.module = {.d_model = 48,
                     .heads = 6,
                     .kv_heads = 3,
                     .bias = true,
                     .temperature = heed::Temperature::per_head},
          .batches = 3,
          .queries = 150,
          .with_bias = true,
          .causal = true};
}

Numbers run_fresh(const Asked& asked, const Numbers& inputs, const heed::Execution& execution) {
  heed::MultiHeadAttention module(asked.module);
  draw_parameters(module.parameters(), 8);
  return run(module, asked, inputs, execution);
}

void expect_same(const Numbers& a, const Numbers& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, numbers] : a) EXPECT_TRUE(same_bits(numbers, b.at(name))) << name;
}

/// Runs tasks from the last to the first, under many worker ids.
class Backwards : public heed::Executor {
 public:
  int workers() const override { return 7; }
  void run(std::int64_t tasks, void (*task)(void*, std::int64_t, int), void* context) override {
    for (std::int64_t i = tasks; i-- > 0;) task(context, i, static_cast<int>(i % 7));
  }
};

TEST(multi_head_attention, has_the_same_bits_for_any_threads_and_executor) {
  const Asked asked = large();
  const Numbers inputs = draw_inputs(asked);
  const Numbers one = run_fresh(asked, inputs, {.threads = 1});
  for (const int threads : thread_counts()) {
    SCOPED_TRACE(threads);
    expect_same(run_fresh(asked, inputs, {.threads = threads}), one);
  }
  Backwards backwards;
  expect_same(run_fresh(asked, inputs, {.executor = &backwards}), one);
}

// A linear layer takes fewer threads than it is offered, unless there is work for all.
TEST(linear, has_the_same_bits_where_64_threads_share) {
  constexpr std::int64_t kRows = 1500, kIn = 200, kOut = 180;
  Random random(9);
  std::vector<float> x(kRows * kIn), dy(kRows * kOut);
  for (float& value : x) value = static_cast<float>(random.normal());
  for (float& value : dy) value = static_cast<float>(random.normal());
  const auto in = heed::view(std::as_const(x).data(), {kRows, kIn});
  const auto gradient = heed::view(std::as_const(dy).data(), {kRows, kOut});
  const auto run = [&](const heed::Execution& execution) {
    heed::Linear linear({.inputs = kIn, .outputs = kOut, .bias = true});
    draw_parameters(linear.parameters(), 6);
    std::vector<float> y(dy.size()), dx(x.size());
    linear.forward(in, heed::view(y.data(), {kRows, kOut}), execution);
    linear.backward(in, gradient, heed::view(dx.data(), {kRows, kIn}), execution);
    y.insert(y.end(), dx.begin(), dx.end());
    for (const heed::Parameter& p : linear.parameters())
      y.insert(y.end(), p.gradient.begin(), p.gradient.end());
    return y;
  };
  expect_same_where_64_threads_share(run, [](const auto& many, const auto& one) {
    return std::memcmp(many.data(), one.data(), one.size() * sizeof(float)) == 0;
  });
}

/// As many workers at the first question as promised, and more at each further one.
class Growing final : public heed::Executor {
 public:
  [[nodiscard]] int workers() const override { return 2 + asked_++; }
  void run(std::int64_t tasks, void (*task)(void*, std::int64_t, int), void* context) override {
    for (std::int64_t i = 0; i < tasks; ++i) task(context, i, 1);
  }
  mutable int asked_ = 0;
};

TEST(multi_head_attention, asks_an_executor_for_its_workers_once) {
  const Asked asked{.module = {.d_model = 128, .heads = 4}, .queries = 200};
  heed::MultiHeadAttention module(asked.module);
  const Numbers inputs = draw_inputs(asked);
  Growing executor;
  const Numbers got = run(module, asked, inputs, {.executor = &executor});
  EXPECT_EQ(executor.asked_, 2) << "forward and backward";
  module.zero_gradients();
  for (const auto& [name, numbers] : run(module, asked, inputs)) {
    EXPECT_TRUE(same_bits(numbers, got.at(name))) << name;
  }
}

TEST(multi_head_attention, has_the_same_bits_on_every_instruction_set) {
  const Asked asked = large();
  const Numbers inputs = draw_inputs(asked);
  Numbers scalar;
  {
    const Forced forced(heed::Isa::scalar);
    scalar = run_fresh(asked, inputs, {});
  }
  for (const heed::Isa isa : runnable_isas()) {
    SCOPED_TRACE(std::string(name_of(isa)));
    const Forced forced(isa);
    expect_same(run_fresh(asked, inputs, {}), scalar);
  }
}

TEST(multi_head_attention, gives_a_batch_entry_the_same_bits_alone) {
  Asked all = large();
  all.with_bias = false;
  const Numbers inputs = draw_inputs(all);
  const Numbers together = run_fresh(all, inputs, {});
  Asked alone = all;
  alone.batches = 1;
  const std::size_t size = inputs.at("x").size() / 3;
  for (std::size_t b = 0; b < 3; ++b) {
    const auto part = [&](const std::vector<float>& numbers) {
      const auto begin = numbers.begin() + static_cast<std::ptrdiff_t>(b * size);
      return std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(size));
    };
    const Numbers one = run_fresh(
        alone, {{"x", part(inputs.at("x"))}, {"d_output", part(inputs.at("d_output"))}}, {});
    EXPECT_TRUE(same_bits(one.at("output"), part(together.at("output")))) << b;
    EXPECT_TRUE(same_bits(one.at("x"), part(together.at("x")))) << b;
  }
}

/// Without dropout a training step computes what evaluation computes; in evaluation dropout does
/// not act.
TEST(multi_head_attention, has_the_bits_of_no_dropout_in_evaluation) {
  Asked asked = large();
  const Numbers inputs = draw_inputs(asked);
  const Numbers without = run_fresh(asked, inputs, {});
  asked.module.dropout = 0.5;
  heed::MultiHeadAttention module(asked.module);
  EXPECT_EQ(module.mode(), heed::Mode::training);
  module.set_mode(heed::Mode::evaluation);
  draw_parameters(module.parameters(), 8);
  expect_same(run(module, asked, inputs), without);
}

TEST(multi_head_attention, runs_without_saving_with_the_same_bits) {
  const Asked asked = large();
  Numbers inputs = draw_inputs(asked);
  heed::MultiHeadAttention module(asked.module);
  draw_parameters(module.parameters(), 8);
  std::vector<float> output(inputs["x"].size());
  module.forward(
      {.x = heed::view(inputs["x"].data(), {3, 150, 48})},
      {.output = heed::view(output.data(), {3, 150, 48})},
      {.bias = heed::view(inputs["bias"].data(), {3, 6, 150, 150}), .mask = {.causal = true}});
  EXPECT_TRUE(same_bits(output, run(module, asked, inputs).at("output")));
}

}  // namespace
}  // namespace heed_test

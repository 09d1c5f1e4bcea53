// Attention between rows, forward and backward, beside the formula in double; the formula's
// gradients beside central differences of itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "called.h"
#include "forward/support.h"

namespace heed_test {
namespace {

std::vector<Asked> cases() {
  using T = heed::Temperature;
  return {
      {.module = {.d_model = 1, .heads = 1}},
      {.module = {.d_model = 24, .heads = 3}, .batches = 2, .queries = 9, .causal = true},
      {.module = {.d_model = 32, .heads = 4, .bias = true}, .batches = 3, .queries = 33},
      {.module = {.d_model = 40,
                  .heads = 4,
                  .kv_heads = 2,
                  .head_size = 7,
                  .value_size = 13,
                  .bias = true,
                  .temperature = T::per_head},
       .batches = 2,
       .queries = 17,
       .with_bias = true,
       .causal = true},
      {.module = {.d_model = 20, .heads = 6, .kv_heads = 1, .head_size = 16, .temperature = T::one},
       .batches = 1,
       .queries = 70},
      {.module = {.d_model = 48, .heads = 2, .value_size = 5, .d_keys = 30},
       .batches = 2,
       .queries = 5,
       .keys = 130},
      {.module = {.d_model = 16,
                  .heads = 2,
                  .d_keys = 24,
                  .d_values = 9,
                  .bias = true,
                  .temperature = T::one},
       .batches = 2,
       .queries = 40,
       .keys = 11,
       .with_values = true,
       .with_bias = true},
      {.module = {.d_model = 192, .heads = 3, .bias = true}, .batches = 2, .queries = 100},
      {.module = {.d_model = 16, .heads = 1, .bias = true}, .queries = 20, .keys = 800},
  };
}

std::string describe(const Asked& a) {
  return "d_model " + std::to_string(a.module.d_model) + ", heads " +
         std::to_string(a.module.heads) + ", batches " + std::to_string(a.batches) + ", queries " +
         std::to_string(a.queries) + ", keys " + std::to_string(a.keys);
}

double norm(const std::vector<double>& numbers) {
  double sum = 0;
  for (const double x : numbers) sum += x * x;
  return std::sqrt(sum);
}

double distance(const std::vector<float>& a, const std::vector<double>& b) {
  std::vector<double> apart(b);
  for (std::size_t i = 0; i < b.size(); ++i) apart[i] -= static_cast<double>(a[i]);
  return norm(apart);
}

TEST(multi_head_attention, and_its_gradients_are_those_of_the_formula) {
  std::map<std::string, double> worst, norms;
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    for (const Asked& asked : cases()) {
      heed::MultiHeadAttention module(asked.module);
      draw_parameters(module.parameters(), 21);
      const Numbers inputs = draw_inputs(asked);
      const Numbers got = run(module, asked, inputs);
      const auto truth = by_formula(formula_of(module, asked, inputs));
      ASSERT_EQ(got.size(), truth.size());
      for (const auto& [name, known] : truth) {
        const double share = worst_share(got.at(name), known);
        EXPECT_LE(share, 1) << name << ", " << name_of(isa) << ", " << describe(asked);
        worst[name] = std::max(worst[name], share);
        // The bounds add up the worst of every step, so they alone might hide a small term left
        // out. The gradient of b_k is 0 but for rounding: it moves all scores of a row alike.
        const double size = norm(truth.at(name == "b_k" ? "W_k" : name).value);
        const double off = distance(got.at(name), known.value) / (size + 1e-3);
        EXPECT_LE(off, 2e-6) << name << ", " << name_of(isa) << ", " << describe(asked);
        norms[name] = std::max(norms[name], off);
      }
    }
  }
  for (const auto& [name, share] : worst) {
    std::printf("%-12s %.4f of its bound, %.1e of its norm at most\n", name.c_str(), share,
                norms[name]);
  }
}

/// The formula's gradients hold on their own: each number in turn is moved by h.
TEST(formula, has_the_gradients_of_central_differences) {
  using T = heed::Temperature;
  const std::vector<Asked> small{
      {.module =
           {.d_model = 4, .heads = 2, .kv_heads = 1, .bias = true, .temperature = T::per_head},
       .batches = 2,
       .queries = 3,
       .with_bias = true,
       .causal = true},
      {.module = {.d_model = 3,
                  .heads = 1,
                  .value_size = 2,
                  .d_keys = 2,
                  .d_values = 5,
                  .temperature = T::one},
       .batches = 1,
       .queries = 2,
       .keys = 4,
       .with_values = true}};
  for (const Asked& asked : small) {
    heed::MultiHeadAttention module(asked.module);
    draw_parameters(module.parameters(), 31);
    const Formula formula = formula_of(module, asked, draw_inputs(asked));
    const auto gradients = by_formula(formula);
    const auto loss = [](Formula f) {
      const std::vector<double> dy = f.numbers.at("d_output");
      f.numbers.erase("d_output");
      const auto output = by_formula(f).at("output");
      double sum = 0;
      for (std::size_t i = 0; i < dy.size(); ++i) sum += dy[i] * output.value[i];
      return sum;
    };
    for (const auto& [name, gradient] : gradients) {
      if (name == "output") continue;
      for (std::size_t i = 0; i < gradient.value.size(); ++i) {
        constexpr double kStep = 1e-5;
        Formula plus = formula, minus = formula;
        plus.numbers[name][i] += kStep;
        minus.numbers[name][i] -= kStep;
        const double difference = (loss(plus) - loss(minus)) / (2 * kStep);
        EXPECT_NEAR(gradient.value[i], difference, 1e-8 * (1 + std::fabs(difference)))
            << name << "[" << i << "]";
      }
    }
  }
}

TEST(self_attention, is_multi_head_attention_with_one_head) {
  const Asked asked{.module = {.d_model = 12, .heads = 1, .head_size = 5, .value_size = 7},
                    .batches = 2,
                    .queries = 6,
                    .with_bias = true,
                    .causal = true};
  heed::MultiHeadAttention many(asked.module);
  heed::SelfAttention one({.d_model = 12, .d_k = 5, .d_v = 7});
  const auto parameters = one.parameters();
  ASSERT_EQ(parameters.size(), 4u);  // without bias by default
  EXPECT_EQ(parameters[0].name, "W_q");
  EXPECT_EQ(parameters[2].shape, (std::vector<std::int64_t>{7, 12}));
  EXPECT_EQ(parameters[3].shape, (std::vector<std::int64_t>{12, 7}));
  draw_parameters(many.parameters(), 3);
  draw_parameters(parameters, 3);
  Numbers inputs = draw_inputs(asked);
  const Numbers wanted = run(many, asked, inputs);
  std::vector<float> output(inputs["x"].size()), dx(output.size());
  heed::SavedAttention saved;
  const heed::AttentionOptions options{.bias = heed::view(inputs["bias"].data(), {2, 1, 6, 6}),
                                       .mask = {.causal = true}};
  const auto x = heed::view(inputs["x"].data(), {2, 6, 12});
  one.forward(x, {.output = heed::view(output.data(), {2, 6, 12}), .saved = &saved}, options);
  one.backward(x, saved, heed::view(inputs["d_output"].data(), {2, 6, 12}),
               {.dx = heed::view(dx.data(), {2, 6, 12})}, options);
  EXPECT_TRUE(same_bits(output, wanted.at("output")));
  EXPECT_TRUE(same_bits(dx, wanted.at("x")));
  for (const heed::Parameter& p : parameters) {
    EXPECT_TRUE(same_bits({p.gradient.begin(), p.gradient.end()}, wanted.at(p.name))) << p.name;
  }
}

TEST(multi_head_attention, takes_one_sequence_without_a_batch_axis) {
  const Asked asked{.module = {.d_model = 8, .heads = 2}, .queries = 5};
  heed::MultiHeadAttention module(asked.module);
  Numbers inputs = draw_inputs(asked);
  const Numbers wanted = run(module, asked, inputs);
  std::vector<float> output(40);
  module.forward({.x = heed::view(inputs["x"].data(), {5, 8})},
                 {.output = heed::view(output.data(), {5, 8})});
  EXPECT_TRUE(same_bits(output, wanted.at("output")));
}

TEST(multi_head_attention, gives_weights_and_statistics_of_every_head) {
  const Asked asked{.module = {.d_model = 8, .heads = 2}, .batches = 3, .queries = 5};
  heed::MultiHeadAttention module(asked.module);
  Numbers inputs = draw_inputs(asked);
  std::vector<float> output(120), weights(150), entropy(30);
  const heed::RowStatistics statistics{.entropy = heed::view(entropy.data(), {3, 2, 5})};
  module.forward({.x = heed::view(inputs["x"].data(), {3, 5, 8})},
                 {.output = heed::view(output.data(), {3, 5, 8}),
                  .weights = heed::view(weights.data(), {3, 2, 5, 5}),
                  .statistics = &statistics},
                 {.mask = {.causal = true}});
  EXPECT_TRUE(same_bits(
      output, run(module, {asked.module, 3, 5, 0, false, false, true}, inputs).at("output")));
  for (std::size_t row = 0; row < 30; ++row) {
    double sum = 0;
    for (std::size_t j = 0; j < 5; ++j) sum += static_cast<double>(weights[row * 5 + j]);
    EXPECT_NEAR(sum, 1, 1e-6);
    EXPECT_EQ(entropy[row] == 0, row % 5 == 0);  // one visible key
  }
}

TEST(multi_head_attention, leaves_rows_without_keys_the_bias_of_the_output_alone) {
  const Asked asked{.module = {.d_model = 6, .heads = 2, .bias = true}, .queries = 4};
  heed::MultiHeadAttention module(asked.module);
  draw_parameters(module.parameters(), 4);
  Numbers inputs = draw_inputs(asked);
  std::vector<float> output(24, NAN);
  module.forward({.x = heed::view(inputs["x"].data(), {4, 6})},
                 {.output = heed::view(output.data(), {4, 6})},
                 {.mask = {.key_lengths = std::int64_t{0}}});
  const auto parameters = module.parameters();
  const auto& b_o = parameters.back();
  ASSERT_EQ(b_o.name, "b_o");
  for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(output[i], b_o.values[i % 6]);
}

}  // namespace
}  // namespace heed_test

// What modules hold themselves is no place for a result, and no input lies where they save.
#include <gtest/gtest.h>

#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heed/heed.h"
#include "refusals.h"

namespace heed_test {
namespace {

/// The module's own memory is read and written, too. One row of four numbers fits in all of it.
TEST(multi_head_attention, refuses_results_in_its_own_memory) {
  heed::MultiHeadAttention module({.d_model = 4,
                                   .heads = 4,
                                   .d_keys = 6,
                                   .d_values = 5,
                                   .bias = true,
                                   .temperature = heed::Temperature::per_head});
  const std::vector<float> x = memory(4), context = memory(30), values = memory(25);
  const heed::AttendingRows rows{.x = heed::view(x.data(), {1, 1, 4}),
                                 .context = heed::view(context.data(), {1, 5, 6}),
                                 .values = heed::view(values.data(), {1, 5, 5})};
  std::vector<float> output = memory(4);
  heed::SavedAttention saved;
  module.forward(rows, {.output = heed::view(output.data(), {1, 1, 4}), .saved = &saved});
  const auto into = [](std::span<float> memory) { return heed::view(memory.data(), {1, 1, 4}); };
  const auto forward = [&](std::span<float> memory) {
    return said_by("MultiHeadAttention::forward", message_of([&] {
                     module.forward(rows, {.output = into(memory), .saved = &saved});
                   }));
  };
  const auto backward = [&](std::span<float> memory) {
    return said_by("MultiHeadAttention::backward", message_of([&] {
                     module.backward(rows, saved, into(output), {.dx = into(memory)});
                   }));
  };
  const std::string own = " in memory; expected memory of its own";
  const std::pair<const char*, std::vector<float>*> kept[] = {{"saved.q", &saved.q},
                                                              {"saved.k", &saved.k},
                                                              {"saved.v", &saved.v},
                                                              {"saved.attended", &saved.attended},
                                                              {"saved.lse", &saved.lse}};
  for (const auto& [name, memory] : kept) {
    EXPECT_EQ(forward(*memory), "output overlaps " + std::string(name) + own);
    EXPECT_EQ(backward(*memory), "dx overlaps " + std::string(name) + own);
  }
  const char* const gradients[] = {
      "the gradient of W_q", "the gradient of b_q", "the gradient of W_k",
      "the gradient of b_k", "the gradient of W_v", "the gradient of b_v",
      "the gradient of W_o", "the gradient of b_o", "the gradient of temperature"};
  const std::vector<heed::Parameter> parameters = module.parameters();
  ASSERT_EQ(parameters.size(), std::size(gradients));
  for (std::size_t n = 0; n < parameters.size(); ++n) {
    const heed::Parameter& p = parameters[n];
    EXPECT_EQ(forward(p.values), "output overlaps " + p.name + own);
    EXPECT_EQ(backward(p.values), "dx overlaps " + p.name + own);
    EXPECT_EQ(backward(p.gradient), "dx overlaps " + std::string(gradients[n]) + own);
    for (const float g : p.gradient) EXPECT_EQ(g, 0);
  }
}

/// What forward() saves is written before all of its input is read, and may move.
TEST(multi_head_attention, refuses_to_save_where_its_input_lies) {
  const heed::MultiHeadAttention module({.d_model = 4, .heads = 2, .d_keys = 4, .d_values = 4});
  std::vector<float> output = memory(12);
  heed::SavedAttention saved;
  const std::vector<float> x = memory(12);
  const heed::ConstTensorView rows = heed::view(x.data(), {1, 3, 4});
  const heed::MultiHeadOutputs outputs{.output = heed::view(output.data(), {1, 3, 4}),
                                       .saved = &saved};
  module.forward({.x = rows}, outputs);
  const std::vector<float> before = saved.q;
  const heed::ConstTensorView in_q = heed::view(saved.q.data(), {1, 3, 4});
  const heed::ConstTensorView bias = heed::view(saved.k.data(), {3, 3});
  const auto told = [&](const heed::AttendingRows& from, const heed::AttentionOptions& options) {
    return said_by("MultiHeadAttention::forward",
                   message_of([&] { module.forward(from, outputs, options); }));
  };
  const std::string own = " in memory; expected memory of its own";
  EXPECT_EQ(told({.x = in_q}, {}), "saved.q overlaps x" + own);
  EXPECT_EQ(told({.x = rows, .context = in_q}, {}), "saved.q overlaps context" + own);
  EXPECT_EQ(told({.x = rows, .context = rows, .values = in_q}, {}),
            "saved.q overlaps values" + own);
  EXPECT_EQ(told({.x = rows}, {.bias = bias}), "saved.k overlaps bias" + own);
  EXPECT_EQ(saved.q, before);
}

}  // namespace
}  // namespace heed_test

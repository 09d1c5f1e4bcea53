// What modules refuse: who complains, what was expected, what came; and that nothing was written
// then.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "heed/heed.h"
#include "refusals.h"

namespace heed_test {
namespace {

bool untouched(const std::vector<float>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](float x) { return x == 7.0f; });
}

TEST(linear, refuses_sizes_that_are_none) {
  EXPECT_EQ(message_of([] { heed::Linear({.inputs = 0, .outputs = 1}); }),
            "Linear: inputs is 0; expected 1 or more");
  EXPECT_EQ(message_of([] { heed::Linear({.inputs = 1, .outputs = -2}); }),
            "Linear: outputs is -2; expected 1 or more");
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max() / 2;
  EXPECT_EQ(message_of([&] { heed::Linear({.inputs = huge, .outputs = 3}); }),
            "Linear: no memory for 3 x 4611686018427387903 numbers, 4 bytes each");
  EXPECT_EQ(message_of([] {
              heed::Linear({.inputs = 1, .outputs = 1, .initialisation = {.deviation = -1}});
            }),
            "Linear: deviation is -1; expected 0 .. 5.67e+37");
}

TEST(linear, refuses_views_that_do_not_fit) {
  const heed::Linear linear({.inputs = 4, .outputs = 3});
  auto x = memory(40), y = memory(30);
  const auto forward = [&](const heed::ConstTensorView& from, const heed::TensorView& to) {
    const std::string message = message_of([&] { linear.forward(from, to); });
    EXPECT_TRUE(untouched(y)) << message;
    return message;
  };
  const auto good_x = heed::view(x.data(), {10, 4});
  const auto good_y = heed::view(y.data(), {10, 3});
  EXPECT_EQ(forward({}, good_y), "Linear::forward: x is absent; expected a view to read from");
  EXPECT_EQ(forward(heed::view(x.data(), {8, 5}), good_y),
            "Linear::forward: x has shape [8, 5]; expected rows of 4");
  EXPECT_EQ(forward(heed::view(x.data(), {4}), good_y),
            "Linear::forward: x has rank 1; expected 2 .. 4");
  EXPECT_EQ(
      forward(heed::view(static_cast<const void*>(x.data()), heed::DType::f64, {5, 4}), good_y),
      "Linear::forward: x is float64; expected float32");
  EXPECT_EQ(
      forward(heed::view(static_cast<float*>(nullptr), {10, 4}), good_y),
      "Linear::forward: x has shape [10, 4] but no data; expected a pointer that is not null");
  EXPECT_EQ(forward(good_x, heed::view(y.data(), {9, 3})),
            "Linear::forward: y has shape [9, 3]; expected [10, 3]");
  EXPECT_EQ(forward(good_x, heed::view(y.data(), {2, 5, 3})),
            "Linear::forward: y has shape [2, 5, 3]; expected [10, 3]");
  heed::TensorView folded = good_y;
  folded.stride[0] = 0;
  EXPECT_EQ(forward(good_x, folded),
            "Linear::forward: y has shape [10, 3] and strides [0, 1]; no two of its elements may "
            "share memory");
  EXPECT_EQ(forward(heed::view(y.data(), {7, 4}), heed::view(y.data() + 4, {7, 3})),
            "Linear::forward: y overlaps x in memory; expected memory of its own");
  const auto in_weight = heed::view(const_cast<float*>(linear.weight().data()), {1, 3});
  EXPECT_EQ(forward(heed::view(x.data(), {1, 4}), in_weight),
            "Linear::forward: y overlaps weight in memory; expected memory of its own");
  EXPECT_EQ(message_of([&] { linear.forward(good_x, good_y, {.threads = -1}); }),
            "Linear::forward: execution.threads is -1; expected 0 (all) .. 4096");
  EXPECT_TRUE(untouched(y));
}

TEST(linear, refuses_gradients_that_do_not_fit) {
  heed::Linear linear({.inputs = 4, .outputs = 3, .bias = true});
  auto x = memory(40), dy = memory(30), dx = memory(40);
  const auto good_x = heed::view(x.data(), {10, 4});
  EXPECT_EQ(message_of([&] {
              linear.backward(good_x, heed::view(dy.data(), {10, 2}));
            }),
            "Linear::backward: dy has shape [10, 2]; expected rows of 3");
  EXPECT_EQ(
      message_of([&] {
        linear.backward(good_x, heed::view(dy.data(), {10, 3}), heed::view(dx.data(), {5, 4}));
      }),
      "Linear::backward: dx has shape [5, 4]; expected [10, 4]");
  EXPECT_EQ(
      message_of([&] {
        linear.backward(good_x, heed::view(dy.data(), {10, 3}), heed::view(x.data(), {10, 4}));
      }),
      "Linear::backward: dx overlaps x in memory; expected memory of its own");
  const auto in_gradient = heed::view(linear.weight_gradient().data(), {1, 4});
  EXPECT_EQ(
      message_of([&] {
        linear.backward(heed::view(x.data(), {1, 4}), heed::view(dy.data(), {1, 3}), in_gradient);
      }),
      "Linear::backward: dx overlaps the gradient of weight in memory; expected memory of "
      "its own");
  EXPECT_EQ(message_of([&] {
              linear.backward(heed::view(x.data(), {1, 4}),
                              heed::view(linear.bias_gradient().data(), {1, 3}));
            }),
            "Linear::backward: the gradient of bias overlaps dy in memory; expected memory of its "
            "own");
  EXPECT_EQ(message_of([&] {
              linear.backward(heed::view(x.data(), {1, 4}),
                              heed::view(linear.weight_gradient().data(), {1, 3}));
            }),
            "Linear::backward: the gradient of weight overlaps dy in memory; expected memory of "
            "its own");
  EXPECT_TRUE(untouched(dx));
  for (const float g : linear.weight_gradient()) EXPECT_EQ(g, 0);
}

TEST(multi_head_attention, refuses_sizes_that_do_not_fit_each_other) {
  const auto made = [](const heed::MultiHeadAttentionOptions& options) {
    return message_of([&] { heed::MultiHeadAttention{options}; });
  };
  EXPECT_EQ(made({.d_model = 0, .heads = 1}),
            "MultiHeadAttention: d_model is 0; expected 1 or more");
  EXPECT_EQ(made({.d_model = 8, .heads = 0}), "MultiHeadAttention: heads is 0; expected 1 or more");
  EXPECT_EQ(made({.d_model = 8, .heads = 3}),
            "MultiHeadAttention: heads is 3; expected a divisor of 8, which is d_model, or a "
            "head_size");
  EXPECT_EQ(made({.d_model = 8, .heads = 4, .kv_heads = 3}),
            "MultiHeadAttention: kv_heads is 3; expected a divisor of 4, the number of heads");
  EXPECT_EQ(made({.d_model = 8, .heads = 2, .kv_heads = -2}),
            "MultiHeadAttention: kv_heads is -2; expected 1 or more");
  EXPECT_EQ(made({.d_model = 8, .heads = 2, .head_size = -1}),
            "MultiHeadAttention: head_size is -1; expected 1 or more");
  EXPECT_EQ(made({.d_model = 8, .heads = std::int64_t{1} << 61, .head_size = 4}),
            "MultiHeadAttention: heads is 2305843009213693952; heads times their size must fit 63 "
            "bits");
  EXPECT_EQ(made({.d_model = 8, .heads = std::int64_t{1} << 61, .head_size = 1, .value_size = 4}),
            "MultiHeadAttention: heads is 2305843009213693952; heads times their size must fit 63 "
            "bits");
  EXPECT_EQ(made({.d_model = 8, .heads = 2, .dropout = 1}),
            "MultiHeadAttention: dropout is 1; expected 0 <= p < 1, and 1 - p above 2^-17");
  EXPECT_EQ(made({.d_model = 8, .heads = 2, .dropout = NAN}),
            "MultiHeadAttention: dropout is nan; expected 0 <= p < 1, and 1 - p above 2^-17");
  EXPECT_EQ(made({.d_model = 8, .heads = 2, .initialisation = {.deviation = -1}}),
            "MultiHeadAttention: deviation is -1; expected 0 .. 5.67e+37");
}

TEST(self_attention, refuses_sizes_by_the_names_of_its_own_options) {
  const auto made = [](const heed::SelfAttentionOptions& options) {
    return message_of([&] { heed::SelfAttention{options}; });
  };
  EXPECT_EQ(made({.d_model = 0}), "SelfAttention: d_model is 0; expected 1 or more");
  EXPECT_EQ(made({.d_model = 4, .d_k = -1}), "SelfAttention: d_k is -1; expected 1 or more");
  EXPECT_EQ(made({.d_model = 4, .d_v = -2}), "SelfAttention: d_v is -2; expected 1 or more");
  EXPECT_EQ(made({.d_model = 4, .dropout = 1}),
            "SelfAttention: dropout is 1; expected 0 <= p < 1, and 1 - p above 2^-17");
}

TEST(initialise, refuses_numbers_that_float32_cannot_hold_and_draws_that_are_none) {
  std::vector<float> weight(6, 7.0F);
  const auto drawn = [&](const heed::Initialisation& how) {
    return message_of([&] { heed::initialise(weight, 2, 3, how); });
  };
  const heed::Draw constant = heed::Draw::constant_deviation;
  EXPECT_EQ(drawn({.draw = constant, .deviation = 5.68e37}),
            "initialise: deviation is 5.68e+37; expected 0 .. 5.67e+37");
  EXPECT_EQ(drawn({.draw = static_cast<heed::Draw>(4)}), "initialise: draw is 4, which is no Draw");
  EXPECT_TRUE(untouched(weight));
  EXPECT_EQ(drawn({.draw = constant, .deviation = 5.67e37}), "nothing was thrown");
  for (const float x : weight) EXPECT_TRUE(std::isfinite(x));
}

TEST(multi_head_attention, refuses_numbers_that_its_enumerations_do_not_have) {
  using Options = heed::MultiHeadAttentionOptions;
  const auto temperature = static_cast<heed::Temperature>(3);
  EXPECT_EQ(
      message_of([&] {
        heed::MultiHeadAttention(Options{.d_model = 4, .heads = 2, .temperature = temperature});
      }),
      "MultiHeadAttention: temperature is 3, which is no Temperature");
  EXPECT_EQ(message_of([&] { heed::SelfAttention({.d_model = 4, .temperature = temperature}); }),
            "SelfAttention: temperature is 3, which is no Temperature");
  heed::MultiHeadAttention module({.d_model = 4, .heads = 2, .dropout = 0.5});
  module.set_mode(static_cast<heed::Mode>(2));
  auto x = memory(12), y = memory(12);
  EXPECT_EQ(message_of([&] {
              module.forward({.x = heed::view(x.data(), {3, 4})},
                             {.output = heed::view(y.data(), {3, 4})});
            }),
            "MultiHeadAttention::forward: mode is 2, which is no Mode");
  EXPECT_TRUE(untouched(y));
}

TEST(self_attention, refuses_calls_in_its_own_name) {
  heed::SelfAttention one({.d_model = 4});
  auto x = memory(24), y = memory(24);
  const auto rows = heed::view(x.data(), {2, 3, 4});
  heed::SavedAttention saved;
  EXPECT_EQ(message_of([&] {
              one.forward(heed::view(x.data(), {4, 3, 2}), {.output = rows});
            }),
            "SelfAttention::forward: x has shape [4, 3, 2]; expected rows of 4");
  EXPECT_EQ(message_of([&] { one.backward(rows, saved, rows); }),
            "SelfAttention::backward: saved holds [0, 0] rows and 0 keys; expected those of a "
            "forward call with [2, 3] and 3");
  const auto gradient = heed::view(y.data(), {2, 3, 4});
  const std::string none = " is given; expected none, for keys and values are made of x";
  EXPECT_EQ(message_of([&] { one.backward(rows, saved, rows, {.dcontext = gradient}); }),
            "SelfAttention::backward: dcontext" + none);
  EXPECT_EQ(message_of([&] { one.backward(rows, saved, rows, {.dvalues = gradient}); }),
            "SelfAttention::backward: dvalues" + none);
  EXPECT_TRUE(untouched(x) && untouched(y));
}

/// A module with its own sizes of keys and values, and everything that fits it.
struct Fitting {
  heed::MultiHeadAttention module{{.d_model = 4, .heads = 2, .d_keys = 6, .d_values = 5}};
  std::vector<float> x = memory(24), context = memory(60), values = memory(50);
  std::vector<float> output = memory(24), dy = memory(24), dx = memory(24), bias = memory(30);
  heed::AttendingRows rows{.x = heed::view(x.data(), {2, 3, 4}),
                           .context = heed::view(context.data(), {2, 5, 6}),
                           .values = heed::view(values.data(), {2, 5, 5})};
  heed::MultiHeadOutputs outputs{.output = heed::view(output.data(), {2, 3, 4})};
  heed::AttentionOptions options;

  std::string forward() {
    const std::string message = message_of([&] { module.forward(rows, outputs, options); });
    EXPECT_TRUE(untouched(output)) << message;
    return said_by("MultiHeadAttention::forward", message);
  }
};

TEST(multi_head_attention, refuses_rows_that_do_not_fit) {
  const auto told = [](const auto& change) {
    Fitting f;
    change(f);
    return f.forward();
  };
  EXPECT_EQ(told([](Fitting& f) { f.rows.x.shape[2] = 3; }),
            "x has shape [2, 3, 3]; expected rows of 4");
  EXPECT_EQ(told([](Fitting& f) { f.rows.context = {}; }),
            "values is given, but not context; expected both");
  EXPECT_EQ(told([](Fitting& f) { f.rows.context = f.rows.values = {}; }),
            "x has shape [2, 3, 4]; expected rows of 6");
  EXPECT_EQ(told([](Fitting& f) { f.rows.values = {}; }),
            "context has shape [2, 5, 6]; expected rows of 5");
  EXPECT_EQ(told([](Fitting& f) {
              f.rows.context = heed::view(f.context.data(), {5, 6});
            }),
            "context has rank 2; expected 3 .. 3");
  EXPECT_EQ(told([](Fitting& f) { f.rows.context.shape[0] = 1; }),
            "batch size of context is 1, of x 2; they must be equal");
  EXPECT_EQ(told([](Fitting& f) { f.rows.values.shape[1] = 4; }),
            "number of rows of values is 4, of context 5; they must be equal");
  EXPECT_EQ(told([](Fitting& f) { f.outputs.output.shape[1] = 2; }),
            "output has shape [2, 2, 4]; expected [2, 3, 4]");
  EXPECT_EQ(told([](Fitting& f) { f.outputs.output = {}; }),
            "output is absent; expected a view to write to");
  EXPECT_EQ(told([](Fitting& f) { f.rows.x = f.outputs.output; }),
            "output overlaps x in memory; expected memory of its own");
}

TEST(multi_head_attention, refuses_results_that_do_not_fit) {
  Fitting f;
  heed::SavedAttention saved;
  auto weights = memory(60);
  f.outputs.saved = &saved;
  const heed::RowStatistics statistics{.entropy = heed::view(f.output.data(), {2, 2, 3})};
  f.outputs.statistics = &statistics;
  EXPECT_EQ(f.forward(),
            "output overlaps statistics.entropy in memory; expected memory of its own");
  f.outputs.statistics = nullptr;
  f.outputs.weights = heed::view(weights.data(), {2, 2, 5, 3});
  EXPECT_EQ(f.forward(), "weights has shape [2, 2, 5, 3]; expected [2, 2, 3, 5]");
  f.outputs.weights = heed::view(weights.data(), heed::DType::f64, {2, 2, 3, 5});
  EXPECT_EQ(f.forward(), "weights is float64; expected float32, the type of q");
  f.outputs.weights = heed::view(weights.data(), {1, 2, 3, 5});
  const std::int64_t queries[] = {0, 3}, keys[] = {0, 5};
  f.options.packing = {heed::view(queries, {2}), heed::view(keys, {2})};
  for (heed::ConstTensorView* view : {&f.rows.x, &f.rows.context, &f.rows.values}) {
    view->shape[0] = 1;
  }
  f.outputs.output.shape[0] = 1;
  EXPECT_EQ(f.forward(),
            "weights is given together with packing; expected one of the two (weights of a "
            "sequence come from a call on its rows alone)");
  EXPECT_TRUE(untouched(weights));
  EXPECT_EQ(saved.batches, 0);  // nothing that backward() would take
}

/// Memory of views is compared before attention sees them: axes that there are not must not be
/// counted.
TEST(multi_head_attention, refuses_views_of_more_axes_than_there_can_be) {
  auto other = memory(60);
  heed::TensorView deep = heed::view(other.data(), {3, 5, 2, 2});
  deep.rank = 9;
  const std::string text = " has rank 9; expected at most 4";
  Fitting f;
  f.options.bias = f.options.mask.keep = deep;
  EXPECT_EQ(f.forward(), "bias" + text);
  f.options.bias = {};
  EXPECT_EQ(f.forward(), "mask.keep" + text);
  f.options = {};
  f.outputs.weights = deep;
  EXPECT_EQ(f.forward(), "weights" + text);
  f.outputs.weights = {};
  const heed::RowStatistics statistics{.entropy = deep};
  f.outputs.statistics = &statistics;
  EXPECT_EQ(f.forward(), "statistics.entropy" + text);

  heed::SavedAttention saved;
  f.options.bias = heed::view(f.bias.data(), {3, 5});
  f.module.forward(f.rows, {.output = f.outputs.output, .saved = &saved}, f.options);
  const auto backward = [&](const heed::MultiHeadGradients& gradients) {
    const heed::ConstTensorView dy = heed::view(f.dy.data(), {2, 3, 4});
    return message_of([&] { f.module.backward(f.rows, saved, dy, gradients, f.options); });
  };
  EXPECT_EQ(backward({.dbias = deep}), "MultiHeadAttention::backward: dbias" + text);
  f.options.mask.drop = deep;
  EXPECT_EQ(backward({}), "MultiHeadAttention::backward: mask.drop" + text);
  const std::span<float> gradient = f.module.parameters()[0].gradient;  // lies in the module
  for (const float d : gradient) EXPECT_EQ(d, 0);
}

TEST(multi_head_attention, refuses_options_that_do_not_fit) {
  const auto told = [](const auto& change) {
    Fitting f;
    change(f);
    return f.forward();
  };
  EXPECT_EQ(told([](Fitting& f) {
              f.options.dropout = {0.1, 1};
            }),
            "options.dropout.p is 0.1; expected 0: the module's own counts");
  EXPECT_EQ(told([](Fitting& f) {
              f.options.bias = heed::view(f.bias.data(), {5, 3});
            }),
            "bias has shape [5, 3]; expected one that broadcasts to [2, 2, 3, 5]");
  EXPECT_EQ(told([](Fitting& f) {
              f.options.bias = heed::view(static_cast<const float*>(nullptr), {3, 5});
            }),
            "bias has shape [3, 5] but no data; expected a pointer that is not null");
  EXPECT_EQ(told([](Fitting& f) { f.options.mask.key_lengths = std::int64_t{6}; }),
            "mask.key_lengths is 6; expected 0 .. 5");
}

TEST(multi_head_attention, asks_for_a_seed_while_it_trains_with_dropout) {
  heed::MultiHeadAttention module({.d_model = 4, .heads = 2, .dropout = 0.25});
  auto x = memory(12), output = memory(12);
  const heed::AttendingRows rows{.x = heed::view(x.data(), {3, 4})};
  const heed::MultiHeadOutputs outputs{.output = heed::view(output.data(), {3, 4})};
  EXPECT_EQ(message_of([&] { module.forward(rows, outputs); }),
            "MultiHeadAttention::forward: options.dropout.seed is absent; while training with "
            "dropout 0.25 expected one, new for each step");
  EXPECT_TRUE(untouched(output));
  module.set_mode(heed::Mode::evaluation);
  module.forward(rows, outputs);
  EXPECT_FALSE(untouched(output));
}

TEST(multi_head_attention, refuses_a_temperature_of_zero) {
  heed::MultiHeadAttention module(
      {.d_model = 4, .heads = 2, .temperature = heed::Temperature::one});
  auto x = memory(12), output = memory(12);
  const auto forward = [&](const heed::AttentionOptions& options) {
    module.forward({.x = heed::view(x.data(), {3, 4})},
                   {.output = heed::view(output.data(), {3, 4})}, options);
  };
  module.parameters().back().values[0] = 0;
  EXPECT_EQ(message_of([&] { forward({}); }),
            "MultiHeadAttention::forward: temperature[0] is 0; expected one by which the scale "
            "0.7071067811865475 can be divided");
  EXPECT_EQ(message_of([&] { forward({.scale = 1e39}); }),
            "MultiHeadAttention::forward: scale is 1e+39; expected a number that is finite as "
            "float32, also times log2(e)");
  const std::vector<float> scales{1, 2};
  heed::AttentionOptions both{.scale = 0.5};
  both.scale.each = heed::view(scales.data(), {2});
  EXPECT_EQ(message_of([&] { forward(both); }),
            "MultiHeadAttention::forward: scale has both one and each; expected one of them");
  EXPECT_TRUE(untouched(output));
}

TEST(multi_head_attention, refuses_to_go_back_where_it_did_not_go_forward) {
  Fitting f;
  heed::SavedAttention saved;
  const auto back = [&](const heed::MultiHeadGradients& gradients) {
    const std::string message = message_of([&] {
      f.module.backward(f.rows, saved, heed::view(f.dy.data(), {2, 3, 4}), gradients, f.options);
    });
    EXPECT_TRUE(untouched(f.dx)) << message;
    for (const heed::Parameter& p : f.module.parameters()) {
      for (const float g : p.gradient) EXPECT_EQ(g, 0) << message;
    }
    return said_by("MultiHeadAttention::backward", message);
  };
  EXPECT_EQ(
      back({}),
      "saved holds [0, 0] rows and 0 keys; expected those of a forward call with [2, 3] and 5");
  f.outputs.saved = &saved;
  f.module.forward(f.rows, f.outputs, f.options);
  EXPECT_EQ(back({.dx = heed::view(f.dx.data(), {2, 3, 3})}),
            "dx has shape [2, 3, 3]; expected rows of 4");
  EXPECT_EQ(back({.dx = heed::view(f.x.data(), {2, 3, 4})}),
            "dx overlaps x in memory; expected memory of its own");
  EXPECT_EQ(back({.dbias = heed::view(f.dx.data(), {3, 5})}),
            "dbias is given, but not options.bias; expected both");
  f.rows = {.x = f.rows.x};
  EXPECT_EQ(back({}), "x has shape [2, 3, 4]; expected rows of 6");
}

/// As many rows and keys, but from heads of other sizes: what differs is told, not the rows.
TEST(multi_head_attention, refuses_to_go_back_from_what_another_module_has_saved) {
  heed::MultiHeadAttention module({.d_model = 4, .heads = 1});
  auto x = memory(16), output = memory(16), dx = memory(16);
  const heed::ConstTensorView rows = heed::view(x.data(), {4, 4});
  const auto message_from = [&](const heed::MultiHeadAttentionOptions& other) {
    heed::SavedAttention saved;
    heed::MultiHeadAttention(other).forward(
        {.x = rows}, {.output = heed::view(output.data(), {4, 4}), .saved = &saved});
    const std::string message = message_of([&] {
      module.backward({.x = rows}, saved, rows, {.dx = heed::view(dx.data(), {4, 4})});
    });
    EXPECT_TRUE(untouched(dx)) << message;
    for (const heed::Parameter& p : module.parameters()) {
      for (const float g : p.gradient) EXPECT_EQ(g, 0) << message;
    }
    return said_by("MultiHeadAttention::backward", message);
  };
  EXPECT_EQ(message_from({.d_model = 4, .heads = 2, .head_size = 3}),
            "saved.q has 24 numbers; expected 16, as a forward call of this module leaves them");
  EXPECT_EQ(message_from({.d_model = 4, .heads = 1, .value_size = 2}),
            "saved.v has 8 numbers; expected 16, as a forward call of this module leaves them");
  EXPECT_EQ(message_from({.d_model = 4, .heads = 2}),
            "saved.lse has 8 numbers; expected 4, as a forward call of this module leaves them");
}

/// Where x is keys and values too, its gradient is dx, and there is none of what was not given.
TEST(multi_head_attention, refuses_gradients_of_rows_that_were_not_given) {
  heed::MultiHeadAttention module({.d_model = 4, .heads = 2});
  auto x = memory(24), context = memory(40), output = memory(24), dy = memory(24), d = memory(40);
  heed::AttendingRows rows{.x = heed::view(x.data(), {2, 3, 4})};
  const heed::TensorView written = heed::view(d.data(), {2, 5, 4});
  heed::SavedAttention saved;
  const auto there_and_back = [&](const heed::MultiHeadGradients& gradients) {
    module.forward(rows, {.output = heed::view(output.data(), {2, 3, 4}), .saved = &saved});
    const std::string message = message_of([&] {
      module.backward(rows, saved, heed::view(dy.data(), {2, 3, 4}), gradients);
    });
    EXPECT_TRUE(untouched(d)) << message;
    for (const heed::Parameter& p : module.parameters()) {
      for (const float g : p.gradient) EXPECT_EQ(g, 0) << message;
    }
    return message;
  };
  EXPECT_EQ(there_and_back({.dcontext = written}),
            "MultiHeadAttention::backward: dcontext is given, but not context; expected both");
  rows.context = heed::view(context.data(), {2, 5, 4});
  EXPECT_EQ(there_and_back({.dvalues = written}),
            "MultiHeadAttention::backward: dvalues is given, but not values; expected both");
}

}  // namespace
}  // namespace heed_test

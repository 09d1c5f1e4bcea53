// Options reach attention as they were given: multi-head attention beside the same call put
// together by hand, of Linear, attention_forward and attention_backward, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "called.h"
#include "forward/tensors.h"

namespace heed_test {
namespace {

constexpr std::int64_t kBatch = 2, kRows = 21, kModel = 24, kHeads = 4, kKvHeads = 2, kSize = 6;

std::vector<float> normals(std::int64_t count, std::uint64_t seed, double shift = 0) {
  Random random(seed);
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) number = static_cast<float>(random.normal() + shift);
  return numbers;
}

/// Everything that a call may have, and where its results go.
struct Everything {
  std::vector<float> x = normals(kBatch * kRows * kModel, 1);
  std::vector<float> d_output = normals(kBatch * kRows * kModel, 2);
  std::vector<float> bias = normals(kRows * kRows, 3), slopes = normals(kHeads, 4),
                     sinks = normals(kHeads, 5);
  std::vector<std::int64_t> lengths{21, 13};
  Numbers out;

  heed::AttentionOptions options() {
    return {.scale = 0.3,
            .softcap = 5.0,
            .alibi = heed::view(slopes.data(), {kHeads}),
            .bias = heed::view(bias.data(), {kRows, kRows}),
            .mask = {.causal = true,
                     .window = {.left = 9},
                     .key_lengths = heed::view(lengths.data(), {kBatch})},
            .sinks = heed::view(sinks.data(), {kHeads})};
  }
  heed::TensorView made(const char* name, std::initializer_list<std::int64_t> shape) {
    std::int64_t count = 1;
    for (const std::int64_t n : shape) count *= n;
    out[name].assign(static_cast<std::size_t>(count), -1.0f);
    return heed::view(out[name].data(), shape);
  }
  heed::TensorView rows(const char* name) { return made(name, {kBatch, kRows, kModel}); }
  static heed::TensorView seen(std::vector<float>& numbers) {
    return heed::view(numbers.data(), {kBatch, kRows, kModel});
  }
};

const heed::MultiHeadAttentionOptions kModule{
    .d_model = kModel, .heads = kHeads, .kv_heads = kKvHeads, .head_size = kSize, .bias = true};

Numbers by_module(const heed::MultiHeadAttentionOptions& module_options,
                  const heed::Dropout& dropout) {
  Everything e;
  heed::MultiHeadAttention module(module_options);
  draw_parameters(module.parameters(), 7);
  heed::AttentionOptions options = e.options();
  options.dropout = dropout;
  options.dropout.p = 0;
  heed::SavedAttention saved;
  const heed::AttendingRows rows{.x = Everything::seen(e.x)};
  module.forward(rows, {.output = e.rows("output"), .saved = &saved}, options);
  module.backward(rows, saved, Everything::seen(e.d_output),
                  {.dx = e.rows("x"),
                   .dalibi = e.made("alibi", {kHeads}),
                   .dbias = e.made("bias", {kRows, kRows}),
                   .dsinks = e.made("sinks", {kHeads})},
                  options);
  for (const heed::Parameter& p : module.parameters()) {
    e.out[p.name].assign(p.gradient.begin(), p.gradient.end());
  }
  return e.out;
}

/// A Linear with the parameters that the module has under this letter.
heed::Linear linear_of(const std::vector<heed::Parameter>& parameters, std::size_t index) {
  const heed::Parameter& weight = parameters[2 * index];
  const heed::Parameter& bias = parameters[2 * index + 1];
  heed::Linear linear({.inputs = weight.shape[1], .outputs = weight.shape[0], .bias = true});
  const auto own = linear.parameters();
  std::copy(weight.values.begin(), weight.values.end(), own[0].values.begin());
  std::copy(bias.values.begin(), bias.values.end(), own[1].values.begin());
  return linear;
}

Numbers by_hand(const heed::Dropout& dropout) {
  Everything e;
  heed::MultiHeadAttention module(kModule);
  draw_parameters(module.parameters(), 7);
  const auto parameters = module.parameters();
  heed::Linear w_q = linear_of(parameters, 0), w_k = linear_of(parameters, 1),
               w_v = linear_of(parameters, 2), w_o = linear_of(parameters, 3);
  heed::AttentionOptions options = e.options();
  options.dropout = dropout;
  const std::int64_t q_size = kHeads * kSize, kv_size = kKvHeads * kSize;
  const std::int64_t rows = kBatch * kRows;
  std::vector<float> q(static_cast<std::size_t>(rows * q_size)), attended(q), dq(q), d_attended(q);
  std::vector<float> k(static_cast<std::size_t>(rows * kv_size)), v(k), dk(k), dv(k);
  std::vector<float> lse(static_cast<std::size_t>(rows * kHeads));
  const auto flat = [](std::vector<float>& numbers, std::int64_t size) {
    return heed::view(numbers.data(), {kBatch, kRows, size});
  };
  const auto heads = [](std::vector<float>& numbers, std::int64_t count) {
    return heed::view_bthd(numbers.data(), kBatch, kRows, count, kSize);
  };
  const auto x = Everything::seen(e.x), dy = Everything::seen(e.d_output);
  w_q.forward(x, flat(q, q_size));
  w_k.forward(x, flat(k, kv_size));
  w_v.forward(x, flat(v, kv_size));
  const auto lse_view = heed::view(lse.data(), {kBatch, kHeads, kRows});
  attention_forward(heads(q, kHeads), heads(k, kKvHeads), heads(v, kKvHeads),
                    {.output = heads(attended, kHeads), .lse = lse_view}, options);
  w_o.forward(flat(attended, q_size), e.rows("output"));
  w_o.backward(flat(attended, q_size), dy, flat(d_attended, q_size));
  attention_backward({.q = heads(q, kHeads),
                      .k = heads(k, kKvHeads),
                      .v = heads(v, kKvHeads),
                      .output = heads(attended, kHeads),
                      .lse = lse_view,
                      .d_output = heads(d_attended, kHeads)},
                     {.dq = heads(dq, kHeads),
                      .dk = heads(dk, kKvHeads),
                      .dv = heads(dv, kKvHeads),
                      .dalibi = e.made("alibi", {kHeads}),
                      .dbias = e.made("bias", {kRows, kRows}),
                      .dsinks = e.made("sinks", {kHeads})},
                     options);
  w_q.backward(x, flat(dq, q_size));
  w_k.backward(x, flat(dk, kv_size));
  w_v.backward(x, flat(dv, kv_size));
  heed::Linear* const linears[] = {&w_q, &w_k, &w_v, &w_o};
  for (std::size_t i = 0; i < 4; ++i) {
    const auto own = linears[i]->parameters();
    for (std::size_t part = 0; part < 2; ++part) {
      const auto gradient = own[part].gradient;
      e.out[parameters[2 * i + part].name].assign(gradient.begin(), gradient.end());
    }
  }
  return e.out;
}

/// dx is one sum over the three maps in the module: only what is made by one map is compared.
void expect_same(const Numbers& module, const Numbers& hand) {
  EXPECT_EQ(module.size(), hand.size() + 1);
  for (const auto& [name, numbers] : hand) {
    EXPECT_TRUE(same_bits(numbers, module.at(name))) << name;
  }
}

TEST(multi_head_attention, passes_its_options_on) {
  expect_same(by_module(kModule, {}), by_hand({}));
}

TEST(multi_head_attention, trains_with_the_dropout_that_attention_has_for_the_seed) {
  const heed::Dropout dropout{
      .p = 0.25, .seed = 99, .first_query = 3, .first_key = 5, .first_batch = 1};
  heed::MultiHeadAttentionOptions options = kModule;
  options.dropout = dropout.p;
  const Numbers trained = by_module(options, dropout);
  expect_same(trained, by_hand(dropout));
  EXPECT_FALSE(same_bits(trained.at("output"), by_module(kModule, {}).at("output")));
  for (const heed::Dropout& other :
       {heed::Dropout{.p = dropout.p, .seed = 100}, heed::Dropout{.p = dropout.p, .seed = 99}}) {
    EXPECT_FALSE(same_bits(trained.at("W_v"), by_module(options, other).at("W_v")));
  }
}

TEST(multi_head_attention, divides_the_scale_by_the_temperature) {
  Everything e;
  heed::MultiHeadAttentionOptions warm = kModule;
  warm.temperature = heed::Temperature::per_head;
  heed::MultiHeadAttention with(warm), without(kModule);
  draw_parameters(with.parameters(), 7);
  draw_parameters(without.parameters(), 7);
  const float temperatures[] = {0.5f, 2.0f, 1.25f, 0.3f};
  std::copy_n(temperatures, kHeads, with.parameters().back().values.begin());
  for (const bool cosine : {false, true}) {
    for (const bool given : {false, true}) {
      heed::AttentionOptions options{.normalize_qk = cosine};
      if (given) options.scale = 0.7;
      const double base = given ? 0.7 : cosine ? 1.0 : 1 / std::sqrt(6.0);
      std::vector<double> scales;
      for (const float t : temperatures) scales.push_back(base / static_cast<double>(t));
      const heed::AttendingRows rows{.x = Everything::seen(e.x)};
      with.forward(rows, {.output = e.rows("with")}, options);
      options.scale = heed::view(scales.data(), {kHeads});
      without.forward(rows, {.output = e.rows("without")}, options);
      EXPECT_TRUE(same_bits(e.out["with"], e.out["without"])) << cosine << given;
      with.forward(rows, {.output = e.rows("with")}, options);  // one for each head, divided again
      EXPECT_FALSE(same_bits(e.out["with"], e.out["without"])) << cosine << given;
    }
  }
}

/// Sequences end to end in rows of one batch entry, by the module; `before` of the rows come first.
struct PackedRows {
  static constexpr std::int64_t kPacked = 13;  ///< rows that are of a sequence
  std::int64_t rows, before = 0;
  std::vector<std::int64_t> offsets{before, before + 5, before + kPacked};
  std::vector<float> x = normals(rows * kModel, 1), d_output = normals(rows * kModel, 2);
  std::vector<float> output = std::vector<float>(x.size(), -1.0f), dx = output;

  Numbers run(heed::MultiHeadAttention& module, heed::SavedAttention& saved) {
    const auto all = [&](std::vector<float>& numbers) {
      return heed::view(numbers.data(), {1, rows, kModel});
    };
    const auto offset = heed::view(std::as_const(offsets).data(), {3});
    const heed::AttentionOptions options{.mask = {.causal = true}, .packing = {offset, offset}};
    module.zero_gradients();
    module.forward({.x = all(x)}, {.output = all(output), .saved = &saved}, options);
    module.backward({.x = all(x)}, saved, all(d_output), {.dx = all(dx)}, options);
    Numbers gradients;
    for (const heed::Parameter& p : module.parameters()) {
      gradients[p.name].assign(p.gradient.begin(), p.gradient.end());
    }
    return gradients;
  }
  /// Those of others become rows of the sequences, NaN the rest of x and, if told, of d_output.
  void take(const PackedRows& alone, bool poison_gradient) {
    std::fill(x.begin(), x.end(), NAN);
    if (poison_gradient) std::fill(d_output.begin(), d_output.end(), NAN);
    std::copy(alone.x.begin(), alone.x.end(), x.begin() + before * kModel);
    std::copy(alone.d_output.begin(), alone.d_output.end(), d_output.begin() + before * kModel);
  }
  /// Whether element i belongs to a row of a sequence.
  [[nodiscard]] bool of_sequence(std::size_t i) const {
    const auto row = static_cast<std::int64_t>(i) / kModel;
    return offsets.front() <= row && row < offsets.back();
  }
  /// The sum of all rows of d_output: each row of the output has b_o.
  [[nodiscard]] std::vector<float> gradient_of_output_bias() const {
    std::vector<double> sums(kModel);
    for (std::size_t i = 0; i < d_output.size(); ++i) {
      sums[i % kModel] += static_cast<double>(d_output[i]);
    }
    return {sums.begin(), sums.end()};
  }
};

/// They take part in nothing, whatever they hold and whatever the thread's memory and the saved
/// vectors held before.
TEST(multi_head_attention, gives_rows_of_no_sequence_the_bias_of_the_output_and_no_gradient) {
  heed::MultiHeadAttention module(kModule);
  draw_parameters(module.parameters(), 7);
  heed::SavedAttention saved, saved_alone;
  PackedRows alone{.rows = PackedRows::kPacked};
  Numbers wanted = alone.run(module, saved_alone);
  const std::vector<float> b_o(module.parameters().back().values.begin(),
                               module.parameters().back().values.end());
  PackedRows poison{.rows = PackedRows::kPacked + 8};
  std::fill(poison.x.begin(), poison.x.end(), NAN);
  poison.offsets = {0, 5, poison.rows};
  for (const std::int64_t before : {0, 3}) {
    for (const bool poisoned : {false, true}) {
      if (poisoned) poison.run(module, saved);
      PackedRows packed{.rows = poison.rows, .before = before};
      packed.take(alone, poisoned);
      Numbers got = packed.run(module, saved);
      std::size_t n = 0;  // of alone
      for (std::size_t i = 0; i < packed.x.size(); ++i) {
        const bool of_sequence = packed.of_sequence(i);
        EXPECT_EQ(packed.output[i], of_sequence ? alone.output[n] : b_o[i % kModel]);
        EXPECT_EQ(packed.dx[i], of_sequence ? alone.dx[n] : 0.0f);
        n += of_sequence ? 1 : 0;
      }
      if (poisoned) {
        for (const float g : got.at("b_o")) EXPECT_TRUE(std::isnan(g));
      } else {
        EXPECT_EQ(got.at("b_o"), packed.gradient_of_output_bias());
      }
      got.at("b_o") = wanted.at("b_o");
      EXPECT_EQ(got, wanted) << before << poisoned;
    }
  }
  PackedRows none{.rows = 4};
  none.offsets = {1, 1, 1};
  for (const auto& [name, gradient] : none.run(module, saved)) {
    EXPECT_EQ(gradient, name == "b_o" ? none.gradient_of_output_bias()
                                      : std::vector<float>(gradient.size(), 0.0f))
        << name;
  }
}

}  // namespace
}  // namespace heed_test

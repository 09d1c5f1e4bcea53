// A module, its inputs and its results by name.
#include "called.h"

#include <cstring>

#include "forward/tensors.h"

namespace heed_test {
namespace {

std::vector<float> normal(Random& random, std::int64_t count) {
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) number = static_cast<float>(random.normal());
  return numbers;
}

std::int64_t or_else(std::int64_t size, std::int64_t other) { return size == 0 ? other : size; }

heed::TensorView seen(std::vector<float>& numbers, std::int64_t batches, std::int64_t rows) {
  const auto size = static_cast<std::int64_t>(numbers.size()) / (batches * rows);
  return heed::view(numbers.data(), {batches, rows, size});
}

heed::AttentionOptions options_of(const Asked& asked, Numbers& inputs) {
  heed::AttentionOptions options;
  options.mask.causal = asked.causal;
  if (asked.with_bias) {
    options.bias = heed::view(
        inputs["bias"].data(),
        {asked.batches, asked.module.heads, asked.queries, or_else(asked.keys, asked.queries)});
  }
  return options;
}

}  // namespace

Numbers draw_inputs(const Asked& asked) {
  Random random(asked.seed);
  const std::int64_t d_keys = or_else(asked.module.d_keys, asked.module.d_model);
  const std::int64_t keys = or_else(asked.keys, asked.queries);
  const std::int64_t rows = asked.batches * asked.queries;
  Numbers inputs;
  inputs["x"] = normal(random, rows * asked.module.d_model);
  if (asked.keys > 0) inputs["context"] = normal(random, asked.batches * keys * d_keys);
  if (asked.with_values) {
    inputs["values"] =
        normal(random, asked.batches * keys * or_else(asked.module.d_values, d_keys));
  }
  if (asked.with_bias) inputs["bias"] = normal(random, rows * asked.module.heads * keys);
  inputs["d_output"] = normal(random, rows * asked.module.d_model);
  return inputs;
}

void draw_parameters(const std::vector<heed::Parameter>& parameters, std::uint64_t seed) {
  Random random(seed);
  for (const heed::Parameter& parameter : parameters) {
    const double size = parameter.shape.size() == 2 ? static_cast<double>(parameter.shape[1]) : 4.0;
    for (float& number : parameter.values) {
      number =
          static_cast<float>(parameter.name == "temperature" ? 0.5 + random.uniform()
                                                             : random.normal() / std::sqrt(size));
    }
  }
}

Numbers run(heed::MultiHeadAttention& module, const Asked& asked, const Numbers& inputs,
            const heed::Execution& execution) {
  Numbers in = inputs;
  const std::int64_t keys = or_else(asked.keys, asked.queries);
  heed::AttendingRows rows{.x = seen(in["x"], asked.batches, asked.queries)};
  if (asked.keys > 0) rows.context = seen(in["context"], asked.batches, keys);
  if (asked.with_values) rows.values = seen(in["values"], asked.batches, keys);
  const heed::AttentionOptions options = options_of(asked, in);
  Numbers out;
  for (const auto& [name, numbers] : inputs) {
    if (name != "d_output") out[name].assign(numbers.size(), NAN);
  }
  out["output"].assign(in["x"].size(), NAN);
  heed::SavedAttention saved;
  module.forward(rows,
                 {.output = seen(out["output"], asked.batches, asked.queries), .saved = &saved},
                 options, execution);
  heed::MultiHeadGradients gradients{.dx = seen(out["x"], asked.batches, asked.queries)};
  if (asked.keys > 0) gradients.dcontext = seen(out["context"], asked.batches, keys);
  if (asked.with_values) gradients.dvalues = seen(out["values"], asked.batches, keys);
  if (asked.with_bias) {
    gradients.dbias =
        heed::view(out["bias"].data(), {asked.batches, asked.module.heads, asked.queries, keys});
  }
  module.backward(rows, saved, seen(in["d_output"], asked.batches, asked.queries), gradients,
                  options, execution);
  for (const heed::Parameter& parameter : module.parameters()) {
    out[parameter.name].assign(parameter.gradient.begin(), parameter.gradient.end());
  }
  return out;
}

Formula formula_of(heed::MultiHeadAttention& module, const Asked& asked, const Numbers& inputs) {
  const heed::MultiHeadAttentionOptions& o = module.options();
  Formula f{.batches = asked.batches,
            .queries = asked.queries,
            .keys = or_else(asked.keys, asked.queries),
            .d_model = o.d_model,
            .d_keys = o.d_keys,
            .d_values = o.d_values,
            .heads = o.heads,
            .kv_heads = o.kv_heads,
            .head_size = o.head_size,
            .value_size = o.value_size,
            .scale = 1 / std::sqrt(static_cast<double>(o.head_size)),
            .causal = asked.causal,
            .numbers = {}};
  for (const auto& [name, numbers] : inputs) f.numbers[name].assign(numbers.begin(), numbers.end());
  for (const heed::Parameter& parameter : module.parameters()) {
    f.numbers[parameter.name].assign(parameter.values.begin(), parameter.values.end());
  }
  return f;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace heed_test

// The bits of a module, forward and backward, written down: every machine and every release has
// them, x86-64 or arm64.
#include "forward/machines.h"

#include <gtest/gtest.h>

#include "called.h"

namespace heed_test {
namespace {

void expect_hash(const Asked& asked, std::uint64_t expected) {
  Numbers inputs = draw_inputs(asked);
  Random random(asked.seed);
  for (auto& [name, numbers] : inputs) {
    for (float& x : numbers) x = static_cast<float>(4 * random.uniform() - 2);
  }
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    heed::MultiHeadAttention module(asked.module);
    Random parameters(9);
    for (const heed::Parameter& parameter : module.parameters()) {
      const double least = parameter.name == "temperature" ? 0.5 : -0.5;
      for (float& x : parameter.values) x = static_cast<float>(least + parameters.uniform());
    }
    std::uint64_t hash = kNoHash;
    for (const auto& [name, numbers] : run(module, asked, inputs)) hash = hashed(numbers, hash);
    EXPECT_EQ(hash, expected) << std::hex << hash << " has " << heed::name_of(isa);
  }
}

TEST(modules_machines, have_one_result_of_self_attention) {
  expect_hash({.module = {.d_model = 24, .heads = 3, .bias = true},
               .batches = 2,
               .queries = 150,
               .causal = true,
               .seed = 1},
              0x6b701211acca9191);
}

TEST(modules_machines, have_one_result_of_cross_attention_with_a_temperature_for_each_head) {
  expect_hash({.module = {.d_model = 140,
                          .heads = 4,
                          .kv_heads = 2,
                          .head_size = 10,
                          .value_size = 7,
                          .d_keys = 20,
                          .d_values = 12,
                          .temperature = heed::Temperature::per_head},
               .batches = 2,
               .queries = 20,
               .keys = 33,
               .with_values = true,
               .with_bias = true,
               .seed = 2},
              0xe1467f64dfff6225);
}

}  // namespace
}  // namespace heed_test

// A module, its inputs and its results by name, run by heed and put into the formula's words.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "heed/heed.h"
#include "reference.h"

namespace heed_test {

using Numbers = std::map<std::string, std::vector<float>>;

/// What a test asks for; sizes of 0 as in MultiHeadAttentionOptions.
struct Asked {
  heed::MultiHeadAttentionOptions module;
  std::int64_t batches = 1, queries = 1, keys = 0;  ///< keys 0: self-attention
  bool with_values = false;                         ///< values of their own
  bool with_bias = false;                           ///< an additive bias [B, H, Tq, Tk]
  bool causal = false;
  std::uint64_t seed = 1;
};

/// Inputs, drawn: x, context, values, bias, d_output.
[[nodiscard]] Numbers draw_inputs(const Asked& asked);

/// Parameters that are all drawn, biases and temperature too.
void draw_parameters(const std::vector<heed::Parameter>& parameters, std::uint64_t seed);

/// Output and gradients by the formula's names: "output", "x", .., "W_q", .. Forward and backward
/// of a module whose gradients are zero.
[[nodiscard]] Numbers run(heed::MultiHeadAttention& module, const Asked& asked,
                          const Numbers& inputs, const heed::Execution& execution = {});

/// The same call for by_formula.
[[nodiscard]] Formula formula_of(heed::MultiHeadAttention& module, const Asked& asked,
                                 const Numbers& inputs);

/// Bit for bit.
[[nodiscard]] bool same_bits(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace heed_test

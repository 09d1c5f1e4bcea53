// Multi-head attention as its formula stands, in double, with bounds for float32; nothing of heed
// in it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "known.h"

namespace heed_test {

/// A call: sizes, and every number by the name that the module knows it by.
struct Formula {
  std::int64_t batches = 1, queries = 1, keys = 1;
  std::int64_t d_model = 1, d_keys = 1, d_values = 1;
  std::int64_t heads = 1, kv_heads = 1, head_size = 1, value_size = 1;
  double scale = 1;     ///< before the temperature
  bool causal = false;  ///< key <= query
  /// x [B Tq, d_model], context, values, d_output, bias [B H Tq, Tk], W_q, b_q .., temperature.
  /// What is missing is absent; context defaults to x, values to context.
  std::map<std::string, std::vector<double>> numbers;
};

/// "output", and by their names the gradients of sum d_output . output: "x", "context", "values",
/// "bias", "W_q", .. of all that there are; without d_output the output alone.
[[nodiscard]] std::map<std::string, Known> by_formula(const Formula& formula);

}  // namespace heed_test

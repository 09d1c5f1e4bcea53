// Parameters of modules in files of tensors. Part of heed::io.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heed/export.h"
#include "heed/io.h"
#include "heed/modules.h"

namespace heed {

/// Whose names parameters have in a file.
enum class Names : std::uint8_t {
  heed,  ///< the parameter's own: W_q, b_q, ..
  /// those of PyTorch's nn.MultiheadAttention, to be read by load_state_dict and to read what
  /// state_dict gives:
  ///
  ///     in_proj_weight [3 E, E]   W_q, W_k, W_v one above the other, where all have E columns;
  ///                               else q_proj_weight, k_proj_weight, v_proj_weight
  ///     in_proj_bias [3 E]        b_q, b_k, b_v
  ///     out_proj.weight, out_proj.bias
  ///
  /// E is d_model and heads * head_size, for values too, with as many KV heads. A Linear's names
  /// are the same in both.
  torch,
};

struct ParameterNames {
  std::string prefix{};  ///< before every name: "encoder.0.attention."
  Names names = Names::heed;
};

/// Copies parameters into tensors of the file; those that it has under the same names, or, of
/// weights of PyTorch, in the other layout, are replaced.
/// Throws if two have one name, if one has other numbers than its shape says, or if PyTorch's
/// module cannot have such parameters; the file is then as it was.
HEED_API void put_parameters(TensorFile& file, const std::vector<Parameter>& parameters,
                             const ParameterNames& names = {});

/// Fills parameters from tensors of any floating-point type, each number rounded to the nearest.
/// Throws, and changes no parameter, for what put_parameters refuses, if one is missing or has
/// another shape, or if the file has a bias, a temperature or, of PyTorch, bias_k or bias_v, that
/// the module lacks, or weights of PyTorch in both layouts. Other tensors are nobody's business.
HEED_API void get_parameters(const TensorFile& file, const std::vector<Parameter>& parameters,
                             const ParameterNames& names = {});

/// The two, with a file of their own; to be found again a parameter needs its name, which .npy has
/// no place for. They throw what write_tensors and read_tensors throw, too.
///
///     save_parameters("model.safetensors", attention.parameters());
///     load_parameters("model.safetensors", attention.parameters());
HEED_API void save_parameters(const std::string& path, const std::vector<Parameter>& parameters,
                              const ParameterNames& names = {});
HEED_API void load_parameters(const std::string& path, const std::vector<Parameter>& parameters,
                              const ParameterNames& names = {});

}  // namespace heed

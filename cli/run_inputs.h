// What a run computes on: tensors by name, from files and flags alike.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "heed/attention.h"
#include "heed/io.h"
#include "progress.h"
#include "run_flags.h"

namespace heed::cli {

struct RunInputs {
  std::map<std::string, Tensor> tensors;        ///< q, k, v, options and d_output, by their names
  std::map<std::string, std::string> metadata;  ///< of a .safetensors file
  std::vector<std::string> warnings;            ///< what was ignored, and why
  std::vector<std::string> unused;              ///< d_output and options that were not asked for
  std::map<std::string, DType> widened;         ///< types in which scale, alibi and sinks came
  std::int64_t bytes_read = 0;                  ///< of all tensors of the files, unused ones too
};

/// Reads the files and lists that the flags name. A flag beats a tensor of its name in the file of
/// q, k and v; where each has a file, an option in it is refused, unless a flag gives that option.
/// Throws if q, k or v is missing, a tensor has more than four axes, or types differ. A tensor that
/// the call does not take may have any type and shape: d_output and options where the flags say so,
/// which are in `unused`, and v without d_output of a call of two operands.
[[nodiscard]] RunInputs read_inputs(const InputFlags& flags, std::int64_t max_bytes,
                                    StatusLine& status);

/// The type in which the run computes: float64 for float64 input or `--dtype float64`, else
/// float32.
[[nodiscard]] DType compute_dtype(const RunInputs& inputs, std::optional<DType> asked = {});

/// q, k, v or d_output as [B, H, T, D] or of lower rank, nothing moved.
[[nodiscard]] ConstTensorView input_view(const RunInputs& inputs, const std::string& name,
                                         const InputFlags& flags);

/// Throws if d_output has another shape than the output of q, k and v, which fit each other.
void check_gradient_shape(const RunInputs& inputs, const InputFlags& flags);

/// Converts q, k, v and d_output to `dtype`.
void widen(RunInputs& inputs, DType dtype);

/// The options that tensors and flags ask for; views point into `inputs`.
[[nodiscard]] AttentionOptions options_of(const RunInputs& inputs, const InputFlags& flags);

/// "[6, 12, 16, 32]"
[[nodiscard]] std::string shape_text(const std::vector<std::int64_t>& shape);

/// Bytes of a tensor; saturates.
[[nodiscard]] std::int64_t byte_count(const std::vector<std::int64_t>& shape, DType dtype);

}  // namespace heed::cli

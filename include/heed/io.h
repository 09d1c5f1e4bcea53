// Tensors in files: .npy, .npz and .safetensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "heed/tensor.h"

namespace heed {

/// A dense tensor of any rank that owns its memory, last axis fastest.
struct Tensor {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> data;
};

/// What a file holds. A .npy file holds one tensor, whose name is empty.
struct TensorFile {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;  ///< safetensors only
};

struct ReadOptions {
  std::int64_t max_bytes = 0;   ///< refuse files whose tensors take more; 0: 80 % of free memory
  bool allow_trailing = false;  ///< surplus bytes at the end are ignored rather than refused
};

/// Reads a whole file; the kind follows from its first bytes. Throws ErrorKind::format with file,
/// offset, expected and found if it is not what it says, ErrorKind::io with the system's reason.
[[nodiscard]] TensorFile read_tensors(const std::string& path, const ReadOptions& options = {});

/// Writes .npy, .npz or .safetensors, as the name ends. The file appears under its name only when
/// it is complete: an old one stays intact whatever fails.
void write_tensors(const std::string& path, const TensorFile& file);

}  // namespace heed

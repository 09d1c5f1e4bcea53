// Tensors in files: .npy, .npz and .safetensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "heed/export.h"
#include "heed/tensor.h"

namespace heed {

/// A dense tensor of any rank that owns its memory, last axis fastest.
struct Tensor {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape{};  ///< empty: a scalar, one element
  std::vector<std::byte> data{};      ///< product of shape times size_of(dtype) bytes
};

/// What a file holds. A .npy file holds one tensor and no name: what is read has an empty one.
struct TensorFile {
  std::map<std::string, Tensor> tensors{};
  std::map<std::string, std::string> metadata{};  ///< safetensors only
  std::int64_t trailing_bytes = 0;  ///< bytes that reading ignored because `allow_trailing` said so
};

/// Bytes that tensors may take unless told otherwise, at least 1: 80 % of what the system can give
/// without swapping, or of what this process's control group or one above it leaves, if that is
/// less. Linux ends a process that takes more than its group has, without a word.
[[nodiscard]] HEED_API std::int64_t memory_budget();

struct ReadOptions {
  /// Refuse files whose tensors take more; 0: memory_budget(). A .safetensors header counts too: 16
  /// bytes for each of its own beyond the first 65,536, which is what names and metadata may take.
  std::int64_t max_bytes = 0;
  bool allow_trailing = false;  ///< surplus bytes at the end are counted rather than refused
};

/// Reads a whole file into memory; its kind follows from its first bytes, not from its name.
/// A hostile file costs an exception and nothing else. Throws
///   ErrorKind::format  not what it says: file, what was expected, what was found, at which offset
///   ErrorKind::io      the system's reason, or the file changed while it was read
///   ErrorKind::memory  the tensors take more than `max_bytes`, or more than can be had
[[nodiscard]] HEED_API TensorFile read_tensors(const std::string& path,
                                               const ReadOptions& options = {});

/// The bytes of a file, whatever they are; opened as read_tensors does, which never waits and reads
/// nothing but regular files, of the size that the system says they have (of those in /proc it says
/// 0). Throws ErrorKind::io, and ErrorKind::memory for more than `max_bytes` (0: memory_budget()).
[[nodiscard]] HEED_API std::string read_text(const std::string& path, std::int64_t max_bytes = 0);

/// Writes .npy, .npz (stored, not deflated) or .safetensors, as the name ends. The file appears
/// under its name only when it is complete and on the disk: an old one stays intact if that fails,
/// and no temporary file is left. A symbolic link stays; what it points to is replaced.
/// Throws ErrorKind::argument for what the kind of file cannot hold, ErrorKind::io.
HEED_API void write_tensors(const std::string& path, const TensorFile& file);

/// Writes a file of any name that holds this text, with the same care as write_tensors.
/// Throws ErrorKind::io.
HEED_API void write_text(const std::string& path, std::string_view text);

/// Throws what write_tensors(path, ...) would throw for the sake of `path` alone (ending,
/// directory, permissions), so that this is known before hours of computing. Leaves no trace. Not
/// so that a complete file may not take the old one's name: of an immutable file, a mount, another
/// user's in a sticky folder.
HEED_API void check_writable(const std::string& path);

/// A tensor of zeros. Throws ErrorKind::argument for a negative or overflowing shape and
/// ErrorKind::memory, naming the bytes, if they cannot be had.
[[nodiscard]] HEED_API Tensor make_tensor(DType dtype, std::vector<std::int64_t> shape);

/// The tensor with elements of another floating-point type, each the nearest value, ties to even.
/// Wider types hold narrower ones exactly. Infinities, NaNs (with the upper bits of their payload),
/// signed zeros and subnormals are kept; no rounding mode changes a bit. Throws unless both are
/// floating-point types.
[[nodiscard]] HEED_API Tensor convert(const Tensor& tensor, DType dtype);

/// The tensor seen as a view, which is valid while the tensor's memory is. Throws if it has more
/// than four axes or if its data do not fill its shape.
[[nodiscard]] HEED_API ConstTensorView view_of(const Tensor& tensor);
[[nodiscard]] HEED_API TensorView view_of(Tensor& tensor);
ConstTensorView view_of(const Tensor&& tensor) = delete;

}  // namespace heed

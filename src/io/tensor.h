// Sizes of tensors, checked, and the memory that they may take.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "heed/io.h"

namespace heed::io {

/// Bytes of a dense tensor, or nothing if an axis is negative or if the product of the axes that
/// are not 0, in bytes, exceeds int64: then a stride would overflow even where the tensor is empty.
[[nodiscard]] std::optional<std::int64_t> dense_bytes(DType dtype,
                                                      std::span<const std::int64_t> shape) noexcept;

/// "(2, 3)", as Python writes it.
[[nodiscard]] std::string text_of(std::span<const std::int64_t> shape);

/// The same for a message, which a file's shape of any number of axes shall not make long: the
/// first 8 of more than 16.
[[nodiscard]] std::string in_brief(std::span<const std::int64_t> shape);

/// What the tensors of one file may take together.
class Budget {
 public:
  /// limit = 0: memory_budget().
  Budget(std::string label, std::int64_t limit);

  /// A tensor of zeros, charged to the budget before it is allocated. `bytes` is dense_bytes of it.
  [[nodiscard]] Tensor allocate(DType dtype, std::vector<std::int64_t> shape, std::int64_t bytes);

  /// Charges what the names and metadata of a header of so many bytes may take.
  void take_header(std::int64_t bytes);

  /// Charges a text of so many bytes.
  void take_text(std::int64_t bytes);

 private:
  std::string label_;
  std::int64_t limit_;
  std::int64_t used_ = 0;
};

/// Throws ErrorKind::argument for a number that no DType has.
void check_type(const std::string& label, DType dtype);

/// Throws ErrorKind::argument unless the data fill the shape.
void check_dense(const std::string& label, const Tensor& tensor);

}  // namespace heed::io

// q, k and v of a call, widened where they are of a 16-bit type.
#pragma once

#include "array.h"
#include "half.h"

namespace heed::python {

/// An input array and its float32 copy, if it needs one.
class Operand {
 public:
  Operand(const char* name, nb::handle object) : array_(Array::read(name, object)) {}

  [[nodiscard]] DType dtype() const { return array_.view().dtype; }

  /// To be called without the GIL: this is where a 16-bit tensor is copied.
  ConstTensorView wide() { return wide_.read(array_.view()); }

 private:
  Array array_;
  Widened wide_;
};

/// An output array, or none, and the float32 room for one of a 16-bit type.
class Result {
 public:
  Result(const char* name, nb::handle object) : array_(Array::write_optional(name, object)) {}

  TensorView wide() { return wide_.write(array_.view()); }
  void round_into() { wide_.round_into(); }

 private:
  Array array_;
  Widened wide_;
};

/// A message of heed's kind unless `dtype` is a floating type and `others` are the same one.
void check_types(const char* function, DType dtype,
                 std::initializer_list<std::pair<const char*, DType>> others);

}  // namespace heed::python

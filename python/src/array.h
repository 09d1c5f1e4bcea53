// Arrays of Python as heed's views: DLPack, the buffer protocol, ml_dtypes' bfloat16, or plain
// pointers.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "heed/tensor.h"
#include "refusals.h"

namespace heed::python {

namespace nb = nanobind;

/// An array that belongs to Python, held for as long as this lives; nothing is copied.
///
/// What can be an array:
///   an object with __dlpack__ or the buffer protocol   NumPy, PyTorch, JAX, memoryview, ...
///   a NumPy array of ml_dtypes.bfloat16                neither protocol knows it; seen as uint16
///   (address, dtype, shape, strides, _core._POINTER)   for callers inside the package that know
///                                                      their tensor: dtype by name, strides in
///                                                      elements. Nothing is checked or held.
class Array {
 public:
  Array() = default;
  Array(Array&& other) noexcept { *this = std::move(other); }
  Array& operator=(Array&& other) noexcept;
  ~Array() { release(); }

  /// To read. Throws TypeError for what is no array of numbers, ValueError for one that heed may
  /// not touch (another device, a gradient or sign that would get lost, a masked array); both begin
  /// with `name`. What else goes wrong inside the array's own methods, Ctrl-C above all, is thrown
  /// as it is.
  static Array read(const char* name, nb::handle object);

  /// The same to write; ValueError for one that is read-only.
  static Array write(const char* name, nb::handle object);

  /// None is an absent view.
  static Array read_optional(const char* name, nb::handle object);
  static Array write_optional(const char* name, nb::handle object);

  [[nodiscard]] const TensorView& view() const { return view_; }

  /// A memoryview of what was read from `object`, None for what has none, such as bfloat16. Asked
  /// once more, an object may describe other memory: DLPack with a version and without are two
  /// answers.
  [[nodiscard]] nb::object memory(const std::string& name, nb::handle object) const;

 private:
  /// The buffer protocol: 0.1 us, DLPack 0.3 us for NumPy. False if the object does not offer it
  /// so.
  bool take_buffer(const char* name, nb::handle object, int flags);

  /// DLPack. False if that is no way either; then `refused` is why, where the object says so.
  template <typename Imported>
  bool take_tensor(const char* name, nb::handle object, std::optional<nb::python_error>& refused);

  void release() noexcept;

  std::optional<Py_buffer> buffer_;
  std::optional<nb::ndarray<nb::ro>> tensor_;
  TensorView view_;
};

/// Whether it is a tensor as the package itself describes it. A wrong address is a crash, so
/// nothing that a user passes may be taken for one: the last entry is heed._core._POINTER, an
/// object that is compared by identity. (A type of its own costs 0.3 us more for each tensor.)
[[nodiscard]] bool is_pointer(nb::handle object);

/// TypeError unless `dtype` is a floating type and `others` are the same one.
void check_types(const char* function, DType dtype,
                 std::initializer_list<std::pair<const char*, DType>> others);

/// The element type of this name; throws ValueError for an unknown one.
[[nodiscard]] DType dtype_named(const char* name);

}  // namespace heed::python

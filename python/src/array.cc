// From Python objects to views.
#include "array.h"

#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "bindings.h"

namespace heed::python {
namespace {

constexpr std::array kDTypes{DType::boolean, DType::u8,  DType::i8,  DType::u16, DType::i16,
                             DType::u32,     DType::i32, DType::u64, DType::i64, DType::f16,
                             DType::bf16,    DType::f32, DType::f64};

constexpr auto kReadable = "; expected real numbers of up to 64 bits, or booleans";

std::optional<DType> dtype_of(nb::dlpack::dtype type) {
  using Code = nb::dlpack::dtype_code;
  if (type.lanes != 1) return std::nullopt;
  for (const DType dtype : kDTypes) {
    Code code = Code::Int;
    if (dtype == DType::boolean) code = Code::Bool;
    if (dtype == DType::bf16) code = Code::Bfloat;
    if (dtype == DType::f16 || dtype == DType::f32 || dtype == DType::f64) code = Code::Float;
    if (dtype == DType::u8 || dtype == DType::u16 || dtype == DType::u32 || dtype == DType::u64) {
      code = Code::UInt;
    }
    if (type.code == static_cast<std::uint8_t>(code) && type.bits == 8 * size_of(dtype))
      return dtype;
  }
  return std::nullopt;
}

/// The element type that a buffer's format names, in native byte order.
std::optional<DType> dtype_of(const Py_buffer& buffer) {
  const char* format = buffer.format == nullptr ? "B" : buffer.format;
  if (*format == '@' || *format == (std::endian::native == std::endian::little ? '<' : '>') ||
      *format == '=') {
    ++format;
  }
  if (format[0] == 0 || format[1] != 0) return std::nullopt;
  const auto sized = [&](std::initializer_list<DType> types) -> std::optional<DType> {
    for (const DType dtype : types) {
      if (static_cast<Py_ssize_t>(size_of(dtype)) == buffer.itemsize) return dtype;
    }
    return std::nullopt;
  };
  if (format[0] == '?') return sized({DType::boolean});
  if (std::strchr("efd", format[0]) != nullptr) return sized({DType::f16, DType::f32, DType::f64});
  if (std::strchr("bhilqn", format[0]) != nullptr)
    return sized({DType::i8, DType::i16, DType::i32, DType::i64});
  if (std::strchr("BHILQN", format[0]) != nullptr)
    return sized({DType::u8, DType::u16, DType::u32, DType::u64});
  return std::nullopt;
}

/// What `__dlpack__` gives; nothing where it refuses or there is no such method. nanobind would
/// call it, too, and lose whatever it raises.
nb::object capsule_of(nb::handle object, bool to_write, std::optional<nb::python_error>& refused) {
  const nb::object method = attribute(object, "__dlpack__");
  // Producers of before 2023 know no versions, and read-only arrays are described with one alone.
  for (const bool versioned : {to_write, !to_write}) {
    if (method.is_none()) break;
    try {
      return versioned ? method(nb::arg("max_version") = nb::make_tuple(1, 0)) : method();
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_Exception) || error.matches(PyExc_MemoryError)) throw;
      const bool again = error.matches(PyExc_BufferError) || error.matches(PyExc_TypeError);
      refused.emplace(std::move(error));
      if (!again) break;
    }
  }
  return {};
}

/// What the two kinds of capsules of DLPack point to, as far as it is read here.
struct Managed {
  nb::dlpack::dltensor tensor;
};
struct VersionedManaged {
  std::uint32_t major, minor;
  void* context;
  void* deleter;
  std::uint64_t flags;
  nb::dlpack::dltensor tensor;
};

/// What nanobind and NumPy would follow unseen: a shape that is not there, fields that another
/// version of DLPack may have put elsewhere. What is no capsule is left to them.
void check_capsule(const std::string& name, nb::handle source) {
  constexpr const char* kPlain = "dltensor";
  constexpr const char* kVersioned = "dltensor_versioned";
  const nb::dlpack::dltensor* tensor = nullptr;
  if (PyCapsule_IsValid(source.ptr(), kVersioned) == 1) {
    const auto* managed =
        static_cast<const VersionedManaged*>(PyCapsule_GetPointer(source.ptr(), kVersioned));
    if (managed->major > 1) {
      value_error(name + " is described by version " + std::to_string(managed->major) + "." +
                  std::to_string(managed->minor) + " of DLPack; expected 1.0 or one like it");
    }
    tensor = &managed->tensor;
  } else if (PyCapsule_IsValid(source.ptr(), kPlain) == 1) {
    tensor = &static_cast<const Managed*>(PyCapsule_GetPointer(source.ptr(), kPlain))->tensor;
  }
  if (tensor != nullptr && tensor->ndim > 0 && tensor->shape == nullptr) {
    value_error(name + " has rank " + std::to_string(tensor->ndim) +
                ", but its DLPack tensor has no shape");
  }
}

/// In integers: an offset may be any number, and past an array's end a pointer has no meaning.
void* begin_of(const std::string& name, void* memory, std::uint64_t offset) {
  std::int64_t address = 0;
  if (__builtin_add_overflow(reinterpret_cast<std::intptr_t>(memory), offset, &address)) {
    value_error(name + " has a byte offset of " + std::to_string(offset) +
                "; expected one within the address space");
  }
  return reinterpret_cast<void*>(address);
}

template <typename Imported>
TensorView view_of(const std::string& name, nb::handle object, const Imported& array) {
  constexpr int kCpu = 1;
  if (array.device_type() != kCpu) {
    const nb::object device = attribute(object, "device");
    value_error(
        name + " is on device " +
        (device.is_none() ? "type " + std::to_string(array.device_type()) : text_of(device)) +
        "; expected cpu");
  }
  const auto dtype = dtype_of(array.dtype());
  if (!dtype) type_error(name + " is " + description(object) + kReadable);
  TensorView view{array.data_handle(), *dtype, static_cast<int>(array.ndim()), {}, {}};
  std::int64_t elements = 1;
  for (std::size_t axis = 0; axis < array.ndim(); ++axis) {
    const auto size = static_cast<std::int64_t>(array.shape(axis));
    if (size < 0) value_error(name + " has a negative size");
    elements = size == 0 ? 0 : elements;
    std::int64_t bytes = 0;  // NumPy, which may look at it next, takes them without a check
    if (size > 1 && __builtin_mul_overflow(array.stride(axis),
                                           static_cast<std::int64_t>(size_of(*dtype)), &bytes)) {
      value_error(name + " has stride " + std::to_string(array.stride(axis)) + " along axis " +
                  std::to_string(axis) + "; expected one that fits 63 bits of bytes");
    }
    if (axis < kMaxRank) {
      view.shape[axis] = size;
      view.stride[axis] = array.stride(axis);
    }
  }
  if (elements == 0) return view;
  if (view.data == nullptr) value_error(name + " has elements, but no memory");
  view.data = begin_of(name, view.data, array.byte_offset());
  return view;
}

/// Entry `i` of a tuple of integers: a shape or strides.
std::int64_t integer_at(PyObject* tuple, Py_ssize_t i) {
  PyObject* entry = PyTuple_GetItem(tuple, i);
  const long long value = entry == nullptr ? -1 : PyLong_AsLongLong(entry);
  if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return value;
}

/// What the last entry of a pointer is: an object that only the package has.
PyObject* pointer_mark() {
  static PyObject* const mark =
      PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
  return mark;
}

/// (address, dtype, shape, strides, the mark)
TensorView view_of_pointer(nb::handle object) {
  const auto at = [&](Py_ssize_t i) { return PyTuple_GetItem(object.ptr(), i); };
  PyObject* shape = at(2);
  PyObject* stride = at(3);
  const char* dtype = PyUnicode_Check(at(1)) ? PyUnicode_AsUTF8AndSize(at(1), nullptr) : nullptr;
  if (dtype == nullptr || !PyTuple_Check(shape) || !PyTuple_Check(stride) || !PyLong_Check(at(0))) {
    type_error("expected (address, dtype, shape, strides): an integer, a name and two tuples");
  }
  TensorView view;
  view.data = PyLong_AsVoidPtr(at(0));
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  view.dtype = dtype_named(dtype);
  view.rank = static_cast<int>(PyTuple_Size(shape));
  if (PyTuple_Size(stride) != view.rank) value_error("shape and strides have different lengths");
  for (int axis = 0; axis < view.rank && axis < kMaxRank; ++axis) {
    view.shape[static_cast<std::size_t>(axis)] = integer_at(shape, axis);
    view.stride[static_cast<std::size_t>(axis)] = integer_at(stride, axis);
  }
  return view;
}

/// The same memory as uint16 if it is ml_dtypes' bfloat16, else nothing.
nb::object bits_of_bfloat16(nb::handle object) {
  const nb::object name = attribute(attribute(object, "dtype"), "name");
  if (!nb::isinstance<nb::str>(name) || std::strcmp(nb::cast<const char*>(name), "bfloat16") != 0 ||
      !nb::hasattr(object, "view")) {
    return {};
  }
  return object.attr("view")("uint16");
}

}  // namespace

bool is_pointer(nb::handle object) {
  return PyTuple_Check(object.ptr()) && PyTuple_Size(object.ptr()) == 5 &&
         PyTuple_GetItem(object.ptr(), 4) == pointer_mark();
}

DType dtype_named(const char* name) {
  for (const DType dtype : kDTypes) {
    if (name_of(dtype) == name) return dtype;
  }
  value_error(std::string("no element type is called ") + name);
}

Array& Array::operator=(Array&& other) noexcept {
  release();
  buffer_ = std::exchange(other.buffer_, std::nullopt);
  tensor_ = std::move(other.tensor_);
  view_ = other.view_;
  return *this;
}

void Array::release() noexcept {
  if (buffer_) PyBuffer_Release(&*buffer_);
  buffer_.reset();
}

bool Array::take_buffer(const char* name, nb::handle object, int flags) {
  Py_buffer buffer{};
  if (PyObject_GetBuffer(object.ptr(), &buffer, flags) != 0) {
    const nb::python_error error;
    if (!error.matches(PyExc_Exception) || error.matches(PyExc_MemoryError)) throw error;
    return false;
  }
  buffer_ = buffer;
  const auto dtype = dtype_of(buffer);
  if (!dtype) {
    if (buffer.format != nullptr && std::strpbrk(buffer.format, "<>=!") == nullptr) {
      type_error(std::string(name) + " is " + description(object) + kReadable);
    }
    no_array(name, object);
  }
  view_ = {buffer.buf, *dtype, buffer.ndim, {}, {}};
  std::int64_t elements = 1;
  for (int axis = buffer.ndim; axis-- > 0; elements *= buffer.shape[axis]) {
    if (axis >= kMaxRank) continue;
    // ctypes gives no strides, though they are asked for: its arrays are dense.
    const Py_ssize_t stride =
        buffer.strides == nullptr ? elements * buffer.itemsize : buffer.strides[axis];
    if (stride % buffer.itemsize != 0) {
      value_error(std::string(name) + " has a stride of " + std::to_string(stride) +
                  " bytes along axis " + std::to_string(axis) + "; expected a multiple of " +
                  std::to_string(buffer.itemsize) + ", the size of its elements");
    }
    view_.shape[static_cast<std::size_t>(axis)] = buffer.shape[axis];
    view_.stride[static_cast<std::size_t>(axis)] = stride / buffer.itemsize;
  }
  if (buffer.buf == nullptr && elements != 0)
    value_error(std::string(name) + " has elements, but no memory");
  return true;
}

template <typename Imported>
bool Array::take_tensor(const char* name, nb::handle object,
                        std::optional<nb::python_error>& refused) {
  Imported array;
  const nb::object capsule = capsule_of(object, !Imported::ReadOnly, refused);
  if (capsule.is_valid() && PyCapsule_CheckExact(capsule.ptr()) == 0) {
    type_error(std::string(name) + ".__dlpack__() gave an object of type " + name_of_type(capsule) +
               "; expected a capsule");
  }
  const nb::handle source = capsule.is_valid() ? nb::handle(capsule) : object;
  check_capsule(name, source);
  const bool done =
      (!refused || capsule.is_valid()) && nb::try_cast<Imported>(source, array, false);
  PyErr_Clear();
  if (!done || !array.is_valid()) return false;
  tensor_.emplace(array);
  view_ = view_of(name, object, array);
  return true;
}

Array Array::read(const char* name, nb::handle object) {
  Array array;
  if (PyObject_CheckBuffer(object.ptr()) == 1) {
    refuse_masked(name, object, ".filled(0)");
    if (array.take_buffer(name, object, PyBUF_RECORDS_RO)) return array;
  } else if (is_pointer(object)) {
    array.view_ = view_of_pointer(object);
    return array;
  } else {
    refuse_losses(name, object);
  }
  std::optional<nb::python_error> refused;
  if (array.take_tensor<nb::ndarray<nb::ro>>(name, object, refused)) return array;
  const nb::object bits = bits_of_bfloat16(object);
  if (!bits.is_valid() || !array.take_buffer(name, bits, PyBUF_RECORDS_RO) ||
      array.view_.dtype != DType::u16) {
    no_array(name, object, std::move(refused));
  }
  array.view_.dtype = DType::bf16;
  return array;
}

Array Array::write(const char* name, nb::handle object) {
  Array array;
  if (PyObject_CheckBuffer(object.ptr()) == 1) {
    refuse_masked(name, object, ".data");
    if (array.take_buffer(name, object, PyBUF_RECORDS)) return array;
  } else if (is_pointer(object)) {
    array.view_ = view_of_pointer(object);
    return array;
  } else {
    refuse_losses(name, object);
  }
  // JAX's arrays must never change, but their capsules do not say so.
  const bool immutable = name_of_type(object).starts_with("jax");
  std::optional<nb::python_error> refused;
  if (!immutable && array.take_tensor<nb::ndarray<>>(name, object, refused)) return array;
  const nb::object bits = bits_of_bfloat16(object);
  if (bits.is_valid() && array.take_buffer(name, bits, PyBUF_RECORDS) &&
      array.view_.dtype == DType::u16) {
    array.view_.dtype = DType::bf16;
    return array;
  }
  read(name, object);  // throws what there is to say unless only writing is refused
  value_error(std::string(name) + " is read-only; expected an array to write to");
}

nb::object Array::memory(const std::string& name, nb::handle object) const {
  if (view_.rank > kMaxRank)
    value_error(name + " has rank " + std::to_string(view_.rank) + "; expected at most 4");
  if (view_.dtype == DType::bf16 || (!buffer_ && !tensor_)) return nb::none();
  if (buffer_) return nb::module_::import_("builtins").attr("memoryview")(object);
  return nb::cast(nb::ndarray<nb::memview, nb::ro>(*tensor_), nb::rv_policy::reference);
}

Array Array::read_optional(const char* name, nb::handle object) {
  return object.is_none() ? Array() : read(name, object);
}

Array Array::write_optional(const char* name, nb::handle object) {
  return object.is_none() ? Array() : write(name, object);
}

void check_types(const char* function, DType dtype,
                 std::initializer_list<std::pair<const char*, DType>> others) {
  if (!is_floating(dtype)) {
    type_error(std::string(function) + ": q is " + std::string(name_of(dtype)) +
               "; expected float32, float64, float16 or bfloat16");
  }
  for (const auto& [name, other] : others) {
    if (other == dtype) continue;
    type_error(std::string(function) + ": " + name + " is " + std::string(name_of(other)) +
               ", q is " + std::string(name_of(dtype)) + "; they must be equal");
  }
}

void bind_array(nb::module_& module) {
  module.attr("_POINTER") = nb::handle(pointer_mark());
  module.def(
      "checked_memory",
      [](const char* name, nb::handle x) { return Array::read(name, x).memory(name, x); },
      nb::arg("name"), nb::arg("array").none(),
      "What NumPy may look at; throws what any call would throw for an array that cannot be read.");
}

}  // namespace heed::python

// From the tuple of options to AttentionOptions, field by field, in the order in which they act.
#include "options.h"

#include <string_view>
#include <type_traits>

#include "refusals.h"
#include "run.h"

namespace heed::python {
namespace {

enum Field : std::size_t {
  kScale,
  kNormalizeQk,
  kSoftcap,
  kAlibi,
  kBias,
  kRole,
  kMask,
  kCausal,
  kQueryStart,
  kWindow,
  kKeyLengths,
  kQueryLengths,
  kSinks,
  kDropoutP,
  kSeed,
  kReproducible,
  kPacking,
  kFields
};

/// True and False are numbers to Python, whose bool is an int; here they are a slip, such as
/// arguments in another order.
void refuse_truth(const char* name, nb::handle value, const char* expected) {
  bool is_truth = PyBool_Check(value.ptr()) != 0;
  if (!is_truth && PyLong_Check(value.ptr()) == 0 && nb::hasattr(value, "dtype")) {
    const nb::object type = value.attr("dtype");
    const std::string dtype = text_of(type);
    is_truth = dtype == "bool" || dtype == "torch.bool";
  }
  if (is_truth) type_error(std::string(name) + " is of type bool; expected " + expected);
}

/// Of NumPy: __float__ would read the text, and leave out the imaginary part.
void refuse_text_and_complex(const char* name, nb::handle value) {
  if (PyLong_Check(value.ptr()) != 0) return;
  const nb::object kind = attribute(attribute(value, "dtype"), "kind");
  if (!nb::isinstance<nb::str>(kind)) return;
  const std::string_view letter = nb::cast<const char*>(kind);
  if (letter == "c" || letter == "S" || letter == "T" || letter == "U")
    type_error(std::string(name) + " is of type " + name_of_type(value) + "; expected a number");
}

}  // namespace

double number(const char* name, nb::handle value) {
  if (PyFloat_Check(value.ptr()) == 0) {
    if (PyLong_Check(value.ptr()) == 0) {
      refuse_derivatives(name, value);
      refuse_masked(name, value, ".filled(0)");
    }
    refuse_truth(name, value, "a number");
    refuse_text_and_complex(name, value);
  }
  const double result = PyFloat_AsDouble(value.ptr());
  if (result == -1.0 && PyErr_Occurred() != nullptr) {
    const bool too_large = PyErr_ExceptionMatches(PyExc_OverflowError) != 0;
    forget_error();
    if (too_large) {
      value_error(std::string(name) +
                  " is an integer beyond the largest float64; expected a number that it can hold");
    }
    type_error(std::string(name) + " is of type " + name_of_type(value) + "; expected a number");
  }
  return result;
}

namespace {

/// An integer in a message, cut where heed._options.integer cuts it: Python writes no thousands of
/// digits.
std::string digits_of(nb::handle integer) {
  constexpr std::size_t kMostBits = 200;
  const auto bits = nb::cast<std::size_t>(integer.attr("bit_length")());
  return bits <= kMostBits ? text_of(integer) : "an integer of more than 60 digits";
}

/// Python's int of what is an integer.
nb::object index_of(const char* name, nb::handle value) {
  if (PyLong_Check(value.ptr()) == 0) refuse_masked(name, value, ".filled(0)");
  refuse_truth(name, value, "an integer");
  nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) {
    forget_error();
    type_error(std::string(name) + " is of type " + name_of_type(value) + "; expected an integer");
  }
  return index;
}

std::int64_t integer(const char* name, nb::handle value) {
  const nb::object index = index_of(name, value);
  const long long result = PyLong_AsLongLong(index.ptr());
  if (result == -1 && PyErr_Occurred() != nullptr) {
    forget_error();
    value_error(std::string(name) + " is " + digits_of(index) + "; expected one that fits 64 bits");
  }
  return result;
}

bool truth(const char* name, nb::handle value) {
  if (value.is(Py_True)) return true;
  if (value.is(Py_False)) return false;
  const std::string type = name_of_type(value);
  if (type != "numpy.bool" && type != "numpy.bool_")
    type_error(std::string(name) + " is of type " + type + "; expected True or False");
  return PyObject_IsTrue(value.ptr()) == 1;
}

/// A list or tuple as an array of the type that `entry` reads, other objects as they are. NumPy
/// alone would make int64 of whole numbers, float64 of an empty list, and objects of what no type
/// holds.
template <typename Number>
nb::object listed(const char* name, nb::handle value, Number (*entry)(const char*, nb::handle)) {
  const bool is_list = PyList_Check(value.ptr()) != 0 || PyTuple_Check(value.ptr()) != 0;
  if (!is_list || is_pointer(value)) return nb::borrow(value);
  nb::list numbers;
  for (const nb::handle one : nb::borrow<nb::object>(value)) {
    const std::string place = std::string(name) + "[" + std::to_string(numbers.size()) + "]";
    numbers.append(entry(place.c_str(), one));
  }
  const char* dtype = std::is_same_v<Number, double> ? "float64" : "int64";
  return nb::module_::import_("numpy").attr("asarray")(numbers, dtype);
}

/// A Python number, or an array without axes.
bool is_scalar(nb::handle value) {
  if (PyFloat_Check(value.ptr()) || PyLong_Check(value.ptr())) return true;
  const nb::object axes = nb::getattr(value, "ndim", nb::none());
  if (axes.is_none())
    return PyNumber_Check(value.ptr()) == 1 && PyObject_CheckBuffer(value.ptr()) == 0;
  int number = 0;
  return nb::try_cast(axes, number) && number == 0;
}

/// TypeError unless `value`, which is no number, can be an array.
void check_each(const char* name, nb::handle value, const char* expected) {
  if (PyList_Check(value.ptr()) || PyTuple_Check(value.ptr()) || is_pointer(value) ||
      PyObject_CheckBuffer(value.ptr()) == 1 || nb::hasattr(value, "__dlpack__")) {
    return;
  }
  type_error(std::string(name) + " is of type " + name_of_type(value) + "; expected " + expected);
}

template <typename Number>
void set_each(ConstTensorView& each, const char* name, nb::handle value, Array& held,
              Number (*entry)(const char*, nb::handle), const char* expected) {
  check_each(name, value, expected);
  held = Array::read(name, listed(name, value, entry));
  each = held.view();
}

}  // namespace

PerHead Options::per_head(const char* name, nb::handle value, Array& held) {
  PerHead result;
  if (value.is_none()) return result;
  if (is_scalar(value)) {
    result.one = number(name, value);
  } else {
    set_each(result.each, name, value, held, number, "a number, or an array of one for each head");
  }
  return result;
}

PerBatch Options::per_batch(const char* name, nb::handle value, Array& held) {
  PerBatch result;
  if (value.is_none()) return result;
  if (is_scalar(value)) {
    result.one = integer(name, value);
  } else {
    set_each(result.each, name, value, held, integer,
             "an integer, or an array of one for each batch entry");
  }
  return result;
}

void Options::set_mask(nb::handle role, nb::handle mask) {
  if (mask.is_none()) return;
  mask_ = Array::read("mask", mask);
  const ConstTensorView view = mask_.view();
  const auto dtype = std::string(name_of(view.dtype));
  enum Role { kByType, kKeep, kDrop, kAdd };
  std::int64_t means = integer("mask.role", role);
  if (means < kByType || means > kAdd) {
    value_error("mask.role is " + std::to_string(means) +
                "; expected 1 (keep), 2 (drop) or 3 (add)");
  }
  if (means == kByType) {
    if (view.dtype != DType::boolean && !is_floating(view.dtype)) {
      type_error(
          "mask is " + dtype +
          "; expected bool, which keeps, or a floating type, which adds; heed.keep(mask) and "
          "heed.drop(mask) take integers");
    }
    means = view.dtype == DType::boolean ? kKeep : kAdd;
  }
  if (means == kKeep) options_.mask.keep = view;
  if (means == kDrop) options_.mask.drop = view;
  if (means != kAdd) return;
  if (!is_floating(view.dtype)) type_error("mask (add) is " + dtype + "; expected a floating type");
  if (options_.bias.present()) value_error("mask adds, and so does bias; expected one of them");
  options_.bias = view;
  bias_name_ = "mask";
}

void Options::set_window(nb::handle window) {
  if (window.is_none()) return;
  require_pair("window", window, "(left, right), None for a side without end");
  const nb::object left = window[0];
  const nb::object right = window[1];
  if (!left.is_none()) options_.mask.window.left = integer("window.left", left);
  if (!right.is_none()) options_.mask.window.right = integer("window.right", right);
}

void Options::set_packing(nb::handle packing) {
  if (packing.is_none()) return;
  require_pair("packing", packing, "(query_offsets, key_offsets)");
  const nb::object queries = packing[0];
  const nb::object keys = packing[1];
  Packing& views = options_.packing;
  const char* expected = "an array or a list of integers, one more than sequences";
  if (!queries.is_none()) {
    set_each(views.query_offsets, "packing.query_offsets", queries, query_offsets_, integer,
             expected);
  }
  if (!keys.is_none())
    set_each(views.key_offsets, "packing.key_offsets", keys, key_offsets_, integer, expected);
}

Options::Options(const nb::tuple& fields) {
  if (fields.size() != kFields) value_error("expected " + std::to_string(kFields) + " options");
  const auto at = [&](Field field) {
    return nb::handle(PyTuple_GetItem(fields.ptr(), static_cast<Py_ssize_t>(field)));
  };
  options_.scale = per_head("scale", at(kScale), scale_);
  options_.normalize_qk = truth("normalize_qk", at(kNormalizeQk));
  if (!at(kSoftcap).is_none()) options_.softcap = number("softcap", at(kSoftcap));
  const char* of_heads = "an array or a list of numbers, one for each head";
  if (!at(kAlibi).is_none())
    set_each(options_.alibi, "alibi", at(kAlibi), alibi_, number, of_heads);
  bias_ = Array::read_optional("bias", at(kBias));
  options_.bias = bias_.view();
  set_mask(at(kRole), at(kMask));
  options_.mask.causal = truth("causal", at(kCausal));
  options_.mask.query_start = per_batch("query_start", at(kQueryStart), query_start_);
  set_window(at(kWindow));
  options_.mask.key_lengths = per_batch("key_lengths", at(kKeyLengths), key_lengths_);
  options_.mask.query_lengths = per_batch("query_lengths", at(kQueryLengths), query_lengths_);
  if (!at(kSinks).is_none())
    set_each(options_.sinks, "sinks", at(kSinks), sinks_, number, of_heads);
  reproducible_ = truth("reproducible", at(kReproducible));
  set_packing(at(kPacking));
  if (!at(kDropoutP).is_none()) options_.dropout.p = number("dropout_p", at(kDropoutP));
  if (!at(kSeed).is_none()) {
    const nb::object seed = index_of("seed", at(kSeed));
    const auto bits = PyLong_AsUnsignedLongLong(seed.ptr());
    if (PyErr_Occurred() != nullptr) {
      forget_error();
      value_error("seed is " + digits_of(seed) + "; expected 0 .. 2^64 - 1");
    }
    options_.dropout.seed = bits;
  }
}

void Options::run(const char* function, const std::function<void()>& work) const {
  run_without_gil(function, work, bias_name_);
}

}  // namespace heed::python

// What heed does not take for an array, in words.
#include "refusals.h"

#include <utility>

namespace heed::python {
namespace {

/// An attribute's name or number, empty where there is none.
std::string text_of_attribute(nb::handle object, const char* name) {
  const nb::object value = attribute(object, name);
  return value.is_none() ? "" : text_of(value);
}

/// Whether Python counts it as true; an error on the way counts as false.
bool holds(const nb::object& condition) {
  const bool result = !condition.is_none() && PyObject_IsTrue(condition.ptr()) == 1;
  forget_error();
  return result;
}

/// Throws a TypeError whose cause is `error`, where there is one.
[[noreturn]] void type_error_from(std::optional<nb::python_error>& error, const std::string& text) {
  if (!error) type_error(text);
  nb::raise_from(*error, PyExc_TypeError, "%s", text.c_str());
  throw nb::python_error();
}

/// The refusals that belong to DLPack: an object without it, or one that it cannot describe.
bool is_refusal(const nb::python_error& error) {
  return error.matches(PyExc_TypeError) || error.matches(PyExc_AttributeError) ||
         error.matches(PyExc_BufferError);
}

/// PyTorch's transforms wrap tensors, and DLPack would hand over what they wrap.
void refuse_transforms(const std::string& name, nb::handle object) {
  const nb::object torch = attribute(nb::module_::import_("sys").attr("modules"), "get")("torch");
  if (torch.is_none()) return;
  const nb::object functorch = attribute(attribute(torch, "_C"), "_functorch");
  const nb::object wrapped = attribute(functorch, "is_functorch_wrapped_tensor");
  if (!wrapped.is_none() && holds(wrapped(object))) {
    value_error(name +
                " is inside a transform of PyTorch (torch.vmap, torch.func), which this function "
                "would lose; call heed.torch.attention");
  }
  const nb::object forward_mode = attribute(attribute(torch, "autograd"), "forward_ad");
  const nb::object level = attribute(forward_mode, "_current_level");
  if (!level.is_none() && nb::cast<int>(level) < 0) return;  // no forward mode now
  const nb::object unpack = attribute(forward_mode, "unpack_dual");
  if (!unpack.is_none() && !attribute(unpack(object), "tangent").is_none()) {
    value_error(name +
                " has a tangent of forward mode, which this function would lose; call "
                "heed.torch.attention, or heed.attention_jvp with the tangents");
  }
}

}  // namespace

void forget_error() {
  if (PyErr_Occurred() == nullptr) return;
  if (PyErr_ExceptionMatches(PyExc_Exception) == 0 ||
      PyErr_ExceptionMatches(PyExc_MemoryError) != 0) {
    throw nb::python_error();
  }
  PyErr_Clear();
}

std::string text_of(nb::handle object) {
  const nb::str text(object);
  // Half a letter of UTF-16 is written by its number: UTF-8 has none.
  const nb::object bytes =
      nb::steal(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace"));
  if (!bytes.is_valid()) throw nb::python_error();
  return {PyBytes_AsString(bytes.ptr()), static_cast<std::size_t>(PyBytes_Size(bytes.ptr()))};
}

nb::object attribute(nb::handle object, const char* name) {
  nb::object found = nb::steal(PyObject_GetAttrString(object.ptr(), name));
  if (found.is_valid()) return found;
  forget_error();
  return nb::none();
}

void type_error(const std::string& text) { throw nb::type_error(text.c_str()); }
void value_error(const std::string& text) { throw nb::value_error(text.c_str()); }

std::string name_of_type(nb::handle object) {
  const nb::handle type = object.type();
  const std::string module = text_of(attribute(type, "__module__"));
  const std::string name = text_of(attribute(type, "__qualname__"));
  return module == "builtins" ? name : module + "." + name;
}

std::string description(nb::handle object) {
  const nb::object dtype = attribute(object, "dtype");
  return dtype.is_none() ? "of type " + name_of_type(object) : "an array of " + text_of(dtype);
}

void no_array(const std::string& name, nb::handle object, std::optional<nb::python_error> refused) {
  const std::string type = name_of_type(object);
  if (type.starts_with("jax") && type.ends_with("Tracer")) {
    type_error(name +
               " is traced by JAX, inside jit, vmap or grad; call heed.jax.attention, or pass an "
               "array");
  }
  const std::string device = text_of_attribute(attribute(object, "device"), "type");
  if (!device.empty() && device != "cpu")
    value_error(name + " is on device " + device + "; expected cpu");
  const std::string layout = text_of_attribute(object, "layout");
  if (layout.starts_with("torch.") && layout != "torch.strided")
    value_error(name + " has layout " + layout + "; expected torch.strided");
  if (!layout.empty() && holds(attribute(object, "is_nested")))
    value_error(name + " has layout nested; expected torch.strided");
  if (refused && !is_refusal(*refused)) {
    nb::object raised = nb::borrow(refused->value());
    raised.attr("add_note")(("raised by " + name + ", an argument of heed").c_str());
    throw std::move(*refused);
  }
  type_error_from(refused, name + " is " + description(object) +
                               "; expected an array with __dlpack__ or the buffer protocol, of "
                               "numbers that heed reads, in native byte order");
}

void require_pair(const std::string& name, nb::handle object, const char* expected) {
  if (PyTuple_Check(object.ptr()) == 0) refuse_masked(name.c_str(), object, ".filled(0)");
  const Py_ssize_t size = PySequence_Check(object.ptr()) != 0 ? PySequence_Size(object.ptr()) : -1;
  if (size == 2) return;
  forget_error();  // an array without axes has no size
  const std::string what = name + " is not a pair, but ";
  const std::string rest = std::string("; expected ") + expected;
  if (size < 0) type_error(what + "of type " + name_of_type(object) + rest);
  value_error(what + "has " + std::to_string(size) + (size == 1 ? " element" : " elements") + rest);
}

void refuse_masked(const char* name, nb::handle object, const char* plain) {
  static PyObject* ordinary =
      nullptr;  // numpy.ndarray itself: nearly all arrays are told by a comparison
  PyObject* type = object.type().ptr();
  if (type == ordinary) return;
  if (name_of_type(object) == "numpy.ndarray") {
    ordinary = Py_NewRef(type);
  } else if (nb::hasattr(object, "filled") && nb::hasattr(object, "mask")) {
    type_error(std::string(name) + " is of type " + name_of_type(object) +
               ", which hides elements, and they would be seen; expected a plain array, such as " +
               name + plain);
  }
}

void refuse_losses(const char* name, nb::handle object) {
  const nb::object is_neg = attribute(object, "is_neg");
  refuse_derivatives(name, object);
  if (!is_neg.is_none() && holds(is_neg())) {  // a tensor of PyTorch
    value_error(std::string(name) + " is a negated view, whose sign is not in memory; pass " +
                name + ".resolve_neg()");
  }
}

void refuse_derivatives(const char* argument, nb::handle object) {
  const std::string name = argument;
  if (nb::hasattr(object, "grad_fn")) refuse_transforms(name, object);  // a tensor of PyTorch
  if (holds(attribute(object, "requires_grad"))) {
    value_error(name +
                " requires a gradient, which this function would lose; call heed.torch.attention, "
                "or pass " +
                name + ".detach()");
  }
}

}  // namespace heed::python

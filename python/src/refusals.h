// What heed does not take for an array, in words; and how objects of Python are asked.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>

namespace heed::python {

namespace nb = nanobind;

/// Throws TypeError or ValueError with this text.
[[noreturn]] void type_error(const std::string& text);
[[noreturn]] void value_error(const std::string& text);

/// Forgets Python's error, in whose place comes a better one or none. What is about no object, such
/// as KeyboardInterrupt and MemoryError, is thrown.
void forget_error();

[[nodiscard]] std::string text_of(nb::handle object);

/// An attribute, or nothing; an error on the way counts as nothing.
[[nodiscard]] nb::object attribute(nb::handle object, const char* name);

/// "numpy.ndarray", "list"
[[nodiscard]] std::string name_of_type(nb::handle object);

/// What an object is, for messages: "an array of complex64", "a list".
[[nodiscard]] std::string description(nb::handle object);

/// TypeError unless the object has elements by number, ValueError unless they are two.
void require_pair(const std::string& name, nb::handle object, const char* expected);

/// What a framework has instead of memory on this CPU gets a word of its own; errors that the
/// object raised for other reasons stay what they are.
[[noreturn]] void no_array(const std::string& name, nb::handle object,
                           std::optional<nb::python_error> refused = std::nullopt);

/// NumPy's masked arrays: the buffer protocol shows what they hide. `plain` makes one that is told
/// as expected: ".filled(0)" copies what is read, ".data" is the memory that is written.
void refuse_masked(const char* name, nb::handle object, const char* plain);

/// ValueError where an array or a number is part of what PyTorch differentiates or transforms,
/// which heed would lose.
void refuse_derivatives(const char* name, nb::handle object);

/// What nanobind would take and lose in silence, since DLPack does not carry it: a gradient, a
/// negative bit, a tangent.
void refuse_losses(const char* name, nb::handle object);

}  // namespace heed::python

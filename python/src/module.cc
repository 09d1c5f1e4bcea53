// The extension module heed._core.
#include <nanobind/nanobind.h>

#include "bindings.h"
#include "run.h"

NB_MODULE(_core, module) {
  // A thread that is alive at the end of the process keeps what it uses, and heed prints nothing.
  nanobind::set_leak_warnings(false);
  nanobind::module_::import_("atexit").attr("register")(
      nanobind::cpp_function(&heed::python::python_ends));
  Py_AtExit(&heed::python::python_has_ended);
  module.doc() = "The compiled part of heed; use the functions of the package heed.";
  heed::python::bind_array(module);
  heed::python::bind_cache(module);
  heed::python::bind_forward(module);
  heed::python::bind_gradients(module);
  heed::python::bind_inspection(module);
  heed::python::bind_merge(module);
  heed::python::bind_runtime(module);
#ifdef HEED_HAS_JAX
  heed::python::bind_jax(module);
#endif
}

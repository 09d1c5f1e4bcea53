// What each source adds to heed._core.
#pragma once

#include <nanobind/nanobind.h>

namespace heed::python {

void bind_array(nanobind::module_& module);
void bind_cache(nanobind::module_& module);
void bind_forward(nanobind::module_& module);
void bind_gradients(nanobind::module_& module);
void bind_inspection(nanobind::module_& module);
void bind_merge(nanobind::module_& module);
void bind_runtime(nanobind::module_& module);
void bind_jax(nanobind::module_& module);  // where HEED_HAS_JAX is defined

}  // namespace heed::python

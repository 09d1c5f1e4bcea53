// heed._core.explain, and what there is of threads, instruction sets and version.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <vector>

#include "bindings.h"
#include "heed/heed.h"
#include "options.h"
#include "run.h"

namespace heed::python {
namespace {

using ExplanationFields = std::tuple<std::string, std::string, std::string, int, std::int64_t,
                                     std::int64_t, std::int64_t, std::int64_t, int, int>;

ExplanationFields explain_of(nb::handle q, nb::handle k, nb::handle v, const nb::tuple& options,
                             int threads) {
  const Array query = Array::read("q", q);
  const Array key = Array::read("k", k);
  const Array value = Array::read("v", v);
  check_types("explain", query.view().dtype, {{"k", key.view().dtype}, {"v", value.view().dtype}});
  const Options settings(options);
  Explanation told{};
  settings.run("explain", [&] {
    told = explain(query.view(), key.view(), value.view(), settings.get(),
                   {.threads = threads, .reproducible = settings.reproducible()});
  });
  return {told.path,           std::string(name_of(told.isa)),
          told.reason,         told.threads,
          told.tasks,          told.scratch_bytes,
          told.tiles_computed, told.tiles_skipped,
          told.tile_queries,   told.tile_keys};
}

std::vector<std::tuple<std::string, bool, bool, bool>> instruction_sets_of() {
  std::vector<std::tuple<std::string, bool, bool, bool>> result;
  for (const InstructionSet& set : instruction_sets()) {
    result.emplace_back(std::string(name_of(set.isa)), set.compiled, set.supported, set.slow);
  }
  return result;
}

std::string instruction_set_of() {
  std::string name;
  run_without_gil("instruction_set", [&] { name = name_of(instruction_set()); });
  return name;
}

void cap_instruction_set_of(nb::handle wanted) {
  const bool is_name = nb::isinstance<nb::str>(wanted);
  std::string known;
  for (int i = 0; i <= static_cast<int>(Isa::neon_bf16); ++i) {
    const auto isa = static_cast<Isa>(i);
    const std::string name(name_of(isa));
    if (is_name && PyUnicode_CompareWithASCIIString(wanted.ptr(), name.c_str()) == 0) {
      return cap_instruction_set(isa);
    }
    known += (i == 0 ? "" : ", ") + name;
  }
  const std::string expected = "; expected one of " + known;
  if (!is_name) {
    type_error("cap_instruction_set: highest is of type " + name_of_type(wanted) + expected);
  }
  value_error("cap_instruction_set: highest is " + std::string(nb::repr(wanted).c_str()) +
              expected);
}

int default_threads_of() {
  int threads = 0;
  run_without_gil("default_threads", [&] { threads = default_threads(); });
  return threads;
}

}  // namespace

void bind_runtime(nb::module_& module) {
  using namespace nb::literals;
  module.def("explain", &explain_of, "q"_a.none(), "k"_a.none(), "v"_a.none(), "options"_a,
             "threads"_a, "The fields of heed.Explanation.");
  module.def(
      "instruction_sets", &instruction_sets_of,
      "(name, compiled, supported, slow) of all instruction sets of this architecture, ascending.");
  module.def("instruction_set", &instruction_set_of,
             "The instruction set that a call would run now.");
  module.def(
      "cap_instruction_set", &cap_instruction_set_of, "highest"_a.none(),
      "Caps the instruction set for all later calls of this process, in place of HEED_MAX_ISA.\n"
      "Not to be called while other threads are inside heed.");
  module.def("default_threads", &default_threads_of,
             "HEED_NUM_THREADS, else OMP_NUM_THREADS, else the CPUs that this process may use.\n"
             "Found once per process: later changes of these are not seen.");
  module.def("refused_thread_starts", &refused_thread_starts,
             "How often the system has refused the pool a thread.");
  module.def(
      "version", [] { return std::string(version()); }, "The library's version.");
}

}  // namespace heed::python

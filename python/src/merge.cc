// heed._core.merge.
#include <vector>

#include "bindings.h"
#include "heed/heed.h"
#include "options.h"
#include "run.h"

namespace heed::python {
namespace {

void merge_of(const nb::list& outputs, const nb::list& lses, nb::handle output, nb::handle lse,
              int threads) {
  if (outputs.size() != lses.size()) {
    value_error("merge: lses has " + std::to_string(lses.size()) + " parts, outputs " +
                std::to_string(outputs.size()) + "; they must be equal");
  }
  std::vector<Array> held;
  std::vector<AttentionPart> parts;
  for (std::size_t n = 0; n < outputs.size(); ++n) {
    const std::string place = std::to_string(n) + "]";
    held.push_back(Array::read(("outputs[" + place).c_str(), outputs[n]));
    const ConstTensorView part = held.back().view();
    held.push_back(Array::read(("lses[" + place).c_str(), lses[n]));
    parts.push_back({.output = part, .lse = held.back().view()});
  }
  const Array merged = Array::write("output", output);
  const Array sums = Array::write("lse", lse);
  run_without_gil("merge", [&] {
    InterruptibleExecutor executor(threads);
    merge(parts, {.output = merged.view(), .lse = sums.view()}, {.executor = &executor});
  });
}

}  // namespace

void bind_merge(nb::module_& module) {
  using namespace nb::literals;
  module.def("merge", &merge_of, "outputs"_a, "lses"_a, "output"_a, "lse"_a, "threads"_a,
             "Output and lse over the keys of all parts, two lists of the same length.");
}

}  // namespace heed::python

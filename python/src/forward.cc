// heed._core.attention_forward: attention into arrays that are there already.
#include "bindings.h"
#include "heed/heed.h"
#include "options.h"
#include "run.h"
#include "statistics.h"

namespace heed::python {

namespace {

void attention_forward_of(nb::handle q, nb::handle k, nb::handle v, nb::handle output,
                          nb::handle lse, nb::handle weights, nb::handle statistics,
                          const nb::tuple& options, int threads) {
  const Array query = Array::read("q", q);
  const Array key = Array::read("k", k);
  const Array value = Array::read("v", v);
  check_types("attention", query.view().dtype,
              {{"k", key.view().dtype}, {"v", value.view().dtype}});
  const Array result = Array::write_optional("out", output);
  const Array sums = Array::write_optional("lse", lse);
  const Array matrix = Array::write_optional("weights", weights);
  const Statistics rows(statistics);
  const Options settings(options);
  settings.run("attention", [&] {
    InterruptibleExecutor executor(threads);
    attention_forward(query.view(), key.view(), value.view(),
                      {.output = result.view(),
                       .lse = sums.view(),
                       .weights = matrix.view(),
                       .statistics = rows.get()},
                      settings.get(), settings.run_on(executor));
  });
}

}  // namespace

void bind_forward(nb::module_& module) {
  using namespace nb::literals;
  module.def(
      "attention_forward", &attention_forward_of, "q"_a.none(), "k"_a.none(), "v"_a.none(),
      "output"_a.none(), "lse"_a.none(), "weights"_a.none(), "statistics"_a.none(), "options"_a,
      "threads"_a,
      "Attention into arrays that are there already. What heed.attention calls, and what a custom\n"
      "operator of a framework may call with (address, dtype, shape, strides, _POINTER) for each "
      "tensor:\n"
      "a pointer costs 0.1 us, a DLPack capsule 3 us. `options` is heed._options.pack(...).");
}

}  // namespace heed::python

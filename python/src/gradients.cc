// heed._core.attention_backward and attention_jvp.
#include <array>

#include "bindings.h"
#include "heed/heed.h"
#include "options.h"
#include "run.h"

namespace heed::python {
namespace {

void attention_backward_of(nb::handle q, nb::handle k, nb::handle v, nb::handle output,
                           nb::handle lse, nb::handle d_output, const nb::tuple& gradients,
                           const nb::tuple& options, int threads) {
  const Array query = Array::read("q", q);
  const Array key = Array::read("k", k);
  const Array value = Array::read("v", v);
  const Array out = Array::read("output", output);
  const Array d_out = Array::read("d_output", d_output);
  const Array sums = Array::read("lse", lse);
  check_types("attention_backward", query.view().dtype,
              {{"k", key.view().dtype},
               {"v", value.view().dtype},
               {"output", out.view().dtype},
               {"d_output", d_out.view().dtype}});
  // Callers inside the package that know no norms leave them out.
  const std::size_t wanted = gradients.size();
  if (wanted != 7 && wanted != 8) value_error("expected 8 gradients");
  const Array dq = Array::write_optional("dq", gradients[0]);
  const Array dk = Array::write_optional("dk", gradients[1]);
  const Array dv = Array::write_optional("dv", gradients[2]);
  const Array dscale = Array::write_optional("dscale", gradients[3]);
  const Array dalibi = Array::write_optional("dalibi", gradients[4]);
  const Array dbias = Array::write_optional("dbias", gradients[5]);
  const Array dsinks = Array::write_optional("dsinks", gradients[6]);
  const Array ds_norms = wanted == 8 ? Array::write_optional("ds_norms", gradients[7]) : Array();
  const Options settings(options);
  settings.run("attention_backward", [&] {
    InterruptibleExecutor executor(threads);
    attention_backward({.q = query.view(),
                        .k = key.view(),
                        .v = value.view(),
                        .output = out.view(),
                        .lse = sums.view(),
                        .d_output = d_out.view()},
                       {.dq = dq.view(),
                        .dk = dk.view(),
                        .dv = dv.view(),
                        .dscale = dscale.view(),
                        .dalibi = dalibi.view(),
                        .dbias = dbias.view(),
                        .dsinks = dsinks.view(),
                        .ds_norms = ds_norms.view()},
                       settings.get(), settings.run_on(executor));
  });
}

void attention_jvp_of(nb::handle q, nb::handle k, nb::handle v, nb::handle output, nb::handle lse,
                      const nb::tuple& tangents, nb::handle d_output, nb::handle d_lse,
                      const nb::tuple& options, int threads) {
  const Array query = Array::read("q", q);
  const Array key = Array::read("k", k);
  const Array value = Array::read("v", v);
  const Array out = Array::read("output", output);
  const Array sums = Array::read("lse", lse);
  check_types("attention_jvp", query.view().dtype,
              {{"k", key.view().dtype}, {"v", value.view().dtype}, {"output", out.view().dtype}});
  if (tangents.size() != 4) value_error("expected 4 tangents");
  const Array tangent_q = Array::read_optional("tangent_q", tangents[0]);
  const Array tangent_k = Array::read_optional("tangent_k", tangents[1]);
  const Array tangent_v = Array::read_optional("tangent_v", tangents[2]);
  const Array tangent_bias = Array::read_optional("tangent_bias", tangents[3]);
  const Array moved = Array::write_optional("output", d_output);
  const Array moved_sums = Array::write_optional("lse", d_lse);
  const Options settings(options);
  settings.run("attention_jvp", [&] {
    InterruptibleExecutor executor(threads);
    attention_jvp({.q = query.view(),
                   .k = key.view(),
                   .v = value.view(),
                   .output = out.view(),
                   .lse = sums.view()},
                  {.q = tangent_q.view(),
                   .k = tangent_k.view(),
                   .v = tangent_v.view(),
                   .bias = tangent_bias.view()},
                  {.output = moved.view(), .lse = moved_sums.view()}, settings.get(),
                  settings.run_on(executor));
  });
}

}  // namespace

void bind_gradients(nb::module_& module) {
  using namespace nb::literals;
  module.def("attention_backward", &attention_backward_of, "q"_a.none(), "k"_a.none(), "v"_a.none(),
             "output"_a.none(), "lse"_a.none(), "d_output"_a.none(), "gradients"_a, "options"_a,
             "threads"_a,
             "Gradients into (dq, dk, dv, dscale, dalibi, dbias, dsinks, ds_norms), None for those "
             "not wanted.\n"
             "Pointers as in attention_forward.");
  module.def("attention_jvp", &attention_jvp_of, "q"_a.none(), "k"_a.none(), "v"_a.none(),
             "output"_a.none(), "lse"_a.none(), "tangents"_a, "moved_output"_a.none(),
             "moved_lse"_a.none(), "options"_a, "threads"_a,
             "The derivative along (q, k, v, bias), None for what does not move.");
}

}  // namespace heed::python

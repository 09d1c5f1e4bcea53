// heed._core.attention_backward and attention_jvp.
#include <array>

#include "bindings.h"
#include "heed/heed.h"
#include "operands.h"
#include "options.h"
#include "run.h"

namespace heed::python {
namespace {

void attention_backward_of(nb::handle q, nb::handle k, nb::handle v, nb::handle output,
                           nb::handle lse, nb::handle d_output, const nb::tuple& gradients,
                           const nb::tuple& options, int threads) {
  Operand query("q", q);
  Operand key("k", k);
  Operand value("v", v);
  Operand out("output", output);
  Operand d_out("d_output", d_output);
  const Array sums = Array::read("lse", lse);
  check_types("attention_backward", query.dtype(),
              {{"k", key.dtype()},
               {"v", value.dtype()},
               {"output", out.dtype()},
               {"d_output", d_out.dtype()}});
  if (gradients.size() != 7) value_error("expected 7 gradients");
  Result dq("dq", gradients[0]);
  Result dk("dk", gradients[1]);
  Result dv("dv", gradients[2]);
  const Array dscale = Array::write_optional("dscale", gradients[3]);
  const Array dalibi = Array::write_optional("dalibi", gradients[4]);
  const Array dbias = Array::write_optional("dbias", gradients[5]);
  const Array dsinks = Array::write_optional("dsinks", gradients[6]);
  const Options settings(options);
  run_without_gil("attention_backward", [&] {
    InterruptibleExecutor executor(threads);
    attention_backward({.q = query.wide(),
                        .k = key.wide(),
                        .v = value.wide(),
                        .output = out.wide(),
                        .lse = sums.view(),
                        .d_output = d_out.wide()},
                       {.dq = dq.wide(),
                        .dk = dk.wide(),
                        .dv = dv.wide(),
                        .dscale = dscale.view(),
                        .dalibi = dalibi.view(),
                        .dbias = dbias.view(),
                        .dsinks = dsinks.view()},
                       settings.get(), {.executor = &executor});
    dq.round_into();
    dk.round_into();
    dv.round_into();
  });
}

/// An input that may be None, widened like the others.
class OptionalOperand {
 public:
  OptionalOperand(const char* name, nb::handle object)
      : array_(Array::read_optional(name, object)) {}
  ConstTensorView wide() { return wide_.read(array_.view()); }

 private:
  Array array_;
  Widened wide_;
};

void attention_jvp_of(nb::handle q, nb::handle k, nb::handle v, nb::handle output, nb::handle lse,
                      const nb::tuple& tangents, nb::handle d_output, nb::handle d_lse,
                      const nb::tuple& options, int threads) {
  Operand query("q", q);
  Operand key("k", k);
  Operand value("v", v);
  Operand out("output", output);
  const Array sums = Array::read("lse", lse);
  check_types("attention_jvp", query.dtype(),
              {{"k", key.dtype()}, {"v", value.dtype()}, {"output", out.dtype()}});
  if (tangents.size() != 4) value_error("expected 4 tangents");
  OptionalOperand tangent_q("tangent_q", tangents[0]);
  OptionalOperand tangent_k("tangent_k", tangents[1]);
  OptionalOperand tangent_v("tangent_v", tangents[2]);
  const Array tangent_bias = Array::read_optional("tangent_bias", tangents[3]);
  Result moved("output", d_output);
  const Array moved_sums = Array::write_optional("lse", d_lse);
  const Options settings(options);
  run_without_gil("attention_jvp", [&] {
    InterruptibleExecutor executor(threads);
    attention_jvp({.q = query.wide(),
                   .k = key.wide(),
                   .v = value.wide(),
                   .output = out.wide(),
                   .lse = sums.view()},
                  {.q = tangent_q.wide(),
                   .k = tangent_k.wide(),
                   .v = tangent_v.wide(),
                   .bias = tangent_bias.view()},
                  {.output = moved.wide(), .lse = moved_sums.view()}, settings.get(),
                  {.executor = &executor});
    moved.round_into();
  });
}

}  // namespace

void bind_gradients(nb::module_& module) {
  using namespace nb::literals;
  module.def(
      "attention_backward", &attention_backward_of, "q"_a, "k"_a, "v"_a, "output"_a, "lse"_a,
      "d_output"_a, "gradients"_a, "options"_a, "threads"_a,
      "Gradients into (dq, dk, dv, dscale, dalibi, dbias, dsinks), None for those not wanted.\n"
      "Pointers as in attention_forward.");
  module.def("attention_jvp", &attention_jvp_of, "q"_a, "k"_a, "v"_a, "output"_a, "lse"_a,
             "tangents"_a, "moved_output"_a.none(), "moved_lse"_a.none(), "options"_a, "threads"_a,
             "The derivative along (q, k, v, bias), None for what does not move.");
}

}  // namespace heed::python

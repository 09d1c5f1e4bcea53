// The gate of the forward-mode derivative.
#include "attention/check.h"
#include "attention/jvp_problem.h"

namespace heed {

JvpProblem check_jvp(const JvpInputs& inputs, const Tangents& tangents, const JvpOutputs& outputs,
                     const AttentionOptions& options) {
  const Checker check("attention_jvp");
  JvpProblem p;
  p.forward = check_inputs(check, inputs.q, inputs.k, inputs.v, options, Reads::elements);
  Problem& f = p.forward;
  const int rank = inputs.q.rank;
  const Sizes of_q{f.batches, f.heads, f.queries, f.head_size};
  const Sizes of_k{f.batches, f.kv_heads, f.keys, f.head_size};
  const Sizes of_v{f.batches, f.kv_heads, f.keys, f.value_size};
  const Sizes of_output{f.batches, f.heads, f.queries, f.value_size};
  const Sizes rows{f.batches, f.heads, f.queries, 0};
  f.output = check.input("output", inputs.output, rank, of_output, 0, f.element, f.element);
  f.lse = check.input("lse", inputs.lse, rank, rows, 1, f.dtype, f.element);
  const auto tangent = [&](const char* name, const ConstTensorView& view, const Sizes& sizes) {
    return view.present() ? check.input(name, view, rank, sizes, 0, f.element, f.element) : View4{};
  };
  p.dq = tangent("tangents.q", tangents.q, of_q);
  p.dk = tangent("tangents.k", tangents.k, of_k);
  p.dv = tangent("tangents.v", tangents.v, of_v);
  if (tangents.bias.present()) {
    check.memory("tangents.bias", tangents.bias, true);
    check.require(is_floating(tangents.bias.dtype), "tangents.bias is ", tangents.bias.dtype,
                  "; expected a floating type");
    p.dbias = check.broadcast("tangents.bias", tangents.bias, rank,
                              {f.batches, f.heads, f.queries, f.keys});
  }
  if (p.moves_scores()) check.derivative(options.score_mod, f);
  p.d_output =
      check.output("outputs.output", outputs.output, rank, of_output, 0, f.element, f.element);
  p.d_lse = check.output("outputs.lse", outputs.lse, rank, rows, 1, f.dtype, f.element);
  const NamedView written[] = {{"outputs.output", outputs.output}, {"outputs.lse", outputs.lse}};
  const NamedView read[] = {{"q", inputs.q},
                            {"k", inputs.k},
                            {"v", inputs.v},
                            {"output", inputs.output},
                            {"lse", inputs.lse},
                            {"tangents.q", tangents.q},
                            {"tangents.k", tangents.k},
                            {"tangents.v", tangents.v},
                            {"tangents.bias", tangents.bias}};
  check.distinct(written, read);
  check.distinct(written, option_views(options));
  place_entries(&f);
  for (View4* view : {&p.dq, &p.d_output, &p.d_lse}) place_queries(f, view);
  for (View4* view : {&p.dk, &p.dv}) place_keys(f, view);
  place_pairs(f, &p.dbias);
  return p;
}

}  // namespace heed

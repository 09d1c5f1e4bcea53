// The gate of the backward pass.
#include "attention/backward_problem.h"
#include "attention/check.h"

namespace heed {
namespace {

/// A gradient of numbers per head: [H], or one for all where `one` is allowed.
View4 check_numbers(const Checker& check, const char* name, const TensorView& view, bool one,
                    const Problem& p) {
  if (!view.present()) return {};
  check.memory(name, view, true);
  check.require(view.dtype == p.dtype, name, " is ", view.dtype, "; expected ", p.dtype,
                of_scores(p));
  const bool single = one && view.rank == 1 && view.shape[0] == 1;
  check.require(single || (view.rank == 1 && view.shape[0] == p.heads), name, " has shape ",
                List{view.shape, view.rank}, "; expected [", p.heads, "], one for each query head",
                one ? ", or [1]" : "");
  check.require(!may_overlap_itself(view), name, " has shape ", List{view.shape, view.rank},
                " and strides ", List{view.stride, view.rank},
                "; no two of its elements may share memory");
  View4 result{static_cast<std::byte*>(view.data), view.dtype, true, {}};
  result.stride[3] = view.shape[0] > 1 ? view.stride[0] : 0;
  return result;
}

/// A gradient needs the option that it belongs to.
void check_option(const Checker& check, const char* gradient, const TensorView& view,
                  const char* option, const ConstTensorView& setting) {
  check.require(!view.present() || setting.present(), gradient, " is given, but not ", option,
                "; expected both");
}

void check_dbias(const Checker& check, BackwardProblem& p, const TensorView& dbias,
                 const ConstTensorView& bias, int rank) {
  if (!dbias.present()) return;
  check.memory("dbias", dbias, true);
  check.require(dbias.dtype == p.forward.dtype, "dbias is ", dbias.dtype, "; expected ",
                p.forward.dtype, of_scores(p.forward));
  bool equal = dbias.rank == bias.rank;
  for (std::size_t a = 0; equal && a < static_cast<std::size_t>(bias.rank); ++a) {
    equal = dbias.shape[a] == bias.shape[a];
  }
  check.require(equal, "dbias has shape ", List{dbias.shape, dbias.rank}, "; expected ",
                List{bias.shape, bias.rank}, ", the shape of bias");
  check.require(!may_overlap_itself(dbias), "dbias has shape ", List{dbias.shape, dbias.rank},
                " and strides ", List{dbias.stride, dbias.rank},
                "; no two of its elements may share memory");
  const Sizes sizes{p.forward.batches, p.forward.heads, p.forward.queries, p.forward.keys};
  p.dbias = check.broadcast("dbias", dbias, rank, sizes);
  p.bias = {1, 1, 1, 1};
  for (int axis = 0; axis < dbias.rank; ++axis) {
    p.bias[canonical_axis(rank, axis + rank - dbias.rank)] =
        dbias.shape[static_cast<std::size_t>(axis)];
  }
}

}  // namespace

BackwardProblem check_backward(const Checker& check, const BackwardInputs& inputs,
                               const Gradients& gradients, const AttentionOptions& options) {
  BackwardProblem p;
  p.forward = check_inputs(check, inputs.q, inputs.k, inputs.v, options, Reads::elements);
  Problem& f = p.forward;
  const int rank = inputs.q.rank;
  const Sizes outputs{f.batches, f.heads, f.queries, f.value_size};
  const Sizes rows{f.batches, f.heads, f.queries, 0};
  f.output = check.input("output", inputs.output, rank, outputs, 0, f.element, f.element);
  f.lse = check.input("lse", inputs.lse, rank, rows, 1, f.dtype, f.element);
  p.d_output = check.input("d_output", inputs.d_output, rank, outputs, 0, f.element, f.element);
  const auto gradient = [&](const char* name, const TensorView& view, const Sizes& sizes) {
    return check.output(name, view, rank, sizes, 0, f.element, f.element);
  };
  p.dq = gradient("dq", gradients.dq, {f.batches, f.heads, f.queries, f.head_size});
  p.dk = gradient("dk", gradients.dk, {f.batches, f.kv_heads, f.keys, f.head_size});
  p.dv = gradient("dv", gradients.dv, {f.batches, f.kv_heads, f.keys, f.value_size});
  p.ds_norms = check.output("ds_norms", gradients.ds_norms, rank, rows, 1, f.dtype, f.element);
  check_option(check, "dalibi", gradients.dalibi, "options.alibi", options.alibi);
  check_option(check, "dbias", gradients.dbias, "options.bias", options.bias);
  check_option(check, "dsinks", gradients.dsinks, "options.sinks", options.sinks);
  p.dscale = check_numbers(check, "dscale", gradients.dscale, true, f);
  p.one_scale = gradients.dscale.present() && gradients.dscale.shape[0] != f.heads;
  p.dalibi = check_numbers(check, "dalibi", gradients.dalibi, false, f);
  p.dsinks = check_numbers(check, "dsinks", gradients.dsinks, false, f);
  check_dbias(check, p, gradients.dbias, options.bias, rank);
  check.derivative(options.score_mod, f);
  const NamedView written[] = {{"dq", gradients.dq},         {"dk", gradients.dk},
                               {"dv", gradients.dv},         {"dscale", gradients.dscale},
                               {"dalibi", gradients.dalibi}, {"dbias", gradients.dbias},
                               {"dsinks", gradients.dsinks}, {"ds_norms", gradients.ds_norms}};
  const NamedView read[] = {{"q", inputs.q},     {"k", inputs.k},
                            {"v", inputs.v},     {"output", inputs.output},
                            {"lse", inputs.lse}, {"d_output", inputs.d_output}};
  check.distinct(written, read);
  check.distinct(written, option_views(options));
  place_entries(&f);
  for (View4* view : {&p.d_output, &p.dq, &p.ds_norms}) place_queries(f, view);
  for (View4* view : {&p.dk, &p.dv}) place_keys(f, view);
  place_pairs(f, &p.dbias);
  return p;
}

}  // namespace heed

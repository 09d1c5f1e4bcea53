// Projections around attention, backward.
#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "attention/backward_problem.h"
#include "attention/carver.h"
#include "attention/check.h"
#include "heed/modules.h"
#include "modules/attending.h"
#include "modules/checks.h"
#include "modules/products.h"
#include "runtime/float_environment.h"
#include "runtime/scratch.h"

namespace heed {
namespace {

/// The rows that are of a sequence, where calls are packed, else all: others may hold anything, and
/// 0 times NaN is no 0.
RowRange rows_of_sequences(const Problem& p, std::int64_t count, bool keys) {
  if (p.ragged == nullptr) return {0, count};
  const auto& first = keys ? p.ragged->first_key : p.ragged->first_query;
  const auto& length = keys ? p.ragged->keys : p.ragged->queries;
  return first.empty() ? RowRange{0, 0} : RowRange{first.front(), first.back() + length.back()};
}

}  // namespace

void MultiHeadAttention::backward(const AttendingRows& rows, const SavedAttention& saved,
                                  const ConstTensorView& d_output,
                                  const MultiHeadGradients& gradients,
                                  const AttentionOptions& options, const Execution& execution) {
  backward_as("MultiHeadAttention::backward", rows, saved, d_output, gradients, options, execution);
}

void MultiHeadAttention::backward_as(const char* function, const AttendingRows& rows,
                                     const SavedAttention& saved, const ConstTensorView& d_output,
                                     const MultiHeadGradients& gradients,
                                     const AttentionOptions& options, const Execution& execution) {
  const runtime::DefaultFloatEnvironment environment;
  const Checker check(function);
  const MultiHeadAttentionOptions& o = options_;
  AttendingCall call = check_attending(check, o, temperature_, rows, options);
  call.options.dropout = saved.dropout;
  const Rows dy = check_rows_like(check, "d_output", d_output, rows.x, o.d_model);
  const auto sizes = sizes_of(function, o, call);
  check.require(
      saved.batches == call.batches && saved.queries == call.queries && saved.keys == call.keys,
      "saved holds [", saved.batches, ", ", saved.queries, "] rows and ", saved.keys,
      " keys; expected those of a forward call with [", call.batches, ", ", call.queries, "] and ",
      call.keys);
  // As many rows, but of a module with other heads, or filled by somebody else.
  const std::pair<const char*, const std::vector<float>*> kept[] = {{"q", &saved.q},
                                                                    {"k", &saved.k},
                                                                    {"v", &saved.v},
                                                                    {"attended", &saved.attended},
                                                                    {"lse", &saved.lse}};
  for (std::size_t i = 0; i < std::size(kept); ++i) {
    const auto& [name, numbers] = kept[i];
    check.require(numbers->size() == static_cast<std::size_t>(sizes[i]), "saved.", name, " has ",
                  static_cast<std::int64_t>(numbers->size()), " numbers; expected ", sizes[i],
                  ", as a forward call of this module leaves them");
  }
  Rows dx, dcontext, dvalues;
  if (gradients.dx.present()) {
    dx = check_written(check, "dx", gradients.dx, rows.x, o.d_model);
  }
  if (gradients.dcontext.present()) {
    check.require(rows.context.present(), "dcontext is given, but not context; expected both");
    dcontext = check_written(check, "dcontext", gradients.dcontext, rows.context, o.d_keys);
  }
  if (gradients.dvalues.present()) {
    check.require(rows.values.present(), "dvalues is given, but not values; expected both");
    dvalues = check_written(check, "dvalues", gradients.dvalues, rows.values, o.d_values);
  }
  const Hands hands{function, choose_workers(function, execution)};
  AskedBefore executor(hands.workers);

  // What was saved is only read: views to write to are the type that HeadViews has.
  const auto read_only = [](const std::vector<float>& v) { return const_cast<float*>(v.data()); };
  const Buffers at{read_only(saved.q), read_only(saved.k), read_only(saved.v),
                   read_only(saved.attended), read_only(saved.lse)};
  Carver size(function, nullptr);
  static_cast<void>(carve_buffers(size, sizes));
  const runtime::ScratchLease lease(size.used());
  Carver carver(function, lease.data());
  const Buffers d = carve_buffers(carver, sizes);
  const HeadViews heads = views_of(o, call, at);
  const HeadViews d_heads = views_of(o, call, d);
  std::vector<float> dscale;
  if (!temperature_.empty()) resize(function, dscale, o.heads, 1);
  const BackwardInputs inputs{.q = heads.q,
                              .k = heads.k,
                              .v = heads.v,
                              .output = heads.attended,
                              .lse = heads.lse,
                              .d_output = d_heads.attended};
  const Gradients of_heads{.dq = d_heads.q,
                           .dk = d_heads.k,
                           .dv = d_heads.v,
                           .dscale = dscale.empty() ? TensorView{} : view(dscale.data(), {o.heads}),
                           .dalibi = gradients.dalibi,
                           .dbias = gradients.dbias,
                           .dsinks = gradients.dsinks};
  const Problem problem = check_backward(check, inputs, of_heads, call.options).forward;
  const NamedView written[] = {{"dx", gradients.dx},
                               {"dcontext", gradients.dcontext},
                               {"dvalues", gradients.dvalues},
                               {"dalibi", gradients.dalibi},
                               {"dbias", gradients.dbias},
                               {"dsinks", gradients.dsinks},
                               held("the gradient of W_q", w_q_.weight_gradient()),
                               held("the gradient of W_k", w_k_.weight_gradient()),
                               held("the gradient of W_v", w_v_.weight_gradient()),
                               held("the gradient of W_o", w_o_.weight_gradient()),
                               held("the gradient of b_q", w_q_.bias_gradient()),
                               held("the gradient of b_k", w_k_.bias_gradient()),
                               held("the gradient of b_v", w_v_.bias_gradient()),
                               held("the gradient of b_o", w_o_.bias_gradient()),
                               held("the gradient of temperature", d_temperature_)};
  const NamedView read[] = {
      {"x", rows.x}, {"context", rows.context}, {"values", rows.values}, {"d_output", d_output}};
  check.distinct(written, read);
  check.distinct(written, held(w_q_, w_k_, w_v_, w_o_, temperature_));
  check.distinct(written, held(saved));
  check.distinct(written, option_views(options));

  const BackProjection last{w_o_.weight().data(), dy};
  project_back(hands, {&last, 1}, rows_of(d.attended, call.x.count, w_o_.inputs()));
  const auto add_gradients = [&](Linear& map, const Rows& d_mapped, const Rows& from, bool keys) {
    // All rows have the bias; of the maps before attention those of no sequence add zeros.
    add_weight_gradient(hands, d_mapped, from, rows_of_sequences(problem, from.count, keys),
                        map.weight_gradient().data(), or_null(map.bias_gradient()));
  };
  add_gradients(w_o_, dy, rows_of(at.attended, call.x.count, w_o_.inputs()), false);
  if (call.options.packing.present()) {  // which writes no row that is of no sequence
    float* const of_rows[] = {d.q, d.k, d.v};
    for (std::size_t i = 0; i < 3; ++i) std::fill_n(of_rows[i], sizes[i], 0.0f);
  }
  attention_backward(inputs, of_heads, call.options, executor.inside(execution));
  const BackProjection maps[] = {
      {w_q_.weight().data(), rows_of(d.q, call.x.count, w_q_.outputs())},
      {w_k_.weight().data(), rows_of(d.k, call.context.count, w_k_.outputs())},
      {w_v_.weight().data(), rows_of(d.v, call.values.count, w_v_.outputs())}};
  const std::span<const BackProjection> all = maps;
  Linear* const linears[] = {&w_q_, &w_k_, &w_v_};
  const Rows* const sources[] = {&call.x, &call.context, &call.values};
  for (std::size_t i = 0; i < 3; ++i) add_gradients(*linears[i], maps[i].dy, *sources[i], i > 0);
  const std::size_t of_x = rows.context.present() ? 1 : 3;
  if (dx.size > 0) project_back(hands, all.subspan(0, of_x), dx);
  const std::size_t of_context = rows.values.present() ? 1 : 2;
  if (dcontext.size > 0) project_back(hands, all.subspan(1, of_context), dcontext);
  if (dvalues.size > 0) project_back(hands, all.subspan(2, 1), dvalues);
  if (!dscale.empty()) add_temperature_gradient(dscale, call.scales);
}

/// scale = base / t:  dt = -dscale scale / t, for one temperature the sum over heads.
void MultiHeadAttention::add_temperature_gradient(std::span<const float> dscale,
                                                  std::span<const double> scales) {
  const bool one = temperature_.size() == 1;
  double sum = 0;
  for (std::size_t h = 0; h < dscale.size(); ++h) {
    const double t = static_cast<double>(temperature_[one ? 0 : h]);
    const double part = -static_cast<double>(dscale[h]) * scales[h] / t;
    sum += part;
    if (!one) d_temperature_[h] += static_cast<float>(part);
  }
  if (one) d_temperature_[0] += static_cast<float>(sum);
}

}  // namespace heed

// What a backward pass gives each head, and which rows of it get next to nothing.
#include "gradient_health.h"

#include <algorithm>
#include <cmath>

#include "heed/heed.h"
#include "one_head.h"

namespace heed::cli {
namespace {

/// Of a view [B, H, T].
double number_at(const ConstTensorView& view, std::int64_t layer, std::int64_t head,
                 std::int64_t row) {
  ConstTensorView wide = view;
  wide.stride[3] = 0;
  return element(wide, layer, head, row, 0);
}

double norm_of_row(const ConstTensorView& view, std::int64_t layer, std::int64_t head,
                   std::int64_t row) {
  double squares = 0;
  for (std::int64_t x = 0; x < view.shape[3]; ++x) {
    const double number = element(view, layer, head, row, x);
    squares += number * number;
  }
  return std::sqrt(squares);
}

bool is_finite_row(const ConstTensorView& view, std::int64_t layer, std::int64_t head,
                   std::int64_t row) {
  for (std::int64_t x = 0; x < view.shape[3]; ++x) {
    if (!std::isfinite(element(view, layer, head, row, x))) return false;
  }
  return true;
}

/// sqrt(sum_j |v_j - mean v|^2 / keys) over the keys in use whose values are finite.
double spread_of_values(const BackwardCall& call, std::int64_t layer, std::int64_t kv_head) {
  const ConstTensorView& v = call.v;
  const std::int64_t keys = number_of(call.options.mask.key_lengths, layer, v.shape[2]);
  std::vector<std::int64_t> used;
  for (std::int64_t j = 0; j < keys; ++j) {
    if (is_finite_row(v, layer, kv_head, j)) used.push_back(j);
  }
  const auto count = static_cast<double>(used.size());
  double squares = 0;
  for (std::int64_t x = 0; x < v.shape[3] && !used.empty(); ++x) {
    // From the first one on, so that equal values have no spread.
    const double first = element(v, layer, kv_head, used[0], x);
    double mean = first;
    for (const std::int64_t j : used) mean += (element(v, layer, kv_head, j, x) - first) / count;
    for (const std::int64_t j : used) {
      const double apart = element(v, layer, kv_head, j, x) - mean;
      squares += apart * apart;
    }
  }
  return used.empty() ? 0 : std::sqrt(squares / count);
}

}  // namespace

BackwardResults gradients_of(const BackwardCall& call, const Execution& execution) {
  const DType dtype = call.q.dtype;
  const auto like = [dtype](const ConstTensorView& view, int axes) {
    return make_tensor(dtype, {view.shape.begin(), view.shape.begin() + axes});
  };
  Tensor output =
      make_tensor(dtype, {call.q.shape[0], call.q.shape[1], call.q.shape[2], call.v.shape[3]});
  Tensor lse = like(call.q, 3);
  BackwardResults results{like(call.q, 4), like(call.k, 4), like(call.v, 4), like(call.q, 3)};
  attention_forward(call.q, call.k, call.v, {.output = view_of(output), .lse = view_of(lse)},
                    call.options, execution);
  attention_backward({.q = call.q,
                      .k = call.k,
                      .v = call.v,
                      .output = view_of(output),
                      .lse = view_of(lse),
                      .d_output = call.d_output},
                     {.dq = view_of(results.dq),
                      .dk = view_of(results.dk),
                      .dv = view_of(results.dv),
                      .ds_norms = view_of(results.ds_norms)},
                     call.options, execution);
  return results;
}

HeadGradients health_of(const BackwardCall& call, const BackwardResults& results,
                        std::int64_t layer, std::int64_t head,
                        const std::vector<std::int64_t>& visible, double vanishing) {
  const std::int64_t kv_head = head / (call.q.shape[1] / call.k.shape[1]);
  HeadGradients health{.dq = norm_of_head(view_of(results.dq), layer, head),
                       .dk = norm_of_head(view_of(results.dk), layer, kv_head),
                       .dv = norm_of_head(view_of(results.dv), layer, kv_head)};
  const double spread = spread_of_values(call, layer, kv_head);
  health.same_values = spread == 0;
  const ConstTensorView norms = view_of(results.ds_norms);
  std::vector<double> ds;
  std::vector<double> passed;
  double vanished = 0;
  for (std::size_t i = 0; i < visible.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    if (visible[i] < 2) continue;
    health.rows += 1;
    const double d_output = norm_of_row(call.d_output, layer, head, row);
    health.silent_rows += d_output == 0 ? 1 : 0;
    const double norm = number_at(norms, layer, head, row);
    if (std::isnan(norm)) health.nan_rows += 1;
    const double uniform =
        d_output * spread /
        std::sqrt(static_cast<double>(call.v.shape[3]) * static_cast<double>(visible[i]));
    if (std::isnan(norm) || !(uniform > 0) || std::isinf(uniform)) continue;
    ds.push_back(norm);
    passed.push_back(norm / uniform);
    vanished += norm < vanishing * uniform ? 1 : 0;
  }
  const auto count = static_cast<std::int64_t>(ds.size());
  health.ds = summarize(view(ds.data(), {count}))[0];
  health.passed_on = summarize(view(passed.data(), {count}))[0];
  health.vanishing = count == 0 ? NAN : vanished / static_cast<double>(count);
  return health;
}

double usual_gradient(const std::vector<HeadGradients>& heads) {
  std::vector<double> norms;
  for (const HeadGradients& head : heads) {
    if (head.dq > 0 && std::isfinite(head.dq)) norms.push_back(head.dq);
  }
  const auto count = static_cast<std::int64_t>(norms.size());
  return count < 2 ? 0 : summarize(view(norms.data(), {count}))[0].quantiles[2];
}

double norm_of_head(const ConstTensorView& view, std::int64_t layer, std::int64_t head) {
  double squares = 0;
  for (std::int64_t row = 0; row < view.shape[2]; ++row) {
    const double norm = norm_of_row(view, layer, head, row);
    squares += norm * norm;
  }
  return std::sqrt(squares);
}

}  // namespace heed::cli

// What a backward pass gives queries and keys, scaled and unscaled: random draws and real heads.
#include "study_backward.h"

#include <algorithm>
#include <cmath>

#include "diagnosis.h"
#include "gradient_health.h"
#include "heed/heed.h"
#include "study_math.h"
#include "terminal.h"

namespace heed::cli {
namespace {

/// Means over queries, keys and heads.
struct Gradient {
  double dq = 0, dk = 0, dv = 0;  ///< norm of a row
  double ds = 0, passed_on = 0;
  double vanishing = 0;  ///< share of the queries

  void add(const Gradient& other, double weight) {
    dq += weight * other.dq;
    dk += weight * other.dk;
    dv += weight * other.dv;
    ds += weight * other.ds;
    passed_on += weight * other.passed_on;
    vanishing += weight * other.vanishing;
  }
};

/// The mean norm of a row, all heads of a batch entry together.
double mean_row(const Tensor& tensor, std::int64_t batch) {
  ConstTensorView view = view_of(tensor);
  const std::int64_t rows = view.shape[2];
  view.shape[2] = 1;  // each row as a head of its own
  double sum = 0;
  for (std::int64_t head = 0; head < view.shape[1]; ++head) {
    for (std::int64_t row = 0; row < rows; ++row) {
      ConstTensorView one = view;
      one.data = static_cast<const double*>(view.data) + row * view.stride[2];
      sum += norm_of_head(one, batch, head);
    }
  }
  return sum / static_cast<double>(rows * view.shape[1]);
}

Gradient gradient_of(const BackwardCall& call, const BackwardResults& results, std::int64_t batch) {
  Gradient mean{.dq = mean_row(results.dq, batch),
                .dk = mean_row(results.dk, batch),
                .dv = mean_row(results.dv, batch)};
  const std::int64_t heads = call.q.shape[1];
  const std::vector<std::int64_t> visible(static_cast<std::size_t>(call.q.shape[2]),
                                          call.k.shape[2]);
  Gradient sum;
  double counted = 0;
  for (std::int64_t head = 0; head < heads; ++head) {
    const HeadGradients one =
        health_of(call, results, batch, head, visible, Thresholds{}.vanishing);
    // Of a head whose values are the same, or whose dO is 0, no row is counted.
    if (one.ds.count == 0 && one.nan_rows == 0) continue;
    // A head's numbers leave out rows with NaN and tell how many; a study's means have no such
    // count.
    const double known = one.nan_rows == 0 ? 1 : NAN;
    sum.add({.ds = known * one.ds.mean,
             .passed_on = known * one.passed_on.mean,
             .vanishing = known * one.vanishing},
            1);
    counted += 1;
  }
  const Gradient unknown{.ds = NAN, .passed_on = NAN, .vanishing = NAN};
  mean.add(counted > 0 ? sum : unknown, 1 / std::max(counted, 1.0));
  return mean;
}

ConstTensorView view_of_rows(const Matrix& matrix) {
  return view(matrix.data.data(), {1, 1, matrix.rows, matrix.columns});
}

double scale_for(std::int64_t size) { return 1 / std::sqrt(static_cast<double>(size)); }

std::vector<Json> row_of(const char* scores, const Gradient& g) {
  return {scores, g.dq, g.dk, g.dv, g.ds, g.passed_on, g.vanishing};
}

}  // namespace

StudyTable backward_of_draws(const StudyInput& input, Normals& normals) {
  // The same queries and keys once more, from the start, rather than all of them kept.
  Normals again = input.normals();
  Gradient scaled;
  Gradient unscaled;
  for (int i = 0; i <= kDraws; ++i) {
    const Matrix q = draw(again, 1, kDrawnSize);
    const Matrix k = draw(again, kDrawnKeys, kDrawnSize);
    if (i == 0) continue;  // the one before the 1,000
    const Matrix v = draw(normals, kDrawnKeys, kDrawnSize);
    const Matrix d_output = draw(normals, 1, kDrawnSize);
    for (const auto& [sum, scale] :
         {std::pair{&scaled, scale_for(kDrawnSize)}, std::pair{&unscaled, 1.0}}) {
      const BackwardCall call{view_of_rows(q),
                              view_of_rows(k),
                              view_of_rows(v),
                              view_of_rows(d_output),
                              {.scale = scale}};
      sum->add(gradient_of(call, gradients_of(call, {.threads = 1}), 0), 1.0 / kDraws);
    }
  }
  StudyTable table{"backward",
                   "Their gradients, with random values and a random dO",
                   {{"scores", Shown::text},
                    {"dq_norm", Shown::number},
                    {"dk_norm", Shown::number},
                    {"dv_norm", Shown::number},
                    {"ds_norm", Shown::number},
                    {"passed_on", Shown::number},
                    {"vanishing", Shown::share}}};
  table.rows = {row_of("scaled", scaled), row_of("unscaled", unscaled)};
  return table;
}

StudyTable backward_of_tensors(const StudyTensors& tensors, Normals& normals) {
  BackwardCall call{tensors.q(), tensors.k(), tensors.v(), tensors.d_output(), {}};
  Matrix drawn(0, 0);
  if (!call.d_output.present()) {
    const auto& shape = call.q.shape;
    drawn = draw(normals, shape[0] * shape[1] * shape[2], call.v.shape[3]);
    call.d_output = view(static_cast<const double*>(drawn.data.data()),
                         {shape[0], shape[1], shape[2], call.v.shape[3]});
  }
  StudyTable table{
      "tensors_backward",
      format("Gradients of these heads, %s",
             tensors.d_output().present() ? "with their d_output" : "with a random dO"),
      {{tensors.entry(), Shown::count},
       {"dq_norm_scaled", Shown::number},
       {"dq_norm_unscaled", Shown::number},
       {"dk_norm_scaled", Shown::number},
       {"dk_norm_unscaled", Shown::number},
       {"passed_on_scaled", Shown::number},
       {"passed_on_unscaled", Shown::number},
       {"vanishing_scaled", Shown::share},
       {"vanishing_unscaled", Shown::share}}};
  call.options.scale = scale_for(tensors.size());
  const BackwardResults with_scale = gradients_of(call, {});
  call.options.scale = 1.0;
  const BackwardResults without = gradients_of(call, {});
  for (std::int64_t batch = 0; batch < tensors.batch(); ++batch) {
    const Gradient a = gradient_of(call, with_scale, batch);
    const Gradient b = gradient_of(call, without, batch);
    table.rows.push_back(
        {batch, a.dq, b.dq, a.dk, b.dk, a.passed_on, b.passed_on, a.vanishing, b.vanishing});
  }
  return table;
}

}  // namespace heed::cli

// Reading tensors, and copying one head of them at a time.
#include "study_tensors.h"

#include <algorithm>
#include <string>

#include "exit_codes.h"
#include "heed/io.h"
#include "input_names.h"
#include "machine.h"
#include "one_head.h"
#include "plain_text.h"
#include "terminal.h"

namespace heed::cli {
namespace {

Matrix matrix_of(const ConstTensorView& view, std::int64_t batch, std::int64_t head) {
  Matrix matrix(view.shape[2], view.shape[3]);
  const auto* data = static_cast<const double*>(view.data);
  for (std::int64_t i = 0; i < matrix.rows; ++i) {
    for (std::int64_t x = 0; x < matrix.columns; ++x) {
      matrix.row(i)[static_cast<std::size_t>(x)] =
          data[batch * view.stride[0] + head * view.stride[1] + i * view.stride[2] +
               x * view.stride[3]];
    }
  }
  return matrix;
}

}  // namespace

StudyTensors::StudyTensors(const std::string& path, bool with_d_output)
    : name_(path.empty() ? "sample" : one_line(path)) {
  StatusLine status("study", false);
  RunFlags flags;
  flags.one_file_of = "--input";
  flags.gradients = with_d_output;
  flags.option_tensors = false;
  flags.files = {path.empty() ? data_file("it.safetensors") : path};
  inputs_ = read_inputs(flags, memory_budget(), status);
  for (const auto& warning : inputs_.warnings) print_message("heed study: " + warning);
  const std::vector<std::string_view> unused(inputs_.unused.begin(), inputs_.unused.end());
  if (!unused.empty()) print_message("heed study: " + not_used(unused, path));
  widen(inputs_, DType::f64);
  const auto q = input_view(inputs_, "q", flags);
  const auto k = input_view(inputs_, "k", flags);
  const auto v = input_view(inputs_, "v", flags);
  (void)explain(q, k, v, {.scale = 1.0});  // throws if they do not fit
  q_ = with_four_axes(q);
  k_ = with_four_axes(k);
  v_ = with_four_axes(v);
  if (inputs_.tensors.contains(kGradient)) {
    check_gradient_shape(inputs_, flags);
    d_output_ = with_four_axes(input_view(inputs_, kGradient, flags));
  }
  for (const std::string name : {"q", "k"}) {
    const auto& shape = inputs_.tensors.at(name).shape;
    if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
      throw UsageError(name + " has shape " + shape_text(shape) +
                       "; expected axes of length 1 or more");
    }
  }
}

QueriesAndKeys StudyTensors::head(std::int64_t batch, std::int64_t head) const {
  return {matrix_of(q_, batch, head), matrix_of(k_, batch, head / (heads() / k_.shape[1]))};
}

}  // namespace heed::cli

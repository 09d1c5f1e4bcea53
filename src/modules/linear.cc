// A linear map of rows.
#include <algorithm>

#include "heed/modules.h"
#include "modules/checks.h"
#include "modules/products.h"
#include "runtime/float_environment.h"

namespace heed {

std::vector<Parameter> prefixed(const std::string& prefix, std::vector<Parameter> parameters) {
  for (Parameter& parameter : parameters) parameter.name.insert(0, prefix);
  return parameters;
}

Linear::Linear(const LinearOptions& options) : inputs_(options.inputs), outputs_(options.outputs) {
  const runtime::DefaultFloatEnvironment environment;
  const Checker check("Linear");
  check.require(inputs_ >= 1, "inputs is ", inputs_, "; expected 1 or more");
  check.require(outputs_ >= 1, "outputs is ", outputs_, "; expected 1 or more");
  check_initialisation(check, options.initialisation);
  resize("Linear", weight_, outputs_, inputs_);
  resize("Linear", d_weight_, outputs_, inputs_);
  resize("Linear", bias_, options.bias ? outputs_ : 0, 1);
  resize("Linear", d_bias_, options.bias ? outputs_ : 0, 1);
  initialise(weight_, outputs_, inputs_, options.initialisation);
}

void Linear::forward(const ConstTensorView& x, const TensorView& y,
                     const Execution& execution) const {
  const runtime::DefaultFloatEnvironment environment;
  const Checker check("Linear::forward");
  const Rows from = check_rows(check, "x", x, inputs_, 2, 4);
  const Rows to = check_written(check, "y", y, x, outputs_);
  const NamedView written[] = {{"y", y}};
  const NamedView read[] = {{"x", x}, held("weight", weight_), held("bias", bias_)};
  check.distinct(written, read);
  const Hands hands{check.function(), choose_workers(check.function(), execution)};
  const Projection map{weight_.data(), or_null(bias()), to};
  project(hands, from, {&map, 1});
}

void Linear::backward(const ConstTensorView& x, const ConstTensorView& dy, const TensorView& dx,
                      const Execution& execution) {
  const runtime::DefaultFloatEnvironment environment;
  const Checker check("Linear::backward");
  const Rows from = check_rows(check, "x", x, inputs_, 2, 4);
  const Rows gradient = check_rows_like(check, "dy", dy, x, outputs_);
  Rows to;
  if (dx.present()) to = check_written(check, "dx", dx, x, inputs_);
  const NamedView written[] = {
      {"dx", dx}, held("the gradient of weight", d_weight_), held("the gradient of bias", d_bias_)};
  const NamedView read[] = {{"x", x}, {"dy", dy}, held("weight", weight_), held("bias", bias_)};
  check.distinct(written, read);
  const Hands hands{check.function(), choose_workers(check.function(), execution)};
  add_weight_gradient(hands, gradient, from, {0, from.count}, d_weight_.data(),
                      or_null(bias_gradient()));
  if (!dx.present()) return;
  const BackProjection map{weight_.data(), gradient};
  project_back(hands, {&map, 1}, to);
}

std::vector<Parameter> Linear::parameters() {
  std::vector<Parameter> all{{"weight", {outputs_, inputs_}, weight_, d_weight_}};
  if (!bias_.empty()) all.push_back({"bias", {outputs_}, bias_, d_bias_});
  return all;
}

void Linear::zero_gradients() {
  std::fill(d_weight_.begin(), d_weight_.end(), 0.0f);
  std::fill(d_bias_.begin(), d_bias_.end(), 0.0f);
}

}  // namespace heed

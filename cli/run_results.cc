// Shapes, bytes and the check for NaN and infinity.
#include "run_results.h"

#include <cmath>
#include <cstring>

#include "exit_codes.h"
#include "input_names.h"
#include "terminal.h"

namespace heed::cli {
namespace {

std::string index_text(const std::vector<std::int64_t>& shape, std::int64_t flat) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = flat % shape[axis];
    flat /= shape[axis];
  }
  return shape_text(index);
}

template <typename Real>
std::int64_t first_bad(const Tensor& tensor) {
  const std::size_t count = tensor.data.size() / sizeof(Real);
  for (std::size_t i = 0; i < count; ++i) {
    Real value;
    std::memcpy(&value, tensor.data.data() + i * sizeof value, sizeof value);
    if (!std::isfinite(value)) return static_cast<std::int64_t>(i);
  }
  return -1;
}

// Of 16 bits, all exponent bits are ones where a number is not finite: no wider copy is made.
std::int64_t first_bad_half(const Tensor& tensor) {
  const unsigned exponent = tensor.dtype == DType::f16 ? 0x7C00 : 0x7F80;
  for (std::size_t i = 0; i < tensor.data.size() / 2; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, tensor.data.data() + 2 * i, sizeof bits);
    if ((bits & exponent) == exponent) return static_cast<std::int64_t>(i);
  }
  return -1;
}

// The flat index of the first NaN or infinity of a floating tensor, -1 if there is none.
std::int64_t first_not_finite(const Tensor& tensor) {
  if (tensor.dtype == DType::f64) return first_bad<double>(tensor);
  if (tensor.dtype == DType::f32) return first_bad<float>(tensor);
  return first_bad_half(tensor);
}

}  // namespace

DType element_dtype(const RunInputs& inputs, const RunFlags& flags) {
  const DType of_q = inputs.tensors.at("q").dtype;
  if (size_of(of_q) == 2 && flags.dtype == of_q && !flags.gradients) return of_q;
  return compute_dtype(inputs, flags.dtype);
}

std::vector<ResultPlan> plan_results(const RunInputs& inputs, const RunFlags& flags) {
  const auto view = input_view(inputs, "q", flags);
  std::vector<std::int64_t> rows(view.shape.begin(), view.shape.begin() + view.rank - 1);
  auto output_shape = inputs.tensors.at("q").shape;
  output_shape.back() = inputs.tensors.at("v").shape.back();
  auto weights_shape = rows;
  const auto keys = input_view(inputs, "k", flags);
  weights_shape.push_back(keys.shape[static_cast<std::size_t>(keys.rank) - 2]);

  const DType computed = compute_dtype(inputs, flags.dtype);
  const DType stored = flags.dtype.value_or(computed);
  std::vector<ResultPlan> plans{{"output", output_shape, element_dtype(inputs, flags), stored}};
  const auto as_computed = [&](const char* name, const std::vector<std::int64_t>& shape,
                               bool written = true) {
    plans.push_back({name, shape, computed, computed, written});
  };
  if (flags.lse || flags.gradients) as_computed("lse", rows, flags.lse);
  if (flags.weights) as_computed("weights", weights_shape);
  if (!flags.gradients) return plans;
  const std::vector<std::int64_t> heads{view.rank == 4 ? view.shape[1] : 1};
  as_computed("dq", inputs.tensors.at("q").shape);
  as_computed("dk", inputs.tensors.at("k").shape);
  as_computed("dv", inputs.tensors.at("v").shape);
  as_computed("dscale", heads);
  if (inputs.tensors.contains("alibi")) as_computed("dalibi", heads);
  if (const auto bias = inputs.tensors.find("bias"); bias != inputs.tensors.end()) {
    as_computed("dbias", bias->second.shape);
  }
  if (inputs.tensors.contains("sinks")) as_computed("dsinks", heads);
  return plans;
}

std::string Estimate::text() const {
  return "about " + human_bytes(total()) + " (input " + human_bytes(inputs) + ", results " +
         human_bytes(results) + ", scratch " + human_bytes(scratch) + ")";
}

Estimate estimate(const RunInputs& inputs, const std::vector<ResultPlan>& plans, DType computed,
                  const Explanation& explanation) {
  Estimate estimate;
  for (const auto& [name, tensor] : inputs.tensors) {
    estimate.inputs += static_cast<double>(tensor.data.size());
    const bool is_operand = name == "q" || name == "k" || name == "v" || name == "d_output";
    if (is_operand && tensor.dtype != computed) {
      estimate.inputs += static_cast<double>(byte_count(tensor.shape, computed));
    }
  }
  for (const auto& plan : plans) {
    estimate.results += static_cast<double>(byte_count(plan.shape, plan.computed));
    if (plan.stored != plan.computed) {
      estimate.results += static_cast<double>(byte_count(plan.shape, plan.stored));
    }
  }
  estimate.scratch = static_cast<double>(explanation.scratch_bytes);
  return estimate;
}

void check_finite(const RunInputs& inputs, const char* name, const Tensor& result) {
  const auto at = first_not_finite(result);
  if (at < 0) return;
  const bool gradient = std::string_view(name) != "output";
  std::string why = gradient ? "q, k, v and d_output are finite" : "q, k and v are finite";
  if (result.dtype == DType::f16) why += ", and float16 ends at 65504 (--dtype)";
  for (const std::string input : {kGradient, "v", "k", "q"}) {
    const auto found = inputs.tensors.find(input);
    if (found == inputs.tensors.end() || (input == kGradient && !gradient)) continue;
    const auto in = first_not_finite(found->second);
    if (in >= 0) why = "so is " + input + index_text(found->second.shape, in);
  }
  throw Failure(ExitCode::not_finite, name + index_text(result.shape, at) + " is not finite; " +
                                          why + "; nothing was written");
}

}  // namespace heed::cli

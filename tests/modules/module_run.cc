// module_run FILE_IN FILE_OUT: multi-head attention on tensors of a file, for tests beside PyTorch.
//
// FILE_IN has x, d_output, perhaps context, values, bias and drop; parameters below "parameters.";
// and in its metadata sizes by the names of MultiHeadAttentionOptions, "causal" and "names" (torch
// or heed). FILE_OUT gets output, x, context, values (gradients), "gradients." and, written again,
// "parameters.".
#include <cstdio>
#include <string>
#include <vector>

#include "heed/heed.h"
#include "heed/modules_io.h"

namespace {

std::int64_t number(const heed::TensorFile& file, const char* name) {
  const auto found = file.metadata.find(name);
  return found == file.metadata.end() ? 0 : std::stoll(found->second);
}

heed::ConstTensorView read(const heed::TensorFile& file, const char* name) {
  const auto found = file.tensors.find(name);
  return found == file.tensors.end() ? heed::ConstTensorView{} : view_of(found->second);
}

/// A tensor for what belongs to an input, if that is there.
heed::TensorView made(heed::TensorFile& to, const heed::TensorFile& from, const char* input,
                      const char* name) {
  const auto found = from.tensors.find(input);
  if (found == from.tensors.end()) return {};
  to.tensors[name] = heed::make_tensor(heed::DType::f32, found->second.shape);
  return view_of(to.tensors[name]);
}

void run(const char* source, const char* target) {
  const heed::TensorFile in = heed::read_tensors(source);
  heed::MultiHeadAttention module(
      {.d_model = number(in, "d_model"),
       .heads = number(in, "heads"),
       .kv_heads = number(in, "kv_heads"),
       .head_size = number(in, "head_size"),
       .value_size = number(in, "value_size"),
       .d_keys = number(in, "d_keys"),
       .d_values = number(in, "d_values"),
       .bias = number(in, "bias") != 0,
       .temperature = static_cast<heed::Temperature>(number(in, "temperature"))});
  const auto names = in.metadata.count("names") > 0 ? heed::Names::torch : heed::Names::heed;
  heed::get_parameters(in, module.parameters(), {.prefix = "parameters.", .names = names});
  heed::TensorFile out;
  const heed::AttendingRows rows{
      .x = read(in, "x"), .context = read(in, "context"), .values = read(in, "values")};
  const heed::AttentionOptions options{
      .bias = read(in, "bias"),
      .mask = {.causal = number(in, "causal") != 0, .drop = read(in, "drop")}};
  heed::SavedAttention saved;
  module.forward(rows, {.output = made(out, in, "x", "output"), .saved = &saved}, options);
  module.backward(rows, saved, read(in, "d_output"),
                  {.dx = made(out, in, "x", "x"),
                   .dcontext = made(out, in, "context", "context"),
                   .dvalues = made(out, in, "values", "values"),
                   .dbias = made(out, in, "bias", "bias")},
                  options);
  heed::put_parameters(out, module.parameters(), {.prefix = "parameters.", .names = names});
  std::vector<heed::Parameter> gradients = module.parameters();
  for (heed::Parameter& parameter : gradients) parameter.values = parameter.gradient;
  heed::put_parameters(out, gradients, {.prefix = "gradients.", .names = names});
  heed::write_tensors(target, out);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    std::fputs("module_run FILE_IN FILE_OUT\n", stderr);
    return 2;
  }
  try {
    run(arguments[1], arguments[2]);
  } catch (const heed::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

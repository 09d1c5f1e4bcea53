// The functions of c_abi.h: views from plain structs, exceptions into text.
#include "bench/c_abi.h"

#include <cstddef>
#include <cstdio>
#include <exception>
#include <string>

#include "cli/machine.h"
#include "cli/peak.h"
#include "heed/heed.h"

#define HEED_BENCH_EXPORT [[gnu::visibility("default")]]

namespace {

heed::TensorView view_of(const HeedBenchTensor& tensor, heed::DType dtype, int rank) {
  if (tensor.data == nullptr) return {};
  heed::TensorView view{tensor.data, dtype, rank, {}, {}};
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(rank); ++axis) {
    view.shape[axis] = tensor.shape[axis];
    view.stride[axis] = tensor.stride[axis];
  }
  return view;
}

heed::DType dtype_of(std::int64_t number) {
  return number == 1 ? heed::DType::bf16 : number == 2 ? heed::DType::f16 : heed::DType::f32;
}

void attend(const HeedBenchCall& call) {
  const auto tensor = [&](const HeedBenchTensor& t) { return view_of(t, dtype_of(call.dtype), 4); };
  heed::AttentionOptions options{.bias = view_of(call.bias, heed::DType::f32, 4)};
  options.mask.causal = call.causal != 0;
  if (call.window_left >= 0) options.mask.window.left = call.window_left;
  options.mask.keep = view_of(call.keep, heed::DType::boolean, 4);
  options.mask.key_lengths = view_of(call.key_lengths, heed::DType::i64, 1);
  if (call.dropout > 0) {
    options.dropout = {.p = call.dropout, .seed = static_cast<std::uint64_t>(call.seed)};
  }
  const heed::Execution execution{.threads = static_cast<int>(call.threads)};
  const heed::TensorView lse = view_of(call.lse, heed::DType::f32, 3);
  heed::attention_forward(tensor(call.q), tensor(call.k), tensor(call.v),
                          {.output = tensor(call.output),
                           .lse = lse,
                           .weights = view_of(call.weights, heed::DType::f32, 4)},
                          options, execution);
  if (call.d_output.data == nullptr) return;
  heed::attention_backward({.q = tensor(call.q),
                            .k = tensor(call.k),
                            .v = tensor(call.v),
                            .output = tensor(call.output),
                            .lse = lse,
                            .d_output = tensor(call.d_output)},
                           {.dq = tensor(call.dq), .dk = tensor(call.dk), .dv = tensor(call.dv)},
                           options, execution);
}

std::string facts() try {
  std::string text;
  text += "version: " + std::string(heed::version()) + "\n";
  text += "instruction_set: " + std::string(name_of(heed::instruction_set())) + "\n";
  text += "threads: " + std::to_string(heed::default_threads()) + "\n";
  text += "compiler: " + heed::cli::compiler() + "\n";
  text += "cpu: " + heed::cli::cpu_model() + "\n";
  return text;
} catch (const std::exception& thrown) {  // a variable of the environment is not what it should be
  return "error: " + std::string(thrown.what()) + "\n";
}

}  // namespace

HEED_BENCH_EXPORT int heed_bench_forward(const HeedBenchCall* call, std::int64_t repeat,
                                         char* error, std::int64_t error_size) {
  try {
    for (std::int64_t i = 0; i < repeat; ++i) attend(*call);
    return 0;
  } catch (const std::exception& thrown) {
    std::snprintf(error, static_cast<std::size_t>(error_size), "%s", thrown.what());
    return 1;
  }
}

HEED_BENCH_EXPORT double heed_bench_fma_peak(std::int64_t dtype, std::int64_t threads) {
  const auto view = heed::view(static_cast<const void*>(nullptr), dtype_of(dtype), {1, 8});
  const heed::Isa isa = heed::explain(view, view, view).isa;
  return heed::cli::measure_fma_peak(isa, static_cast<int>(threads), 0.2);
}

HEED_BENCH_EXPORT const char* heed_bench_facts() {
  static const std::string text = facts();
  return text.c_str();
}

HEED_BENCH_EXPORT void heed_bench_sizes(std::int64_t* tensor, std::int64_t* call) {
  *tensor = sizeof(HeedBenchTensor);
  *call = sizeof(HeedBenchCall);
}

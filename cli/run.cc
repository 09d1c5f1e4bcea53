// heed run: attention of the tensors in files.
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands.h"
#include "echo.h"
#include "flags.h"
#include "gradient_bytes.h"
#include "heed/heed.h"
#include "heed/io.h"
#include "input_names.h"
#include "places.h"
#include "plain_text.h"
#include "progress.h"
#include "run_flags.h"
#include "run_inputs.h"
#include "run_results.h"
#include "terminal.h"

namespace heed::cli {
namespace {

constexpr double kWorthSaying = 1024.0 * 1024.0 * 1024.0;

constexpr const char* kExamples =
    "Examples:\n"
    "  heed run qkv.safetensors -o out.npz --causal --lse\n"
    "  heed run q.npy k.npy v.npy -o out.npy --key-lengths 512,300\n"
    "  heed run qkv.npz -o out.npz --window 255,0 --alibi 0.5,0.25 --json\n";

void warn(const RunFlags& flags, const std::string& text) {
  if (!flags.quiet) print_message("heed run: " + text);
}

// ---- before anything is read ------------------------------------------------------------------

void check_call(const CLI::App& app, const RunFlags& flags) {
  if (flags.files.empty()) {
    throw UsageError("no input; give one .npz or .safetensors file, or Q.npy K.npy V.npy");
  }
  if (flags.files.size() != 1 && flags.files.size() != 3) {
    throw UsageError("expected one file, or three for q, k and v; got " +
                     std::to_string(flags.files.size()));
  }
  if (flags.output.empty()) {
    const bool behind = std::any_of(flags.files.begin(), flags.files.end(),
                                    [](const std::string& file) { return file.starts_with('-'); });
    throw UsageError(behind ? "no output; behind -- every word is a file: give -o FILE before it"
                            : "no output; give -o FILE");
  }
  if (flags.output.ends_with(".npy") && (flags.lse || flags.weights || flags.gradients)) {
    throw UsageError(std::string(flags.weights ? "--weights"
                                 : flags.lse   ? "--lse"
                                               : "--gradients") +
                     ": a .npy file holds one tensor; give -o a name that ends in .npz or "
                     ".safetensors");
  }
  if (flags.output.ends_with(".npz") || flags.output.ends_with(".npy")) {
    if (flags.dtype == DType::bf16) {
      throw UsageError(
          "--dtype bfloat16: NumPy's files have no such type; give -o a name that ends "
          "in .safetensors");
    }
  }
  if (flags.dropout > 0 && !flags.seed) {
    throw UsageError("--dropout takes --seed N: which weights are dropped");
  }
  if (flags.seed && !given(app, "--dropout")) {
    throw UsageError("--seed is for --dropout alone; expected --dropout P beside it");
  }
  if (!flags.d_output.empty() && !flags.gradients) {
    throw UsageError("--d-output is for --gradients alone; expected --gradients beside it");
  }
  check_writable(flags.output);
  if (flags.in_place) return;
  for (const auto& path : input_paths(flags)) {
    if (is_same_file(path, flags.output)) {
      throw UsageError("the output " + flags.output + " is the input " + path +
                       "; --in-place allows it");
    }
  }
}

// ---- the run -----------------------------------------------------------------------------------

AttentionOptions run_options(const RunInputs& inputs, const RunFlags& flags) {
  AttentionOptions options = options_of(inputs, flags);
  if (flags.dropout != 0) {
    options.dropout = {.p = flags.dropout, .seed = flags.seed.value_or(Seed{}).value};
  }
  return options;
}

// q, k and v as shapes alone: the operands are not converted yet.
std::array<ConstTensorView, 3> operand_shapes(const RunInputs& inputs, const RunFlags& flags) {
  std::array<ConstTensorView, 3> views;
  for (std::size_t i = 0; i < views.size(); ++i) {
    views[i] = input_view(inputs, std::array{"q", "k", "v"}[i], flags);
    views[i].dtype = element_dtype(inputs, flags);
    views[i].data = nullptr;
  }
  return views;
}

// What will run.
Explanation explain_run(const RunInputs& inputs, const RunFlags& flags, Executor& executor) {
  const auto [q, k, v] = operand_shapes(inputs, flags);
  return explain(q, k, v, run_options(inputs, flags),
                 {.executor = &executor, .reproducible = flags.reproducible});
}

double backward_scratch(const RunInputs& inputs, const RunFlags& flags, const Executor& executor) {
  const auto [q, k, v] = operand_shapes(inputs, flags);
  return gradient_scratch_bytes(q, k, v, options_of(inputs, flags).bias, executor.workers());
}

struct Outcome {
  TensorFile file;
  std::optional<Explanation> explanation;
  double memory = 0;
  double seconds = 0;
};

// A .npy file's only tensor has no name.
std::string output_name(const RunFlags& flags) {
  return flags.output.ends_with(".npy") ? "" : "output";
}

TensorView result_view(std::vector<std::pair<ResultPlan, Tensor>>& results, const char* name,
                       const RunFlags& flags) {
  for (auto& [plan, tensor] : results) {
    if (std::string_view(plan.name) != name) continue;
    const bool swap = flags.layout == Layout::bthd && tensor.shape.size() == kMaxRank &&
                      std::string_view(name) != "weights" && std::string_view(name) != "dbias";
    return swap ? swap_axes(view_of(tensor), 1, 2) : view_of(tensor);
  }
  return {};
}

void run_backward(const RunInputs& inputs, std::vector<std::pair<ResultPlan, Tensor>>& results,
                  const RunFlags& flags, Executor& executor) {
  const auto to = [&](const char* name) { return result_view(results, name, flags); };
  attention_backward({.q = input_view(inputs, "q", flags),
                      .k = input_view(inputs, "k", flags),
                      .v = input_view(inputs, "v", flags),
                      .output = to("output"),
                      .lse = to("lse"),
                      .d_output = input_view(inputs, "d_output", flags)},
                     {.dq = to("dq"),
                      .dk = to("dk"),
                      .dv = to("dv"),
                      .dscale = to("dscale"),
                      .dalibi = to("dalibi"),
                      .dbias = to("dbias"),
                      .dsinks = to("dsinks")},
                     run_options(inputs, flags), {.executor = &executor});
}

Outcome compute(const RunFlags& flags, RunInputs& inputs, StatusLine& status, std::int64_t budget,
                Estimate& needed) {
  Outcome outcome;
  PoolExecutor pool(flags.threads.value);
  CountingExecutor executor(pool, status);
  const DType dtype = element_dtype(inputs, flags);
  status.stage("planning");
  outcome.explanation = explain_run(inputs, flags, executor);
  if (flags.gradients) check_gradient_shape(inputs, flags);
  const auto plans = plan_results(inputs, flags);
  needed = estimate(inputs, plans, dtype, *outcome.explanation);
  if (flags.gradients) needed.scratch += backward_scratch(inputs, flags, executor);
  outcome.memory = std::max(needed.total(), static_cast<double>(inputs.bytes_read));
  if (needed.total() > static_cast<double>(budget)) {
    throw Failure(ExitCode::memory,
                  "the run takes " + needed.text() + ", more than the " +
                      human_bytes(static_cast<double>(budget)) +
                      (flags.max_bytes.count > 0 ? " of --max-bytes" : ", 80 % of what is free"));
  }
  if (needed.total() > kWorthSaying) warn(flags, "takes " + needed.text());

  widen(inputs, dtype);
  std::vector<std::pair<ResultPlan, Tensor>> results;
  for (const auto& plan : plans) results.emplace_back(plan, make_tensor(plan.computed, plan.shape));

  status.stage("computing");
  const auto begin = std::chrono::steady_clock::now();
  attention_forward(input_view(inputs, "q", flags), input_view(inputs, "k", flags),
                    input_view(inputs, "v", flags),
                    {.output = result_view(results, "output", flags),
                     .lse = result_view(results, "lse", flags),
                     .weights = result_view(results, "weights", flags)},
                    run_options(inputs, flags),
                    {.executor = &executor, .reproducible = flags.reproducible});
  if (flags.gradients) run_backward(inputs, results, flags, executor);
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  for (auto& [plan, tensor] : results) {
    if (!plan.written) continue;
    if (plan.stored != plan.computed) tensor = convert(tensor, plan.stored);
    const bool is_output = std::string_view(plan.name) == "output";
    outcome.file.tensors[is_output ? output_name(flags) : plan.name] = std::move(tensor);
  }
  return outcome;
}

Json tensor_json(DType dtype, const std::vector<std::int64_t>& shape) {
  return {{"dtype", name_of(dtype)}, {"shape", shape}};
}

std::string tensor_text(const std::string& name, DType dtype,
                        const std::vector<std::int64_t>& shape) {
  return format("%-14s %-9s %s\n", one_line(name).c_str(), std::string(name_of(dtype)).c_str(),
                shape_text(shape).c_str());
}

class Run {
 public:
  Run(const CLI::App& app, RunFlags& flags) : app_(&app), flags_(&flags) {}

  void operator()() {
    check_call(*app_, *flags_);
    const std::int64_t budget =
        flags_->max_bytes.count > 0 ? flags_->max_bytes.count : memory_budget();
    StatusLine status("run", flags_->quiet);
    RunInputs inputs = read_inputs(*flags_, budget, status);
    check_gradient(inputs);
    for (const auto& warning : inputs.warnings) warn(*flags_, warning);
    describe_inputs(inputs);
    Estimate needed;
    Outcome outcome = guarded(inputs, status, budget, needed);
    if (flags_->check_finite) {
      check_finite(inputs, "output", outcome.file.tensors.at(output_name(*flags_)));
      for (const char* name : kGradientNames) {
        const auto found = outcome.file.tensors.find(name);
        if (found != outcome.file.tensors.end()) check_finite(inputs, name, found->second);
      }
    }
    status.stage("writing " + flags_->output);
    write_tensors(flags_->output, outcome.file);
    status.end();
    report(outcome);
  }

 private:
  void check_gradient(RunInputs& inputs) const {
    if (flags_->gradients && !inputs.tensors.contains(kGradient)) {
      throw UsageError("--gradients takes d_output, a tensor of the input or --d-output FILE");
    }
    for (const std::string& name : inputs.unused) {
      inputs.warnings.push_back("tensor " + name + " is not used without --gradients");
    }
  }

  // Running out of memory is told with the estimate, whoever runs out.
  Outcome guarded(RunInputs& inputs, StatusLine& status, std::int64_t budget, Estimate& needed) {
    const auto out_of_memory = [&needed](const std::string& what) {
      return Error(ErrorKind::memory, what + "; the run takes " + needed.text());
    };
    try {
      return compute(*flags_, inputs, status, budget, needed);
    } catch (const std::bad_alloc&) {
      throw out_of_memory("out of memory");
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::memory) throw out_of_memory(error.what());
      throw;
    }
  }

  // q, k and v first, then the options.
  void describe_inputs(const RunInputs& inputs) {
    const auto describe = [&](const std::string& name, const Tensor& tensor) {
      const auto found = inputs.widened.find(name);
      const DType dtype = found == inputs.widened.end() ? tensor.dtype : found->second;
      inputs_json_[name] = tensor_json(dtype, tensor.shape);
      inputs_text_ += tensor_text(name, dtype, tensor.shape);
    };
    for (const char* name : {"q", "k", "v"}) describe(name, inputs.tensors.at(name));
    for (const auto& [name, tensor] : inputs.tensors) {
      if (!inputs_json_.contains(name)) describe(name, tensor);
    }
  }

  void report(const Outcome& outcome) {
    if (flags_->json) {
      print(json(outcome).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    } else if (!flags_->quiet) {
      print(text(outcome));
    }
  }

  Json json(const Outcome& outcome) {
    const Explanation& explanation = *outcome.explanation;
    Json json = Json::object();
    json["version"] = version();
    json["options"] = echo_flags(*app_, *flags_);
    json["inputs"] = inputs_json_;
    json["file"] = flags_->output;
    json["outputs"] = Json::object();
    for (const auto& [name, tensor] : outcome.file.tensors) {
      json["outputs"][name.empty() ? "output" : name] = tensor_json(tensor.dtype, tensor.shape);
    }
    json["seconds"] = outcome.seconds;
    json["instruction_set"] = name_of(explanation.isa);
    json["path"] = explanation.path;
    json["reason"] = explanation.reason;
    json["threads"] = explanation.threads;
    json["tiles_computed"] = explanation.tiles_computed;
    json["tiles_skipped"] = explanation.tiles_skipped;
    json["memory_bytes"] = static_cast<std::int64_t>(outcome.memory);
    json["scratch_bytes"] = explanation.scratch_bytes;
    return json;
  }

  std::string text(const Outcome& outcome) {
    const Explanation& explanation = *outcome.explanation;
    std::string text = inputs_text_;
    for (const auto& [name, tensor] : outcome.file.tensors) {
      text += tensor_text(name.empty() ? "output" : name, tensor.dtype, tensor.shape);
    }
    text += format("%s, %s, %d thread%s, %s\n", human_seconds(outcome.seconds).c_str(),
                   std::string(name_of(explanation.isa)).c_str(), explanation.threads,
                   explanation.threads == 1 ? "" : "s", explanation.path.c_str());
    text += format("%lld tile%s computed, %lld skipped\n",
                   static_cast<long long>(explanation.tiles_computed),
                   explanation.tiles_computed == 1 ? "" : "s",
                   static_cast<long long>(explanation.tiles_skipped));
    return text + "written to " + one_line(flags_->output) + "\n";
  }

  const CLI::App* app_;
  RunFlags* flags_;
  Json inputs_json_ = Json::object();
  std::string inputs_text_;
};

}  // namespace

Action add_run(CLI::App& root) {
  CLI::App& app = add_command(root, "run", "attention of tensors in files", kExamples);
  auto flags = std::make_shared<RunFlags>();
  AddFlags add(app);
  flags->visit(add);
  return [&app, flags] { Run(app, *flags)(); };
}

}  // namespace heed::cli

// Finding q, k, v and the options' tensors.
#include "run_inputs.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "exit_codes.h"
#include "input_names.h"
#include "places.h"

namespace heed::cli {
namespace {

// A tensor that the call cannot have: what is said of its name, and what helps.
[[noreturn]] void refuse(const std::string& path, const std::string& name,
                         const std::string& instead) {
  throw UsageError(path + " holds a tensor named " + name + instead);
}

bool holds(const std::vector<std::string_view>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Each warning once: a file may be given for several tensors, and is read for each of them.
void warn(RunInputs& inputs, std::string warning) {
  auto& warnings = inputs.warnings;
  if (std::find(warnings.begin(), warnings.end(), warning) == warnings.end()) {
    warnings.push_back(std::move(warning));
  }
}

void warn_of_replaced(RunInputs& inputs, const std::string& name) {
  warn(inputs, flag_of(name) + " replaces the tensor " + name + " of the input");
}

std::string names_in(const TensorFile& file) {
  std::vector<std::string_view> names;
  for (const auto& [name, tensor] : file.tensors) names.emplace_back(name);
  return names.empty() ? "no tensors" : listed(names);
}

// Reads files one after the other, within the memory that is left.
class Reader {
 public:
  Reader(const InputFlags& flags, std::int64_t max_bytes, RunInputs& inputs, StatusLine& status)
      : flags_(&flags), left_(max_bytes), inputs_(&inputs), status_(&status) {}

  TensorFile read(const std::string& path) {
    status_->stage("reading " + path);
    TensorFile file =
        read_tensors(path, {std::max<std::int64_t>(left_, 1), flags_->allow_trailing});
    for (const auto& [name, tensor] : file.tensors) {
      left_ -= static_cast<std::int64_t>(tensor.data.size());
      inputs_->bytes_read += static_cast<std::int64_t>(tensor.data.size());
    }
    if (file.trailing_bytes > 0) {
      warn(*inputs_, path + ": " + std::to_string(file.trailing_bytes) +
                         (file.trailing_bytes == 1 ? " surplus byte at the end is ignored"
                                                   : " surplus bytes at the end are ignored"));
    }
    return file;
  }

  // The tensor of this name in a file, or the only one that it holds.
  Tensor read_one(const std::string& path, const std::string& name) {
    TensorFile file = read(path);
    const auto found = file.tensors.find(name);
    if (found == file.tensors.end()) {
      if (file.tensors.size() == 1) {
        auto& [other, tensor] = *file.tensors.begin();
        if (!has_meaning(other)) return std::move(tensor);
        throw Failure(ExitCode::bad_input, path + ": expected a tensor named " + name + "; found " +
                                               other + ", which is another one to heed");
      }
      throw Failure(ExitCode::bad_input, path + ": expected one tensor, or one named " + name +
                                             "; found " + names_in(file));
    }
    check_others(path, file);
    return std::move(found->second);
  }

 private:
  // What a file holds beside the tensors that the call takes from it.
  void check_others(const std::string& path, const TensorFile& file) {
    const auto& files = flags_->files;
    const bool of_operand = std::any_of(files.begin(), files.end(), [&](const std::string& own) {
      return is_same_file(own, path);
    });
    if (of_operand && files.size() == 1) return;  // read_container has looked at all
    const auto taken = names_taken(*flags_, path);
    std::vector<std::string_view> unused;
    for (const auto& [name, tensor] : file.tensors) {
      if (holds(taken, name)) continue;
      if (!of_operand || !acts_on_call(path, name)) unused.emplace_back(name);
    }
    if (!unused.empty()) warn(*inputs_, not_used(unused, path));
  }

  // Of a tensor beside q, k or v: throws if the same file, given alone, would have set or refused
  // an option by it, which no result may lack in silence. False: it means nothing to the call.
  bool acts_on_call(const std::string& path, const std::string& name) {
    if (is_operand(name)) return true;  // another file gives it, or the call takes none
    if (const Refused* refused = refusal(name)) refuse(path, name, refused->instead);
    if (!sets_option(name) && !(name == kGradient && flags_->gradients)) return false;
    if (!holds(names_given(*flags_), name)) {
      refuse(path, name,
             std::string(", which is taken only from one file with ") +
                 (flags_->operands == 3 ? "q, k and v" : "q and k") + "; give " + flag_of(name) +
                 " " + path + ", or leave the tensor out");
    }
    warn_of_replaced(*inputs_, name);
    return true;
  }

  const InputFlags* flags_;
  std::int64_t left_;
  RunInputs* inputs_;
  StatusLine* status_;
};

void read_container(Reader& reader, const InputFlags& flags, RunInputs& inputs) {
  const std::string& path = flags.files[0];
  TensorFile file = reader.read(path);
  if (file.tensors.size() == 1 && file.tensors.begin()->first.empty()) {
    if (!flags.one_file_of.empty()) {
      throw UsageError(flags.one_file_of + ": " + path +
                       " holds one tensor; give one .npz or .safetensors file with " +
                       (flags.operands == 3 ? "q, k and v" : "q and k"));
    }
    throw UsageError(
        path + " holds one tensor; give " +
        (flags.operands == 3 ? "three files, Q.npy K.npy V.npy" : "two files, Q.npy K.npy"));
  }
  for (std::size_t i = 0; i < flags.operands; ++i) {
    if (!file.tensors.contains(kOperands[i])) {
      throw Failure(ExitCode::bad_input,
                    path + ": no tensor named " + kOperands[i] + "; found " + names_in(file));
    }
  }
  inputs.metadata = std::move(file.metadata);
  std::vector<std::string_view> unused;
  for (auto& [name, tensor] : file.tensors) {
    if (is_operand(name) || name == kGradient || sets_option(name)) {
      inputs.tensors[name] = std::move(tensor);
    } else if (const auto* refused = refusal(name); refused != nullptr) {
      refuse(path, name, refused->instead);
    } else {
      unused.emplace_back(name);
    }
  }
  if (!unused.empty()) warn(inputs, not_used(unused, path));
}

template <typename Number>
Tensor tensor_of(const std::vector<Number>& list, DType dtype) {
  Tensor tensor{dtype, {}, {}};
  if (list.size() > 1) tensor.shape = {static_cast<std::int64_t>(list.size())};
  tensor.data.resize(list.size() * sizeof(Number));
  std::memcpy(tensor.data.data(), list.data(), tensor.data.size());
  return tensor;
}

class OptionReader {
 public:
  OptionReader(Reader& reader, RunInputs& inputs) : reader_(&reader), inputs_(&inputs) {}

  void operator()(const char* name, const std::string& file) {
    if (!file.empty()) put(name, reader_->read_one(file, name));
  }
  void operator()(const char* name, const Numbers& value) {
    (*this)(name, value.file);
    if (!value.list.empty()) put(name, tensor_of(value.list, DType::f64));
  }
  void operator()(const char* name, const Integers& value) {
    (*this)(name, value.file);
    if (!value.list.empty()) put(name, tensor_of(value.list, DType::i64));
  }

 private:
  void put(const char* name, Tensor tensor) {
    const bool replaced = inputs_->tensors.contains(name);
    inputs_->tensors[name] = std::move(tensor);
    if (replaced) warn_of_replaced(*inputs_, name);
  }

  Reader* reader_;
  RunInputs* inputs_;
};

// What the call does not take is gone before anything of it is looked at.
void drop_unused(RunInputs& inputs, const InputFlags& flags) {
  std::erase_if(inputs.tensors, [&](const auto& one) {
    const std::string& name = one.first;
    const bool taken =
        name == kGradient ? flags.gradients : flags.option_tensors || !sets_option(name);
    if (!taken) inputs.unused.push_back(name);
    return !taken;
  });
  if (flags.operands == 2 && !inputs.tensors.contains(kGradient)) inputs.tensors.erase("v");
}

void check_operands(const RunInputs& inputs, const InputFlags& flags) {
  for (const std::string name : {"q", "k", "v", kGradient}) {
    if (inputs.tensors.contains(name) && inputs.tensors.at(name).shape.empty()) {
      throw UsageError(in_words_of(flags, name) +
                       " has rank 0; expected 2 [T, D], 3 [B, T, D] or 4 [B, H, T, D]");
    }
  }
  for (const auto& [name, tensor] : inputs.tensors) {
    if (tensor.shape.size() > kMaxRank) {
      throw UsageError(in_words_of(flags, name) + " has " + std::to_string(tensor.shape.size()) +
                       " axes, " + shape_text(tensor.shape) + "; expected at most 4");
    }
  }
  const DType dtype = inputs.tensors.at("q").dtype;
  for (const std::string name : {"q", "k", "v", kGradient}) {
    if (!inputs.tensors.contains(name)) continue;
    const Tensor& tensor = inputs.tensors.at(name);
    const std::string told = in_words_of(flags, name);
    if (!is_floating(tensor.dtype)) {
      throw UsageError("dtype of " + told + " is " + std::string(name_of(tensor.dtype)) +
                       "; expected float16, bfloat16, float32 or float64");
    }
    if (tensor.dtype != dtype) {
      throw UsageError("dtype of " + told + " is " + std::string(name_of(tensor.dtype)) +
                       ", of q " + std::string(name_of(dtype)) + "; they must be equal");
    }
    if (flags.layout == Layout::bthd && tensor.shape.size() != kMaxRank) {
      throw UsageError("--layout bthd: " + told + " has shape " + shape_text(tensor.shape) +
                       "; expected four axes");
    }
  }
}

// attention_forward takes numbers per head as float32 or float64, files may hold any floating-point
// type.
void widen_per_head(RunInputs& inputs, const InputFlags& flags) {
  for (const char* name : {"scale", "alibi", "sinks"}) {
    const auto found = inputs.tensors.find(name);
    if (found == inputs.tensors.end()) continue;
    Tensor& tensor = found->second;
    if (!is_floating(tensor.dtype)) {
      throw UsageError(in_words_of(flags, name) + " is " + std::string(name_of(tensor.dtype)) +
                       "; expected float16, bfloat16, float32 or float64");
    }
    if (tensor.dtype == DType::f16 || tensor.dtype == DType::bf16) {
      inputs.widened.emplace(name, tensor.dtype);
      tensor = convert(tensor, DType::f32);
    }
  }
}

ConstTensorView optional_view(const RunInputs& inputs, const char* name) {
  const auto found = inputs.tensors.find(name);
  return found == inputs.tensors.end() ? ConstTensorView{} : view_of(found->second);
}

// A vector [n], where one number may stand without axes.
ConstTensorView vector_view(const RunInputs& inputs, const char* name) {
  ConstTensorView view = optional_view(inputs, name);
  if (view.present() && view.rank == 0) {
    view.rank = 1;
    view.shape[0] = 1;
    view.stride[0] = 1;
  }
  return view;
}

template <typename Number>
Number element(const ConstTensorView& view) {
  Number number;
  std::memcpy(&number, view.data, sizeof number);
  return number;
}

PerHead per_head(const RunInputs& inputs, const char* name) {
  const ConstTensorView view = optional_view(inputs, name);
  if (!view.present() || view.rank > 0) return view.present() ? PerHead(view) : PerHead();
  if (view.dtype == DType::f32) return static_cast<double>(element<float>(view));
  return element<double>(view);
}

PerBatch per_batch(const RunInputs& inputs, const InputFlags& flags, const char* name) {
  const ConstTensorView view = optional_view(inputs, name);
  if (!view.present() || view.rank > 0) return view.present() ? PerBatch(view) : PerBatch();
  if (view.dtype == DType::i32) return static_cast<std::int64_t>(element<std::int32_t>(view));
  if (view.dtype == DType::i64) return element<std::int64_t>(view);
  throw UsageError(in_words_of(flags, name) + " is " + std::string(name_of(view.dtype)) +
                   "; expected int32 or int64");
}

}  // namespace

RunInputs read_inputs(const InputFlags& flags, std::int64_t max_bytes, StatusLine& status) {
  for (const auto& path : flags.files) {
    if (path.empty()) throw UsageError("input: expected the name of a file, got ''");
  }
  RunInputs inputs;
  Reader reader(flags, max_bytes, inputs, status);
  if (flags.files.size() == 1) {
    read_container(reader, flags, inputs);
  } else {
    for (std::size_t i = 0; i < flags.files.size(); ++i) {
      inputs.tensors[kOperands[i]] = reader.read_one(flags.files[i], kOperands[i]);
    }
  }
  each_tensor_flag(flags, OptionReader(reader, inputs));
  drop_unused(inputs, flags);
  check_operands(inputs, flags);
  widen_per_head(inputs, flags);
  return inputs;
}

DType compute_dtype(const RunInputs& inputs, std::optional<DType> asked) {
  const bool wide = inputs.tensors.at("q").dtype == DType::f64 || asked == DType::f64;
  return wide ? DType::f64 : DType::f32;
}

ConstTensorView input_view(const RunInputs& inputs, const std::string& name,
                           const InputFlags& flags) {
  const ConstTensorView view = view_of(inputs.tensors.at(name));
  return flags.layout == Layout::bthd ? swap_axes(view, 1, 2) : view;
}

void check_gradient_shape(const RunInputs& inputs, const InputFlags& flags) {
  const auto& shape = inputs.tensors.at(kGradient).shape;
  auto expected = inputs.tensors.at("q").shape;
  expected.back() = inputs.tensors.at("v").shape.back();
  if (shape == expected) return;
  throw UsageError(in_words_of(flags, kGradient) + " has shape " + shape_text(shape) +
                   "; expected " + shape_text(expected) + ", that of the output");
}

void widen(RunInputs& inputs, DType dtype) {
  for (const char* name : {"q", "k", "v", kGradient}) {
    if (!inputs.tensors.contains(name)) continue;
    Tensor& tensor = inputs.tensors.at(name);
    if (tensor.dtype != dtype) tensor = convert(tensor, dtype);
  }
}

AttentionOptions options_of(const RunInputs& inputs, const InputFlags& flags) {
  return {.scale = per_head(inputs, "scale"),
          .normalize_qk = flags.normalize_qk,
          .softcap = flags.softcap,
          .alibi = vector_view(inputs, "alibi"),
          .bias = optional_view(inputs, "bias"),
          .mask = {.causal = flags.causal,
                   .query_start = per_batch(inputs, flags, "query_start"),
                   .window = flags.window,
                   .key_lengths = per_batch(inputs, flags, "key_lengths"),
                   .query_lengths = per_batch(inputs, flags, "query_lengths"),
                   .keep = optional_view(inputs, "keep"),
                   .drop = optional_view(inputs, "drop")},
          .sinks = vector_view(inputs, "sinks")};
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const auto size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

std::int64_t byte_count(const std::vector<std::int64_t>& shape, DType dtype) {
  auto bytes = static_cast<std::int64_t>(size_of(dtype));
  for (const auto size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes))
      return std::numeric_limits<std::int64_t>::max();
  }
  return bytes;
}

}  // namespace heed::cli

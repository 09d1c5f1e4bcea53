// Finding q, k, v and the options' tensors.
#include "run_inputs.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "exit_codes.h"
#include "plain_text.h"

namespace heed::cli {
namespace {

constexpr std::array<const char*, 3> kOperands{"q", "k", "v"};

// The gradient of the output, of their type and order of axes.
constexpr const char* kGradient = "d_output";

// Options that a tensor beside q, k and v sets by its name.
constexpr std::array<const char*, 9> kTensorOptions{"scale",       "alibi",       "bias",
                                                    "query_start", "key_lengths", "query_lengths",
                                                    "keep",        "drop",        "sinks"};

// Options that no tensor sets: one of that name asks for what it would not get.
struct Refused {
  const char* name;
  const char* instead;
};
constexpr const char* kPacked =
    "; packed sequences are read from no file: make each an entry of the batch, with query_lengths "
    "and key_lengths";
constexpr std::array<Refused, 10> kRefused{
    {{"normalize_qk", ", which only the flag --normalize-qk sets; leave the tensor out"},
     {"softcap", ", which only the flag --softcap sets; leave the tensor out"},
     {"causal", ", which only the flag --causal sets; leave the tensor out"},
     {"window", ", which only the flag --window sets; leave the tensor out"},
     {"dropout", ", which only the flag --dropout of heed run sets; leave the tensor out"},
     {"seed", ", which only the flag --seed of heed run sets; leave the tensor out"},
     {"mask", "; call it keep, drop or bias, whichever it is"},
     {"packing", kPacked},
     {"query_offsets", kPacked},
     {"key_offsets", kPacked}}};

const Refused* refusal(const std::string& name) {
  const auto* found = std::find_if(kRefused.begin(), kRefused.end(),
                                   [&name](const Refused& one) { return name == one.name; });
  return found == kRefused.end() ? nullptr : found;
}

// A file may hold a hundred thousand names: as many as a line has room for, and how many more there are.
std::string listed(const std::vector<std::string_view>& names) {
  constexpr std::size_t kListed = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kListed); ++i) {
    text += (i == 0 ? "" : ", ") + name_text(names[i]);
  }
  if (names.size() <= kListed) return text;
  return text + " and " + std::to_string(names.size() - kListed) + " more";
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
      : allow_trailing_(flags.allow_trailing),
        left_(max_bytes),
        inputs_(&inputs),
        status_(&status) {}

  TensorFile read(const std::string& path) {
    status_->stage("reading " + path);
    TensorFile file = read_tensors(path, {std::max<std::int64_t>(left_, 1), allow_trailing_});
    for (const auto& [name, tensor] : file.tensors) {
      left_ -= static_cast<std::int64_t>(tensor.data.size());
    }
    if (file.trailing_bytes > 0) {
      inputs_->warnings.push_back(path + ": " + std::to_string(file.trailing_bytes) +
                                  (file.trailing_bytes == 1
                                       ? " surplus byte at the end is ignored"
                                       : " surplus bytes at the end are ignored"));
    }
    return file;
  }

  // The tensor of this name in a file, or the only one that it holds.
  Tensor read_one(const std::string& path, const std::string& name) {
    TensorFile file = read(path);
    const auto found = file.tensors.find(name);
    if (found != file.tensors.end()) return std::move(found->second);
    if (file.tensors.size() == 1) return std::move(file.tensors.begin()->second);
    throw Failure(ExitCode::bad_input, path + ": expected one tensor, or one named " + name +
                                           "; found " + names_in(file));
  }

 private:
  bool allow_trailing_;
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
    const auto same = [&name = name](const char* known) { return name == known; };
    if (std::any_of(kOperands.begin(), kOperands.end(), same) || same(kGradient) ||
        std::any_of(kTensorOptions.begin(), kTensorOptions.end(), same)) {
      inputs.tensors[name] = std::move(tensor);
    } else if (const auto* refused = refusal(name); refused != nullptr) {
      throw UsageError(path + " holds a tensor named " + name + refused->instead);
    } else {
      unused.emplace_back(name);
    }
  }
  if (!unused.empty()) inputs.warnings.push_back(not_used(unused, path));
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
    if (!replaced) return;
    std::string flag = name;
    std::replace(flag.begin(), flag.end(), '_', '-');
    inputs_->warnings.push_back("--" + flag + " replaces the tensor " + name + " of the input");
  }

  Reader* reader_;
  RunInputs* inputs_;
};

void check_operands(const RunInputs& inputs, const InputFlags& flags) {
  for (const std::string name : {"q", "k", "v", kGradient}) {
    if (inputs.tensors.contains(name) && inputs.tensors.at(name).shape.empty()) {
      throw UsageError(name + " has rank 0; expected 2 [T, D], 3 [B, T, D] or 4 [B, H, T, D]");
    }
  }
  for (const auto& [name, tensor] : inputs.tensors) {
    if (tensor.shape.size() > kMaxRank) {
      throw UsageError(name + " has " + std::to_string(tensor.shape.size()) + " axes, " +
                       shape_text(tensor.shape) + "; expected at most 4");
    }
  }
  const DType dtype = inputs.tensors.at("q").dtype;
  for (const std::string name : {"q", "k", "v", kGradient}) {
    if (!inputs.tensors.contains(name)) continue;
    const Tensor& tensor = inputs.tensors.at(name);
    if (!is_floating(tensor.dtype)) {
      throw UsageError("dtype of " + name + " is " + std::string(name_of(tensor.dtype)) +
                       "; expected float16, bfloat16, float32 or float64");
    }
    if (tensor.dtype != dtype) {
      throw UsageError("dtype of " + name + " is " + std::string(name_of(tensor.dtype)) +
                       ", of q " + std::string(name_of(dtype)) + "; they must be equal");
    }
    if (flags.layout == Layout::bthd && tensor.shape.size() != kMaxRank) {
      throw UsageError("--layout bthd: " + name + " has shape " + shape_text(tensor.shape) +
                       "; expected four axes");
    }
  }
}

// attention_forward takes numbers per head as float32 or float64, files may hold any floating-point type.
void widen_per_head(RunInputs& inputs) {
  for (const char* name : {"scale", "alibi", "sinks"}) {
    const auto found = inputs.tensors.find(name);
    if (found == inputs.tensors.end()) continue;
    Tensor& tensor = found->second;
    if (!is_floating(tensor.dtype)) {
      throw UsageError(std::string(name) + " is " + std::string(name_of(tensor.dtype)) +
                       "; expected float16, bfloat16, float32 or float64");
    }
    if (tensor.dtype == DType::f16 || tensor.dtype == DType::bf16) {
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

PerBatch per_batch(const RunInputs& inputs, const char* name) {
  const ConstTensorView view = optional_view(inputs, name);
  if (!view.present() || view.rank > 0) return view.present() ? PerBatch(view) : PerBatch();
  if (view.dtype == DType::i32) return static_cast<std::int64_t>(element<std::int32_t>(view));
  if (view.dtype == DType::i64) return element<std::int64_t>(view);
  throw UsageError(std::string(name) + " is " + std::string(name_of(view.dtype)) +
                   "; expected int32 or int64");
}

}  // namespace

std::string not_used(const std::vector<std::string_view>& names, const std::string& path) {
  const bool one = names.size() == 1;
  return (one ? "tensor " : "tensors ") + listed(names) + " of " + path +
         (one ? " is not used" : " are not used");
}

std::vector<std::string> input_paths(const InputFlags& flags) {
  std::vector<std::string> paths = flags.files;
  for (const auto& path : {flags.scale.file, flags.alibi.file, flags.bias, flags.query_start.file,
                           flags.key_lengths.file, flags.query_lengths.file, flags.keep, flags.drop,
                           flags.sinks.file, flags.d_output}) {
    if (!path.empty()) paths.push_back(path);
  }
  return paths;
}

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
  OptionReader option(reader, inputs);
  option("scale", flags.scale);
  option("alibi", flags.alibi);
  option("bias", flags.bias);
  option("query_start", flags.query_start);
  option("key_lengths", flags.key_lengths);
  option("query_lengths", flags.query_lengths);
  option("keep", flags.keep);
  option("drop", flags.drop);
  option("sinks", flags.sinks);
  option(kGradient, flags.d_output);
  check_operands(inputs, flags);
  widen_per_head(inputs);
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
                   .query_start = per_batch(inputs, "query_start"),
                   .window = flags.window,
                   .key_lengths = per_batch(inputs, "key_lengths"),
                   .query_lengths = per_batch(inputs, "query_lengths"),
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

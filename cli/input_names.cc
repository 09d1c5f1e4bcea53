// The names of tensors in files, and the flags that give tensors.
#include "input_names.h"

#include <algorithm>

#include "places.h"
#include "plain_text.h"

namespace heed::cli {
namespace {

// Options that a tensor beside q, k and v sets by its name.
constexpr std::array<const char*, 9> kTensorOptions{"scale",       "alibi",       "bias",
                                                    "query_start", "key_lengths", "query_lengths",
                                                    "keep",        "drop",        "sinks"};

constexpr const char* kPacked =
    "; packed sequences are read from no file: make each an entry of the batch, with query_lengths "
    "and key_lengths";
constexpr std::array<Refused, 12> kRefused{
    {{"normalize_qk", ", which only the flag --normalize-qk sets; leave the tensor out"},
     {"softcap", ", which only the flag --softcap sets; leave the tensor out"},
     {"causal", ", which only the flag --causal sets; leave the tensor out"},
     {"window", ", which only the flag --window sets; leave the tensor out"},
     {"dropout", ", which only the flag --dropout of heed run sets; leave the tensor out"},
     {"seed", ", which only the flag --seed of heed run sets; leave the tensor out"},
     {"mask", "; call it keep, drop or bias, whichever it is"},
     {"attn_mask", "; call it keep, drop or bias, whichever it is"},
     {"attention_mask", "; call it keep, drop or bias, whichever it is"},
     {"packing", kPacked},
     {"query_offsets", kPacked},
     {"key_offsets", kPacked}}};

bool is_given(const std::string& file) { return !file.empty(); }
template <typename List>
bool is_given(const List& value) {
  return !value.file.empty() || !value.list.empty();
}

}  // namespace

const Refused* refusal(const std::string& name) {
  const auto* found = std::find_if(kRefused.begin(), kRefused.end(),
                                   [&name](const Refused& one) { return name == one.name; });
  return found == kRefused.end() ? nullptr : found;
}

bool is_operand(const std::string& name) {
  return std::find(kOperands.begin(), kOperands.end(), name) != kOperands.end();
}

bool sets_option(const std::string& name) {
  return std::find(kTensorOptions.begin(), kTensorOptions.end(), name) != kTensorOptions.end();
}

bool has_meaning(const std::string& name) {
  return is_operand(name) || sets_option(name) || name == kGradient || refusal(name) != nullptr;
}

std::string flag_of(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

std::vector<std::string_view> names_given(const InputFlags& flags) {
  std::vector<std::string_view> names;
  each_tensor_flag(flags, [&names](const char* name, const auto& flag) {
    if (is_given(flag)) names.emplace_back(name);
  });
  return names;
}

std::string in_words_of(const InputFlags& flags, const std::string& name) {
  const std::vector<std::string_view> given = names_given(flags);
  return std::ranges::find(given, name) == given.end() ? name : flag_of(name);
}

std::vector<std::string> options_of_file(const std::map<std::string, Tensor>& tensors,
                                         const InputFlags& flags) {
  const std::vector<std::string_view> given = names_given(flags);
  std::vector<std::string> names;
  for (const char* name : kTensorOptions) {
    if (tensors.contains(name) && std::ranges::find(given, name) == given.end()) {
      names.emplace_back(name);
    }
  }
  return names;
}

std::vector<std::string_view> names_taken(const InputFlags& flags, const std::string& path) {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < flags.files.size(); ++i) {
    if (is_same_file(flags.files[i], path)) names.emplace_back(kOperands[i]);
  }
  each_tensor_flag(flags, [&](const char* name, const auto& flag) {
    if (is_same_file(file_of(flag), path)) names.emplace_back(name);
  });
  return names;
}

std::vector<std::string> input_paths(const InputFlags& flags) {
  std::vector<std::string> paths = flags.files;
  each_tensor_flag(flags, [&paths](const char*, const auto& flag) {
    if (!file_of(flag).empty()) paths.push_back(file_of(flag));
  });
  return paths;
}

std::string listed(const std::vector<std::string_view>& names) {
  constexpr std::size_t kListed = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kListed); ++i) {
    text += (i == 0 ? "" : ", ") + name_text(names[i]);
  }
  if (names.size() <= kListed) return text;
  return text + " and " + std::to_string(names.size() - kListed) + " more";
}

std::string not_used(const std::vector<std::string_view>& names, const std::string& path) {
  const bool one = names.size() == 1;
  return (one ? "tensor " : "tensors ") + listed(names) + " of " + path +
         (one ? " is not used" : " are not used");
}

}  // namespace heed::cli

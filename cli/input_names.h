// What the names of a file's tensors mean to a call, and which tensors its flags give.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "heed/io.h"
#include "run_flags.h"

namespace heed::cli {

inline constexpr std::array<const char*, 3> kOperands{"q", "k", "v"};

/// The gradient of the output, of their type and order of axes.
inline constexpr const char* kGradient = "d_output";

/// An option that no tensor sets: one of that name asks for what it would not get.
struct Refused {
  const char* name;
  const char* instead;  ///< what helps, to follow "holds a tensor named NAME"
};

/// Of this name; null for every other.
[[nodiscard]] const Refused* refusal(const std::string& name);

[[nodiscard]] bool is_operand(const std::string& name);

/// Whether one file of all tensors sets an option of the call by this name.
[[nodiscard]] bool sets_option(const std::string& name);

/// Whether a tensor of this name is something of its own to heed, so that no other can be meant.
[[nodiscard]] bool has_meaning(const std::string& name);

/// key_lengths: --key-lengths
[[nodiscard]] std::string flag_of(std::string name);

/// visit(name, value) for every flag that takes a tensor, with that tensor's name.
template <typename Visitor>
void each_tensor_flag(const InputFlags& flags, Visitor visit) {
  visit("scale", flags.scale);
  visit("alibi", flags.alibi);
  visit("bias", flags.bias);
  visit("query_start", flags.query_start);
  visit("key_lengths", flags.key_lengths);
  visit("query_lengths", flags.query_lengths);
  visit("keep", flags.keep);
  visit("drop", flags.drop);
  visit("sinks", flags.sinks);
  visit(kGradient, flags.d_output);
}

/// The file that a flag names, or "".
inline const std::string& file_of(const std::string& file) { return file; }
template <typename List>
const std::string& file_of(const List& value) {
  return value.file;
}

/// The names of the tensors that the flags give.
[[nodiscard]] std::vector<std::string_view> names_given(const InputFlags& flags);

/// What messages call this tensor: --key-lengths where that flag gives it, else key_lengths.
[[nodiscard]] std::string in_words_of(const InputFlags& flags, const std::string& name);

/// Of what was read, the options that no flag gives.
[[nodiscard]] std::vector<std::string> options_of_file(const std::map<std::string, Tensor>& tensors,
                                                       const InputFlags& flags);

/// The names of the tensors that the call takes from this file, one of several.
[[nodiscard]] std::vector<std::string_view> names_taken(const InputFlags& flags,
                                                        const std::string& path);

/// Every path that the flags name, q's first.
[[nodiscard]] std::vector<std::string> input_paths(const InputFlags& flags);

/// A file may hold a hundred thousand names: as many as a line has room for, and how many more
/// there are.
[[nodiscard]] std::string listed(const std::vector<std::string_view>& names);

/// "tensors a, b of FILE are not used": what a warning says, in one line however many they are.
[[nodiscard]] std::string not_used(const std::vector<std::string_view>& names,
                                   const std::string& path);

}  // namespace heed::cli

// Reads the few members of JSON objects that matter, without a library for JSON.
#include "examples/minilm/model_folder.h"

#include <heed/error.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <system_error>
#include <utility>

namespace minilm {
namespace {

using heed::Error;
using heed::ErrorKind;

std::string contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    throw Error(ErrorKind::io, path + " could not be read, or is empty");
  }
  return text.str();
}

/// The members of one JSON object, each value as it is written: numbers, words, strings without
/// their quotes; arrays and objects whole.
class Members {
 public:
  explicit Members(const std::string& path) : path_(path) {
    const std::string text = contents_of(path);
    std::string name, value;
    std::string* now = &name;
    int depth = 0;
    bool quoted = false, escaped = false;
    for (const char c : text) {
      const bool blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
      if (quoted) {
        if (c != '"' || escaped || depth > 1) *now += c;
        quoted = c != '"' || escaped;
        escaped = c == '\\' && !escaped;
      } else if (depth == 1 && c == ':') {
        now = &value;
      } else if (depth == 1 && (c == ',' || c == '}')) {
        members_[std::exchange(name, {})] = std::exchange(value, {});
        now = &name;
        depth -= c == '}';
      } else if (!blank && !(depth == 0 && c == '{')) {
        quoted = c == '"';
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        if (!quoted || depth > 1) *now += c;
      } else if (c == '{') {
        ++depth;
      }
    }
    if (depth != 0 || quoted || members_.empty()) {
      throw Error(ErrorKind::format, path + " is no JSON object");
    }
  }

  /// The number that a member is; throws unless it is there and `least` or more.
  template <typename Number>
  [[nodiscard]] Number number(const std::string& name, Number least) const {
    const auto found = members_.find(name);
    Number number{};
    if (found != members_.end()) {
      const std::string& text = found->second;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
      if (error == std::errc{} && end == text.data() + text.size() && number >= least) {
        return number;
      }
    }
    fail(name, (std::ostringstream() << "a number, " << least << " or more").str());
  }

  /// Throws unless the member is this, or absent.
  void expect(const std::string& name, const std::string& value) const {
    const auto found = members_.find(name);
    if (found != members_.end() && found->second != value) fail(name, value);
  }
  /// Throws if the member is this.
  void refuse(const std::string& name, const std::string& value) const {
    const auto found = members_.find(name);
    if (found != members_.end() && found->second == value) fail(name, "anything else");
  }

 private:
  [[noreturn]] void fail(const std::string& name, const std::string& expected) const {
    const auto found = members_.find(name);
    throw Error(ErrorKind::format, path_ + ": " + name + " is " +
                                       (found == members_.end() ? "absent" : found->second) +
                                       "; expected " + expected);
  }

  std::string path_;
  std::map<std::string, std::string> members_;
};

}  // namespace

ModelFolder read_model_folder(const std::string& folder) {
  const auto path = [&](const char* name) {
    return (std::filesystem::path(folder) / name).string();
  };
  const auto exists = [&](const char* name) { return std::filesystem::exists(path(name)); };

  const Members config(path("config.json"));
  config.expect("model_type", "bert");
  config.expect("hidden_act", "gelu");
  config.expect("position_embedding_type", "absolute");
  const auto size = [&](const char* name) { return config.number<std::int64_t>(name, 1); };
  ModelFolder found{.vocabulary = contents_of(path("vocab.txt")),
                    .sizes = {.vocabulary = size("vocab_size"),
                              .positions = size("max_position_embeddings"),
                              .types = size("type_vocab_size"),
                              .d_model = size("hidden_size"),
                              .layers = size("num_hidden_layers"),
                              .heads = size("num_attention_heads"),
                              .d_wide = size("intermediate_size"),
                              .epsilon = config.number<double>("layer_norm_eps", 0)},
                    .longest = size("max_position_embeddings")};

  if (exists("sentence_bert_config.json")) {
    const Members sentences(path("sentence_bert_config.json"));
    found.longest = std::min(found.longest, sentences.number<std::int64_t>("max_seq_length", 2));
  }
  if (exists("tokenizer_config.json")) {
    const Members tokenizer(path("tokenizer_config.json"));
    tokenizer.expect("do_lower_case", "true");
    tokenizer.refuse("tokenize_chinese_chars", "false");
    tokenizer.refuse("strip_accents", "false");
  }
  if (exists("1_Pooling/config.json")) {
    const Members pooling(path("1_Pooling/config.json"));
    pooling.expect("pooling_mode_mean_tokens", "true");
    for (const char* other : {"pooling_mode_cls_token", "pooling_mode_max_tokens",
                              "pooling_mode_mean_sqrt_len_tokens"}) {
      pooling.expect(other, "false");
    }
  }
  return found;
}

}  // namespace minilm

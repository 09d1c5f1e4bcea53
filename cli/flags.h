// One list of flags per command, read twice: by the parser (and so by --help), and by the echo
// (echo.h).
//
//     struct InfoFlags {
//       bool json = false;
//       template <typename Visitor>
//       void visit(Visitor& flag) {
//         flag.group("Output");
//         flag("--json", json, "", "print JSON");
//       }
//     };
//
// CLI11 is in flags.cc and command_line.cc alone: what includes it takes many seconds to compile.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "exit_codes.h"
#include "flag_values.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace heed::cli {

/// A command that the root knows from now on. The examples stand in its help.
CLI::App& add_command(CLI::App& root, const char* name, const char* help, const char* examples);

// CLI11 takes some words for what they are not: "[a,b]" for a list, "++" for the end of a command,
// "--name=" for --name and the next word. Such a word reaches it with a NUL behind, as no word of a
// call has one, and is the caller's again before anybody reads it.
[[nodiscard]] std::string for_parser(std::string word);
[[nodiscard]] std::string from_parser(std::string word);

/// The command was given this flag, "--seed".
[[nodiscard]] bool given(const CLI::App& app, const std::string& name);

/// Makes a flag of every field: what it is called, what kind of word it takes, what it does.
class AddFlags {
 public:
  explicit AddFlags(CLI::App& app) : app_(&app) {}

  void group(const char* name) { group_ = name; }

  void operator()(const std::string& names, bool& value, const char* word, const char* help);
  /// A flag that may be repeated, or all positional words.
  void operator()(const std::string& names, std::vector<std::string>& value, const char* word,
                  const char* help);
  template <typename Value>
  void operator()(const std::string& names, Value& value, const char* word, const char* help) {
    const std::string flag = names.substr(names.rfind(',') + 1);
    const auto read = [&value, flag](const std::string& text) {
      try {
        parse(text, value);
      } catch (const std::invalid_argument& error) {
        throw UsageError(flag + ": " + error.what());
      }
    };
    add(names, read, word, help);
  }

 private:
  using Read = std::function<void(const std::string&)>;
  void add(const std::string& names, const Read& read, const char* word, const char* help);
  void into_group(CLI::Option& option) const;

  CLI::App* app_;
  std::string group_ = "Flags";
};

}  // namespace heed::cli

// One list of flags per command, read twice: by the parser (and so by --help), and by the echo.
//
//     struct InfoFlags {
//       bool json = false;
//       template <typename Visitor>
//       void visit(Visitor& flag) {
//         flag.group("Output");
//         flag("--json", json, "", "print JSON");
//       }
//     };
#pragma once

#include <CLI/CLI.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "exit_codes.h"
#include "flag_values.h"

namespace heed::cli {

/// Makes a flag of every field: what it is called, what kind of word it takes, what it does.
class AddFlags {
 public:
  explicit AddFlags(CLI::App& app) : app_(&app) {}

  void group(const char* name) { group_ = name; }

  template <typename Value>
  void operator()(const std::string& names, Value& value, const char* word, const char* help) {
    CLI::Option* option = nullptr;
    if constexpr (std::is_same_v<Value, bool>) {
      option = app_->add_flag(names, value, help)->check(no_value);
    } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
      option = app_->add_option(names, value, help)->type_name(word);
      // A flag that may be repeated takes one word each time.
      if (!option->get_positional()) option->allow_extra_args(false);
    } else {
      const std::string shown = names.substr(names.rfind(',') + 1);
      option = app_->add_option_function<std::string>(
          names, [&value, shown](const std::string& text) { read(shown, text, value); }, help);
      option->type_name(word);
    }
    if (!option->get_positional()) option->group(group_);
  }

 private:
  // CLI11 hands over "true" where nothing was given, and would read a number as a flag given so often.
  static std::string no_value(const std::string& text) {
    return text == "true" ? "" : "expected no value, got '" + text + "'";
  }

  template <typename Value>
  static void read(const std::string& flag, const std::string& text, Value& value) {
    try {
      parse(text, value);
    } catch (const std::invalid_argument& error) {
      throw UsageError(flag + ": " + error.what());
    }
  }

  CLI::App* app_;
  std::string group_ = "Flags";
};

/// Writes every field that was given under its longest name: what a run was told.
class EchoFlags {
 public:
  EchoFlags(const CLI::App& app, Json& json) : app_(&app), json_(&json) {}

  void group(const char*) {}

  template <typename Value>
  void operator()(const std::string& names, Value& value, const char*, const char*) {
    const std::string name = names.substr(names.rfind(',') + 1);
    if (app_->get_option(name)->count() == 0) return;
    (*json_)[name.substr(name.find_first_not_of('-'))] = echo(std::as_const(value));
  }

 private:
  const CLI::App* app_;
  Json* json_;
};

/// The flags that were given, as JSON.
template <typename Flags>
[[nodiscard]] Json echo_flags(const CLI::App& app, Flags& flags) {
  Json json = Json::object();
  EchoFlags visitor(app, json);
  flags.visit(visitor);
  return json;
}

}  // namespace heed::cli

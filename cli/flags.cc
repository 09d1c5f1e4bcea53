// What flags.h asks of CLI11.
#include "flags.h"

#include <CLI/CLI.hpp>

namespace heed::cli {
namespace {

// CLI11 hands over "true" where nothing was given, and would read a number as a flag given so
// often.
std::string no_value(const std::string& text) {
  return text == "true" ? "" : "expected no value, got '" + from_parser(text) + "'";
}

}  // namespace

CLI::App& add_command(CLI::App& root, const char* name, const char* help, const char* examples) {
  CLI::App& app = *root.add_subcommand(name, help);
  app.footer(examples);
  return app;
}

std::string for_parser(std::string word) {
  const bool is_list = word.ends_with(']');  // behind "--name=", too
  const bool is_of_nothing = word.starts_with("--") && word.find('=') == word.size() - 1;
  if (is_list || is_of_nothing || word == "++") word += '\0';
  return word;
}

std::string from_parser(std::string word) {
  if (word.ends_with('\0')) word.pop_back();
  return word;
}

bool given(const CLI::App& app, const std::string& name) {
  return app.get_option(name)->count() > 0;
}

void AddFlags::operator()(const std::string& names, bool& value, const char*, const char* help) {
  into_group(*app_->add_flag(names, value, help)->check(no_value));
}

void AddFlags::operator()(const std::string& names, std::vector<std::string>& value,
                          const char* word, const char* help) {
  const auto read = [&value](const std::vector<std::string>& words) {
    value.clear();
    for (const std::string& one : words) value.push_back(from_parser(one));
  };
  CLI::Option& option =
      *app_->add_option_function<std::vector<std::string>>(names, read, help)->type_name(word);
  // A flag that may be repeated takes one word each time.
  if (!option.get_positional()) option.allow_extra_args(false);
  into_group(option);
}

void AddFlags::add(const std::string& names, const Read& read, const char* word, const char* help) {
  const auto read_word = [read](const std::string& text) { read(from_parser(text)); };
  into_group(*app_->add_option_function<std::string>(names, read_word, help)->type_name(word));
}

void AddFlags::into_group(CLI::Option& option) const {
  if (!option.get_positional()) option.group(group_);
}

}  // namespace heed::cli

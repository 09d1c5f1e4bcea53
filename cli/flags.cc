// What flags.h asks of CLI11.
#include "flags.h"

#include <CLI/CLI.hpp>

namespace heed::cli {
namespace {

// CLI11 hands over "true" where nothing was given, and would read a number as a flag given so
// often.
std::string no_value(const std::string& text) {
  return text == "true" ? "" : "expected no value, got '" + text + "'";
}

}  // namespace

CLI::App& add_command(CLI::App& root, const char* name, const char* help, const char* examples) {
  CLI::App& app = *root.add_subcommand(name, help);
  app.footer(examples);
  return app;
}

bool given(const CLI::App& app, const std::string& name) {
  return app.get_option(name)->count() > 0;
}

void AddFlags::operator()(const std::string& names, bool& value, const char*, const char* help) {
  into_group(*app_->add_flag(names, value, help)->check(no_value));
}

void AddFlags::operator()(const std::string& names, std::vector<std::string>& value,
                          const char* word, const char* help) {
  CLI::Option& option = *app_->add_option(names, value, help)->type_name(word);
  // A flag that may be repeated takes one word each time.
  if (!option.get_positional()) option.allow_extra_args(false);
  into_group(option);
}

void AddFlags::add(const std::string& names, const Read& read, const char* word, const char* help) {
  into_group(*app_->add_option_function<std::string>(names, read, help)->type_name(word));
}

void AddFlags::into_group(CLI::Option& option) const {
  if (!option.get_positional()) option.group(group_);
}

}  // namespace heed::cli

// What command_line.h says: the commands by CLI11, and errors in the words of the call.
#include "command_line.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands.h"
#include "exit_codes.h"
#include "flag_values.h"
#include "flags.h"
#include "heed/heed.h"
#include "signals.h"
#include "suggest.h"
#include "terminal.h"

namespace heed::cli {
namespace {

constexpr const char* kDescription =
    "heed: exact scaled dot-product attention on CPUs\n"
    "\n"
    "  S = scale Q K^T      P = softmax(S)      O = P V";

constexpr const char* kExamples =
    "Examples:\n"
    "  heed demo                             what attention sees in a sentence\n"
    "  heed run qkv.safetensors -o out.npz   attention of the tensors q, k and v\n"
    "  heed inspect qk.safetensors --causal  what its heads do, and whether they are well\n"
    "  heed study variance                   why scores are divided by sqrt(d)\n"
    "  heed bench --n 2048 --d 64            how fast this machine computes it\n";

// Also in README.md and exit_codes.h.
constexpr const char* kExitCodes =
    "Exit codes:\n"
    "  0    all is well\n"
    "  1    heed bench --check: a limit does not hold\n"
    "  2    the call is wrong: a flag, a shape, a combination\n"
    "  3    a file is not what it says it is\n"
    "  4    the system refuses to read or write\n"
    "  5    not enough memory, or more than --max-bytes\n"
    "  6    heed run --check-finite: a result has NaN or infinity\n"
    "  130  interrupted (SIGINT); 143: SIGTERM; 141: the reader of the output went away "
    "(SIGPIPE)\n";

// Examples come first: they stand as an application's footer, which CLI11 would print last.
class ExamplesFirst : public CLI::Formatter {
 public:
  std::string make_description(const CLI::App* app) const override {
    return app->get_description() + "\n\n" + app->get_footer() + "\n";
  }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string usage = "Usage: " + name;
    for (const auto* option : app->get_options()) {
      if (option->get_positional()) usage += " " + option->get_type_name();
    }
    return usage + (app->get_parent() == nullptr ? " COMMAND [FLAGS]\n" : " [FLAGS]\n");
  }
  std::string make_option(const CLI::Option* option, bool positional) const override {
    if (!positional) return CLI::Formatter::make_option(option, positional);
    std::ostringstream text;
    CLI::detail::format_help(text, option->get_type_name(), option->get_description(),
                             get_column_width());
    return text.str();
  }
  // CLI11 writes "..." behind what may be repeated, as if one flag took many words.
  std::string make_option_opts(const CLI::Option* option) const override {
    constexpr std::string_view kMany = " ...";
    std::string text = CLI::Formatter::make_option_opts(option);
    if (text.ends_with(kMany)) text.resize(text.size() - kMany.size());
    return text;
  }
  std::string make_subcommand(const CLI::App* app) const override {
    return format("  %-8s %s\n", app->get_name().c_str(), app->get_description().c_str());
  }
  std::string make_footer(const CLI::App* app) const override {
    return app->get_parent() == nullptr ? "\n" + std::string(kExitCodes) : "";
  }

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
    for (auto at = text.find("\n\n\n"); at != std::string::npos; at = text.find("\n\n\n", at)) {
      text.erase(at, 1);
    }
    while (text.ends_with("\n\n")) text.pop_back();
    return text;
  }
};

// The library's errors begin with the function that throws; the user called a command.
std::string without_function(const std::string& message) {
  for (const std::string_view name :
       {"attention_forward: ", "attention_backward: ", "inspect_weights: ", "explain: ",
        "read_tensors: ", "write_tensors: ", "check_writable: ", "make_tensor: ", "convert: ",
        "view_of: ", "instruction_set: ", "default_threads: "}) {
    if (message.starts_with(name)) return message.substr(name.size());
  }
  return message;
}

// CLI11's own texts tell of a flag "1 required but received 2".
std::string in_our_words(const std::string& message) {
  const auto between = [&message](std::string_view left, std::string_view right,
                                  const char* expected, const char* got) -> std::string {
    const auto at = message.find(left);
    if (at == std::string::npos || !message.ends_with(right)) return "";
    const auto word = at + left.size();
    return message.substr(0, at) + expected +
           message.substr(word, message.size() - right.size() - word) + got;
  };
  for (const std::string& ours :
       {between(": At Most 1 required but received ", "", ": expected once, got ", " times"),
        between(": 1 required ", " missing", ": expected ", ", got nothing")}) {
    if (!ours.empty()) return ours;
  }
  return message;
}

// The library tells numbers in six digits: "--dropout is 1; expected .." of 0.9999999.
std::string with_digits_of(const std::string& word, const std::string& message) {
  constexpr double kSixDigits = 1e-5;
  constexpr std::string_view kIs = " is ";
  const auto is = message.find(kIs);
  if (is == std::string::npos) return message;
  const auto begin = is + kIs.size();
  const auto end = std::min(message.find_first_of(";,", begin), message.size());
  try {
    double given = 0;
    double told = 0;
    parse(word, given);
    parse(message.substr(begin, end - begin), told);
    if (!(std::abs(told - given) <= kSixDigits * std::abs(given))) return message;
  } catch (const std::invalid_argument&) {
    return message;  // a list, or a file
  }
  return message.substr(0, begin) + word + message.substr(end);
}

// The nearest of the candidates, or what tells all of them.
std::string hint(const std::string& word, const std::vector<std::string>& candidates,
                 const std::string& all) {
  const std::string best = nearest(word, candidates);
  return best.empty() ? "; " + all : "; did you mean " + best + "?";
}

// "heed run"
std::string app_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? "heed" : "heed " + app.get_name();
}

std::vector<std::string> leftovers(const CLI::App& app) {
  std::vector<std::string> left;
  for (std::string& word : app.remaining()) left.push_back(from_parser(std::move(word)));
  return left;
}

// What the parser left over is a mistake: an unknown flag or command.
void refuse_leftovers(const CLI::App& app) {
  auto left = leftovers(app);
  // The parser keeps the mark where the input is behind it, which it has taken.
  if (app.get_parent() != nullptr && !left.empty() && left[0] == "--") left.erase(left.begin());
  if (app.get_parent() == nullptr && left.size() > 1 && left[0] == "help") left.erase(left.begin());
  if (left.empty()) return;
  const std::string word = left[0].substr(0, left[0].find('='));
  std::vector<std::string> known;
  if (word.starts_with('-')) {
    for (const auto* option : app.get_options()) {
      for (const auto& name : option->get_lnames()) known.push_back("--" + name);
    }
    throw UsageError("unknown flag " + word +
                     hint(word, known, app_name(app) + " --help lists them"));
  }
  if (app.get_parent() != nullptr) throw UsageError("unexpected argument '" + left[0] + "'");
  for (const auto* command : app.get_subcommands({})) known.push_back(command->get_name());
  throw UsageError("unknown command '" + word + "'" +
                   hint(word, known, "expected " + alternatives(known)));
}

bool takes_value(const CLI::App& asked, const std::string& name) {
  const auto* option = asked.get_option_no_throw(name);
  return option != nullptr && option->get_items_expected_max() > 0;
}

[[noreturn]] void refuse_value(const std::string& name, const std::string& value) {
  throw UsageError(name + ": expected no value, got '" + value + "'");
}

// CLI11 does not look at the value of --help at all.
void refuse_value_of_switch(const std::string& word, const CLI::App& asked) {
  const auto equal = word.find('=');
  const std::string name = word.substr(0, equal);
  if (equal == std::string::npos || asked.get_option_no_throw(name) == nullptr) return;
  if (!takes_value(asked, name)) refuse_value(name, word.substr(equal + 1));
}

// Of switches of a letter each, of which the last may have a value, CLI11 leaves "-=1" of "-q=1"
// and "-1" of "-q1", which would be a file; of "-o=x" and "-qo=x" it takes "=x".
void refuse_values_of_letters(const std::string& word, const CLI::App& asked) {
  for (std::size_t at = 1; at < word.size(); ++at) {
    const std::string name{'-', word[at]};
    if (asked.get_option_no_throw(name) == nullptr) return;
    const std::string behind = word.substr(at + 1);
    const bool equal = behind.starts_with('=');
    if (takes_value(asked, name)) {
      if (!equal) return;
      throw UsageError(name + ": expected its value as a word of its own, got '" + behind + "'");
    }
    if (equal || std::isdigit(static_cast<unsigned char>(behind[0])) != 0) {
      refuse_value(name, behind.substr(equal ? 1 : 0));
    }
  }
}

void refuse_values_of_switches(const std::vector<std::string>& words, const CLI::App& asked) {
  const auto mark = std::find(words.begin(), words.end(), "--");
  for (auto word = words.begin(); word != mark; ++word) {
    if (word != words.begin() && takes_value(asked, *(word - 1))) continue;  // that one's value
    if (word->starts_with("--")) {
      refuse_value_of_switch(*word, asked);
    } else if (word->starts_with('-')) {
      refuse_values_of_letters(*word, asked);
    }
  }
}

class CommandLine {
 public:
  CommandLine() : app_(kDescription, "heed") {
    app_.formatter(std::make_shared<ExamplesFirst>());
    app_.get_formatter()->column_width(32);
    app_.get_formatter()->label("Positionals", "Input");
    app_.footer(kExamples);
    app_.option_defaults()->group("Flags");
    app_.set_help_flag("-h,--help", "show this help");
    app_.set_version_flag("--version", "heed " + std::string(version()), "show the version");
    app_.require_subcommand(0, 1);
    app_.allow_extras();
    for (const auto& add : {add_run, add_inspect, add_study, add_bench, add_info, add_demo})
      add_command(add);
  }

  void run(int argc, char** argv) {
    const std::vector<std::string> words{argv + 1, argv + argc};
    std::vector<std::string> last_first;  // as the parser wants them
    std::transform(words.rbegin(), words.rend(), std::back_inserter(last_first), for_parser);
    try {
      app_.parse(std::move(last_first));
    } catch (const CLI::CallForHelp&) {
      refuse_values_of_switches(words, asked());
      return print(app_.help());
    } catch (const CLI::CallForVersion& request) {
      refuse_values_of_switches(words, asked());
      return print(std::string(request.what()) + "\n");
    } catch (const CLI::ParseError& error) {
      refuse_values_of_switches(words, app_);
      throw UsageError(in_our_words(error.what()));
    }
    if (app_.remaining() == std::vector<std::string>{"help"}) {
      if (words.size() > 2) {
        throw UsageError("unexpected '" + words[2] + "'; heed help takes one command");
      }
      return print(app_.help());
    }
    refuse_misplaced(words, asked());
    refuse_values_of_switches(words, asked());
    refuse_leftovers(app_);
    refuse_leftovers(asked());
    if (&asked() == &app_) {
      throw UsageError(
          "no command given; heed --help lists them, heed demo shows what it is about");
    }
    actions_.at(asked().get_name())();
  }

  /// Where a limit that a reader names comes from: "expected tensors of at most 1024 bytes".
  [[nodiscard]] std::string with_its_limit(const std::string& message) const {
    if (message.find(": expected ") == std::string::npos) return message;  // memory ran out
    const auto chosen = app_.get_subcommands();
    const auto* flag = chosen.empty() ? nullptr : chosen[0]->get_option_no_throw("--max-bytes");
    return message + (flag == nullptr || flag->count() == 0
                          ? "; 80 % of the free memory is no more"
                          : "; --max-bytes " + flag->results()[0] + " leaves no more");
  }

  /// "heed run", for messages.
  [[nodiscard]] std::string name() const { return app_name(asked()); }

  /// The library names the field that it refuses, "mask.key_lengths is 13"; the user gave a flag,
  /// "--key-lengths is 13", or a tensor, "key_lengths is 13".
  [[nodiscard]] std::string in_words_of_the_call(std::string message) const {
    constexpr std::string_view kMask = "mask.";
    if (message.starts_with(kMask)) message.erase(0, kMask.size());
    const auto end = std::min(message.find_first_of(" ["), message.size());
    std::string flag = "--" + message.substr(0, end);
    std::replace(flag.begin(), flag.end(), '_', '-');
    if (flag == "--dropout.p") flag = "--dropout";
    const auto chosen = app_.get_subcommands();
    const auto* option = chosen.empty() ? nullptr : chosen[0]->get_option_no_throw(flag);
    if (option == nullptr || option->count() == 0) return message;
    return with_digits_of(option->results()[0], flag + message.substr(end));
  }

  /// The command was given --quiet.
  [[nodiscard]] bool quiet() const {
    const auto chosen = app_.get_subcommands();
    const auto* flag = chosen.empty() ? nullptr : chosen[0]->get_option_no_throw("--quiet");
    return flag != nullptr && flag->count() > 0;
  }

 private:
  /// The command, or heed itself where none is given.
  [[nodiscard]] const CLI::App& asked() const {
    const auto chosen = app_.get_subcommands();
    return chosen.empty() ? app_ : *chosen[0];
  }

  // What stands on the wrong side of the command, or of --, is left over as if nothing knew it.
  void refuse_misplaced(const std::vector<std::string>& words, const CLI::App& asked) const {
    const auto left = leftovers(app_);
    if (left.empty() || &asked == &app_) return;
    const auto mark = std::find(words.begin(), words.end(), "--");
    if (std::find(mark, words.end(), left[0]) != words.end()) {
      throw UsageError("unexpected " + left[0] +
                       " behind --, where every word is a file; flags stand before it, and all "
                       "files on one side of it");
    }
    const std::string flag = left[0].substr(0, left[0].find('='));
    if (flag.starts_with('-') && asked.get_option_no_throw(flag) != nullptr) {
      throw UsageError(flag + " stands before the command; give " + app_name(asked) + " " +
                       left[0]);
    }
  }

  void add_command(Action (*add)(CLI::App&)) {
    const auto before = app_.get_subcommands({}).size();
    Action action = add(app_);
    auto* command = app_.get_subcommands({})[before];
    command->allow_extras()->group("Commands");
    command->get_help_ptr()->group("Flags");
    actions_[command->get_name()] = std::move(action);
  }

  CLI::App app_;
  std::map<std::string, Action> actions_;
};

struct Ending {
  ExitCode code;
  std::string message;
};

// Of the exception that is being handled.
Ending ending_by_error(const CommandLine& line) {
  try {
    throw;
  } catch (const Failure& failure) {
    return {failure.code(), failure.what()};
  } catch (const Error& error) {
    const std::string message = without_function(error.what());
    return {exit_code_of(error.kind()),
            error.kind() == ErrorKind::argument ? line.in_words_of_the_call(message)
            : error.kind() == ErrorKind::memory ? line.with_its_limit(message)
                                                : message};
  } catch (const FaultOf& fault) {
    try {
      fault.rethrow_nested();
    } catch (...) {
      const Ending ending = ending_by_error(line);
      return {ending.code, fault.told(ending.message)};
    }
  } catch (const std::bad_alloc&) {
    return {ExitCode::memory, "out of memory"};
  } catch (const std::exception& error) {
    return {ExitCode::usage, error.what()};
  }
}

ExitCode result_of(CommandLine& line, int argc, char** argv) {
  try {
    line.run(argc, argv);
    finish_output();
    return ExitCode::ok;
  } catch (const std::exception&) {
    const Ending ending = ending_by_error(line);
    print_message(line.name() + ": " + ending.message);
    return ending.code;
  }
}

ExitCode run(int argc, char** argv) {
  CommandLine line;
  const ExitCode code = result_of(line, argc, argv);
  if (refused_thread_starts() > 0 && !line.quiet()) {
    print_message(line.name() + ": the system refused to start a thread; fewer did the work");
  }
  return code;
}

// The message where there is no memory for one. Nothing is half written then: results have no name
// yet, or are complete.
[[noreturn]] void end_without_memory() {
  constexpr std::string_view kMessage = "heed: out of memory\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kMessage.data(), kMessage.size());
  std::_Exit(static_cast<int>(ExitCode::memory));
}

// A destructor of a JSON document allocates; where that fails, the exception has nowhere to go. The
// process ends with the exit code of its reason, and not by SIGABRT.
[[noreturn]] void terminate() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    end_without_memory();
  } catch (...) {
    std::abort();
  }
}

}  // namespace

int run_command_line(int argc, char** argv) {
  try {
    exit_on_signals();
    std::set_terminate(terminate);
    return static_cast<int>(run(argc, argv));
  } catch (...) {
    end_without_memory();  // failed while it put a message together
  }
}

}  // namespace heed::cli

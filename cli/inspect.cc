// heed inspect: what the heads of a model do, and whether they are well.
#include <algorithm>
#include <cctype>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "commands.h"
#include "echo.h"
#include "flags.h"
#include "heed/heed.h"
#include "heed/io.h"
#include "input_names.h"
#include "inspect_bytes.h"
#include "inspect_flags.h"
#include "inspect_heads.h"
#include "inspect_output.h"
#include "inspect_writing.h"
#include "machine.h"
#include "pictures.h"
#include "places.h"
#include "plain_text.h"
#include "progress.h"
#include "run_inputs.h"
#include "terminal.h"

namespace heed::cli {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  heed inspect                                   the sample that belongs to heed\n"
    "  heed inspect qk.safetensors --causal --html report.html\n"
    "  heed inspect q.npy k.npy --scale 0.125 --json\n"
    "  heed inspect after.npz --against before.npz --pictures changes\n";

void check_call(const InspectFlags& flags) {
  if (flags.files.size() > 3) {
    throw UsageError("expected one file, two for q and k, or three with v; got " +
                     std::to_string(flags.files.size()));
  }
  if (!flags.against.empty() && flags.pictures.empty()) {
    throw UsageError("--against: what changed is shown by pictures; give --pictures FOLDER");
  }
  flags.thresholds.check();
  if (!flags.tile.empty() && flags.html.empty()) {
    throw UsageError("--tile: exact tiles are shown by the report; give --html FILE");
  }
  if (!flags.heads.words.empty() && flags.pictures.empty()) {
    throw UsageError("--heads: heads are drawn alone into a folder; give --pictures FOLDER");
  }
  check_places(flags);
}

/// One token per line, as many as there are keys. Further lines are counted, and take no memory.
std::vector<std::string> lines_of(const std::string& path, std::int64_t keys,
                                  std::int64_t max_bytes) {
  const std::string text = read_text(path, max_bytes);
  std::vector<std::string> lines;
  std::int64_t count = 0;
  constexpr std::string_view kMark = "\xEF\xBB\xBF";  // that of UTF-8, in files from Windows
  const std::size_t first = text.starts_with(kMark) ? kMark.size() : 0;
  for (std::size_t begin = first; begin < text.size(); ++count) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);  // lines of files from Windows
    if (count < keys) lines.emplace_back(line);
    begin = end + 1;
  }
  if (count != keys) {
    throw UsageError("--tokens: " + path + " has " + std::to_string(count) +
                     (count == 1 ? " line" : " lines") + "; expected " + std::to_string(keys) +
                     ", one for each key");
  }
  return lines;
}

/// The metadata's list, if it has a string for each key; else none, and `warning` says why. Strings
/// alone would be the labels of other keys.
std::vector<std::string> tokens_in(const std::string& text, std::int64_t keys,
                                   std::string& warning) {
  const Json list = Json::parse(text, nullptr, false);
  const bool strings = list.is_array() && std::all_of(list.begin(), list.end(),
                                                      [](const Json& x) { return x.is_string(); });
  const auto count = static_cast<std::int64_t>(list.size());
  if (strings && count == keys) return list.get<std::vector<std::string>>();
  const std::string found = strings ? "a list of " + std::to_string(count) : "no list of strings";
  warning = "tokens in the metadata are not used: expected a list of " + std::to_string(keys) +
            " strings, one for each key, found " + found;
  return {};
}

/// A word that a shell takes as it is, or in quotes.
std::string for_a_shell(const std::string& word) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::strchr("_-+=.,:/@%", c) != nullptr;
  };
  if (!word.empty() && std::ranges::all_of(word, plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

/// As a flag takes it: a side of a window without end is null in JSON.
std::string word_of(const Json& value) {
  if (value.is_boolean()) return "";
  if (value.is_string()) return for_a_shell(value.get<std::string>());
  if (value.is_null()) return "inf";
  if (!value.is_array()) return value.dump();
  std::string list;
  for (const Json& one : value) list += (list.empty() ? "" : ",") + word_of(one);
  return list;
}

/// The options that were given, as flags.
std::string settings_of(const CLI::App& app, InspectFlags& flags) {
  std::string text;
  const Json given = echo_flags(app, flags);
  for (const char* name :
       {"scale", "normalize-qk", "softcap", "alibi", "bias", "causal", "query-start", "window",
        "key-lengths", "query-lengths", "keep", "drop", "sinks"}) {
    if (!given.contains(name)) continue;
    text += (text.empty() ? "--" : " --") + std::string(name);
    if (const std::string word = word_of(given.at(name)); !word.empty()) text += " " + word;
  }
  return text;
}

/// "99,99"
std::string joined(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const auto number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

std::optional<TilePlace> checked_tile(const InspectFlags& flags, const Call& call) {
  if (flags.tile.empty()) return {};
  const bool fits = flags.tile.size() == 2 && flags.tile[0] >= 0 && flags.tile[1] >= 0 &&
                    flags.tile[0] < call.queries() && flags.tile[1] < call.keys();
  if (!fits) {
    if (call.queries() == 0 || call.keys() == 0) {
      throw UsageError("--tile: there are no scores to show: q has " +
                       std::to_string(call.queries()) + " rows, k " + std::to_string(call.keys()));
    }
    throw UsageError("--tile: expected a row below " + std::to_string(call.queries()) +
                     ", a comma and a key below " + std::to_string(call.keys()) + ", got " +
                     joined(flags.tile));
  }
  return TilePlace{flags.tile[0], flags.tile[1]};
}

/// "3.1,5.0": layer and head.
std::vector<std::pair<std::int64_t, std::int64_t>> checked_heads(const InspectFlags& flags,
                                                                 const Call& call) {
  std::vector<std::pair<std::int64_t, std::int64_t>> heads;
  for (const std::string_view part : parts_of(flags.heads.words, ',')) {
    const std::string word(part);
    const auto dot = std::min(word.find('.'), word.size());
    std::int64_t layer = -1;
    std::int64_t head = -1;
    try {
      parse(word.substr(0, dot), layer);
      parse(word.substr(std::min(dot + 1, word.size())), head);
    } catch (const std::invalid_argument&) {
      layer = -1;
    }
    if (call.layers() == 0 || call.heads() == 0) {
      throw UsageError("--heads: the input has no heads, got " + word);
    }
    if (layer < 0 || layer >= call.layers() || head < 0 || head >= call.heads()) {
      throw UsageError("--heads: expected LAYER.HEAD, 0.0 to " + std::to_string(call.layers() - 1) +
                       "." + std::to_string(call.heads() - 1) + ", got '" + word + "'");
    }
    const std::pair one(layer, head);
    if (std::find(heads.begin(), heads.end(), one) == heads.end()) heads.push_back(one);
  }
  return heads;
}

class Inspect {
 public:
  Inspect(const CLI::App& app, InspectFlags& flags) : app_(app), flags_(flags) {}

  void operator()() {
    check_call(flags_);
    StatusLine status("inspect", flags_.quiet);
    const Inspection inspection = look_at(flags_, status);
    const std::string written = write(inspection, status);
    status.end();
    if (flags_.json) {
      print(inspection_json(inspection).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    } else if (!flags_.quiet) {
      print(inspection_text(inspection, terminal_of(1)));
      if (!written.empty()) print("\n" + written);
    }
  }

 private:
  /// Everything is drawn, and every name looked at, before anything is written: a call that fails
  /// leaves nothing behind, but for a disk that is full in the midst of many files.
  std::string write(const Inspection& inspection, StatusLine& status) {
    std::string written;
    std::vector<Picture> pictures;
    if (!flags_.pictures.empty()) {
      std::vector<Picture> changes;
      if (!flags_.against.empty()) changes = changes_to(inspection, status);
      status.stage("drawing");
      pictures = pictures_of(inspection);
      for (auto& picture : changes) pictures.push_back(std::move(picture));
      check_pictures(flags_, pictures);
    }
    if (!flags_.pictures.empty()) make_folder(flags_.pictures);  // the page may lie in it
    if (!flags_.html.empty()) {
      status.stage("writing " + flags_.html);
      write_text(flags_.html, html_report(inspection));
      written += "written to " + one_line(flags_.html) + "\n";
    }
    if (flags_.pictures.empty()) return written;
    status.stage("writing pictures");
    for (const Picture& picture : pictures) {
      write_text(flags_.pictures + "/" + picture.name, picture.bytes);
    }
    return written + std::to_string(pictures.size()) + " files written to " +
           one_line(flags_.pictures) + "\n";
  }

  /// Rows, tiles, heads and tokens are this run's: the other one need not have them.
  std::vector<Picture> changes_to(const Inspection& inspection, StatusLine& status) {
    InspectFlags flags = flags_;
    flags.files = {flags.against};
    flags.one_file_of = "--against";
    flags.rows.clear();
    flags.tile.clear();
    flags.tokens.clear();
    flags.heads.words.clear();
    const Inspection before = look_at_other(flags, status);
    try {
      return difference_of(before, inspection);
    } catch (const std::invalid_argument& error) {
      throw UsageError("--against: " + flags_.against + " cannot be compared: " + error.what());
    }
  }

  /// What fails here is that file's fault: the same flags fitted this run.
  Inspection look_at_other(const InspectFlags& flags, StatusLine& status) {
    try {
      return look_at(flags, status);
    } catch (const std::runtime_error&) {
      throw FaultOf(flags.one_file_of, one_line(flags.against));
    }
  }

  Inspection look_at(InspectFlags flags, StatusLine& status) {
    const std::vector<std::string> files = flags.files;
    if (files.empty()) flags.files = {data_file("it.safetensors")};
    const std::int64_t budget = flags.max_bytes.count > 0 ? flags.max_bytes.count : memory_budget();
    RunInputs inputs = read_inputs(flags, budget, status);
    if (!flags.one_file_of.empty()) inputs.metadata.erase("tokens");
    if (!files.empty()) {
      for (const auto& warning : inputs.warnings) warn_of(flags, warning);
    }
    check_values(inputs, flags);
    const DType dtype = compute_dtype(inputs);
    check_shapes(inputs, flags, dtype);
    const std::int64_t token_bytes = check_memory(inputs, flags, dtype, budget);
    widen(inputs, dtype);
    const Call call = call_of(input_view(inputs, "q", flags), input_view(inputs, "k", flags),
                              options_of(inputs, flags));
    InspectSettings settings{
        .rows = checked_rows(call, flags.rows),
        .top = flags.top.value,
        .map = map_cells(flags, call),
        .thresholds = flags.thresholds,
        .tokens = tokens_of(flags, inputs, call.keys(), token_bytes),
        .detail = flags.html.empty() && flags.pictures.empty() ? Detail::numbers : Detail::pictures,
        .tile = checked_tile(flags, call)};
    if (inputs.tensors.contains("d_output")) {
      settings.v = with_four_axes(input_view(inputs, "v", flags));
      settings.d_output = with_four_axes(input_view(inputs, "d_output", flags));
    }
    auto asked = checked_heads(flags, call);
    PoolExecutor pool(flags.threads.value);
    CountingExecutor executor(pool, status);
    Inspection inspection = inspect_heads(call, settings, executor, status);
    inspection.source = files.empty() ? "sample" : files[0];
    inspection.heads_asked = std::move(asked);
    inspection.settings = settings_of(app_, flags_);
    inspection.option_tensors = options_of_file(inputs.tensors, flags);
    const auto sentence = inputs.metadata.find("sentence");
    if (sentence != inputs.metadata.end()) inspection.sentence = sentence->second;
    return inspection;
  }

  static std::vector<std::string> tokens_of(const InspectFlags& flags, const RunInputs& inputs,
                                            std::int64_t keys, std::int64_t max_bytes) {
    if (!flags.tokens.empty()) return lines_of(flags.tokens, keys, max_bytes);
    const auto found = inputs.metadata.find("tokens");
    if (found == inputs.metadata.end()) return {};
    std::string warning;
    auto tokens = tokens_in(found->second, keys, warning);
    if (!warning.empty()) warn_of(flags, warning);
    return tokens;
  }

  static void warn_of(const InspectFlags& flags, const std::string& warning) {
    if (flags.quiet) return;
    const bool other = !flags.one_file_of.empty();
    print_message("heed inspect: " +
                  (other ? flags.one_file_of + ": " + one_line(flags.against) + ": " : "") +
                  warning);
  }

  static void check_values(const RunInputs& inputs, const InspectFlags& flags) {
    if (!inputs.tensors.contains("d_output") || inputs.tensors.contains("v")) return;
    const bool by_flag = !flags.d_output.empty();
    std::string message =
        in_words_of(flags, kGradient) + " is given, but no v: gradients take both; ";
    if (!flags.one_file_of.empty()) {
      message += "put v into the file";
    } else if (by_flag) {
      message += "give Q.npy K.npy V.npy, or a file with v";
    } else {
      message += "put v into the file, or give Q.npy K.npy V.npy";
    }
    throw Failure(by_flag ? ExitCode::usage : ExitCode::bad_input, message);
  }

  /// Before memory is taken, of tensors as they will be widened; their numbers are not read. Throws
  /// in the words of the call that the user made.
  static void check_shapes(const RunInputs& inputs, const InspectFlags& flags, DType dtype) {
    const auto widened = [&](const char* name) {
      ConstTensorView view = input_view(inputs, name, flags);
      view.dtype = dtype;
      return view;
    };
    const bool graded = inputs.tensors.contains("d_output");
    const ConstTensorView k = widened("k");
    ConstTensorView values = graded ? widened("v") : k;
    // Of values without numbers explain counts no tiles, which takes long where a mask is large.
    if (values.rank > 0) values.shape[static_cast<std::size_t>(values.rank - 1)] = 0;
    (void)explain(widened("q"), k, values, options_of(inputs, flags));
    if (graded) check_gradient_shape(inputs, flags);
  }

  /// Each row once.
  static std::vector<std::int64_t> checked_rows(const Call& call,
                                                const std::vector<std::int64_t>& asked) {
    std::vector<std::int64_t> rows;
    for (const std::int64_t row : asked) {
      if (call.queries() == 0) {
        throw UsageError("--rows: q has no rows, got " + std::to_string(row));
      }
      if (row < 0 || row >= call.queries()) {
        throw UsageError("--rows: expected 0 to " + std::to_string(call.queries() - 1) + ", got " +
                         std::to_string(row));
      }
      if (std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(row);
    }
    return rows;
  }

  const CLI::App& app_;
  InspectFlags& flags_;
};

}  // namespace

Action add_inspect(CLI::App& root) {
  CLI::App& app =
      add_command(root, "inspect", "what attention heads do, and whether they are well", kExamples);
  auto flags = std::make_shared<InspectFlags>();
  AddFlags add(app);
  flags->visit(add);
  return [&app, flags] { Inspect(app, *flags)(); };
}

}  // namespace heed::cli

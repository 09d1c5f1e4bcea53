// heed study: why attention is built as it is, in numbers that anybody can draw again.
#include "study.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <vector>

#include "commands.h"
#include "flags.h"
#include "places.h"
#include "plain_text.h"
#include "progress.h"
#include "study_output.h"
#include "study_tensors.h"
#include "suggest.h"
#include "terminal.h"

namespace heed::cli {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  heed study variance                     why scores are divided by sqrt(d)\n"
    "  heed study all -o studies               every chart as SVG, with CSV and JSON\n"
    "  heed study scaling --numpy-seed 42      the numbers that NumPy draws\n"
    "  heed study gradients --input qkv.npz    of your own tensors\n";

enum class Tensors : std::uint8_t { none, taken, with_d_output };
enum class Draws : std::uint8_t { either, own };  ///< generators: heed's or NumPy's, or heed's only

struct Entry {
  const char* name;
  Study (*run)(const StudyInput& input);
  Tensors tensors;
  Draws draws = Draws::either;
};

constexpr std::array<Entry, 9> kStudies{{{"variance", study_variance, Tensors::none},
                                         {"scaling", study_scaling, Tensors::taken},
                                         {"gradients", study_gradients, Tensors::with_d_output},
                                         {"strategies", study_strategies, Tensors::taken},
                                         {"initialisation", study_initialisation, Tensors::none},
                                         {"complexity", study_complexity, Tensors::none},
                                         {"masks", study_masks, Tensors::none},
                                         {"precision", study_precision, Tensors::none},
                                         {"training", study_training, Tensors::none, Draws::own}}};

struct StudyFlags {
  std::vector<std::string> studies;
  Seed seed{1};
  NumpySeed numpy_seed;
  std::string input;
  std::string output_dir;
  Format format = Format::table;
  bool json = false;

  template <typename Visitor>
  void visit(Visitor& flag) {
    flag("studies", studies, "STUDY..",
         "variance, scaling, gradients, strategies, initialisation,\n"
         "complexity, masks, precision, training, or all of them");
    flag.group("Data");
    flag("--seed", seed, "N", "of the random values, 0 to 2^64 - 1 (default 1)");
    flag("--numpy-seed", numpy_seed, "N",
         "draw the values of numpy.random.seed(N) and randn instead,\n"
         "in the order that docs/studies.md gives; 0 to 2^32 - 1, as NumPy's");
    flag("--input", input, "FILE",
         "a .npz or .safetensors file with q, k and v, in place of the\n"
         "sample, for scaling, gradients and strategies");
    flag.group("Output");
    flag("-o,--output-dir", output_dir, "DIR", "write NAME.svg, NAME.csv and NAME.json there");
    flag("--format", format, "FORMAT", "table (default), markdown, csv or jsonl (JSON lines)");
    flag("--json", json, "", "print JSON, an object with one member for each study");
  }
};

std::vector<Entry> chosen_studies(const StudyFlags& flags) {
  std::vector<std::string> names;
  for (const Entry& entry : kStudies) names.emplace_back(entry.name);
  names.emplace_back("all");
  std::vector<Entry> chosen;
  for (const std::string& word : flags.studies) {
    if (std::find(names.begin(), names.end(), word) == names.end()) {
      const std::string near = nearest(word, names);
      throw UsageError(
          "unknown study '" + word + "'" +
          (near.empty() ? "; expected " + alternatives(names) : "; did you mean " + near + "?"));
    }
  }
  // In the order of the list, each once, however they were asked for.
  const auto asked = [&flags](const std::string& name) {
    return std::find(flags.studies.begin(), flags.studies.end(), name) != flags.studies.end();
  };
  for (const Entry& entry : kStudies) {
    if (asked("all") || asked(entry.name)) chosen.push_back(entry);
  }
  if (chosen.empty()) {
    throw UsageError("no study given; heed study --help lists them, heed study all runs them");
  }
  return chosen;
}

/// Whether one of the studies takes such tensors, or more.
bool any_takes(const std::vector<Entry>& chosen, Tensors tensors) {
  return std::any_of(chosen.begin(), chosen.end(),
                     [tensors](const Entry& entry) { return entry.tensors >= tensors; });
}

void check_flags(const CLI::App& app, const StudyFlags& flags, const std::vector<Entry>& chosen) {
  if (given(app, "--seed") && given(app, "--numpy-seed")) {
    throw UsageError("--seed and --numpy-seed exclude each other");
  }
  if (flags.json && given(app, "--format")) {
    throw UsageError("--json and --format exclude each other");
  }
  const bool own = std::all_of(chosen.begin(), chosen.end(),
                               [](const Entry& entry) { return entry.draws == Draws::own; });
  if (given(app, "--numpy-seed") && own) {
    throw UsageError("--numpy-seed: training draws from heed's own generator only; give --seed");
  }
  if (given(app, "--input") && !any_takes(chosen, Tensors::taken)) {
    throw UsageError("--input: only scaling, gradients and strategies take tensors");
  }
}

/// A place that cannot be written to, or that is read, is told now, not after minutes of computing.
void check_places(const StudyFlags& flags, const std::vector<Entry>& chosen) {
  check_folder(flags.output_dir);
  std::error_code error;
  if (!std::filesystem::exists(flags.output_dir, error)) return;
  for (const Entry& entry : chosen) {
    for (const std::string& path : files_of(entry.name, flags.output_dir)) {
      if (!flags.input.empty() && is_same_file(path, flags.input)) {
        throw UsageError("--output-dir: " + path + " is the input " + flags.input);
      }
      check_file(path);
    }
  }
}

void run(const CLI::App& app, const StudyFlags& flags) {
  const auto chosen = chosen_studies(flags);
  check_flags(app, flags, chosen);
  if (!flags.output_dir.empty()) check_places(flags, chosen);
  // Read once, so that what no study of the call uses is told once.
  std::optional<StudyTensors> tensors;
  if (any_takes(chosen, Tensors::taken)) {
    tensors.emplace(flags.input, any_takes(chosen, Tensors::with_d_output));
  }
  const bool numpy = given(app, "--numpy-seed");
  const StudyInput input{numpy ? Generator::numpy : Generator::heed,
                         numpy ? flags.numpy_seed.value : flags.seed.value,
                         tensors ? &*tensors : nullptr};
  std::vector<Study> studies;
  {
    StatusLine status("study", false);
    for (const Entry& entry : chosen) {
      status.stage(entry.name);
      Study& study = studies.emplace_back(entry.run(input));
      study.name = entry.name;
    }
  }
  std::vector<std::string> paths;
  if (!flags.output_dir.empty()) {
    make_folder(flags.output_dir);
    for (const Study& study : studies) {
      for (const auto& path : write_study(study, flags.output_dir)) paths.push_back(path);
    }
  }
  print_studies(studies, flags.json ? Format::json : flags.format);
  if (flags.json || flags.format != Format::table || paths.empty()) return;
  print("\n");
  for (const auto& path : paths) print("written to " + one_line(path) + "\n");
}

}  // namespace

Json facts_of(const StudyInput& input) {
  return {{"generator", input.generator == Generator::numpy ? "numpy" : "heed"},
          {"seed", input.seed}};
}

Action add_study(CLI::App& root) {
  CLI::App& app =
      add_command(root, "study", "why attention is built as it is, in numbers", kExamples);
  auto flags = std::make_shared<StudyFlags>();
  AddFlags add(app);
  flags->visit(add);
  return [&app, flags] { run(app, *flags); };
}

}  // namespace heed::cli

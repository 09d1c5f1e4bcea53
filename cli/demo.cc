// heed demo: what every attention head of a real model sees in one sentence.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "commands.h"
#include "flags.h"
#include "heed/heed.h"
#include "heed/io.h"
#include "inspect_heads.h"
#include "inspect_output.h"
#include "json.h"
#include "machine.h"
#include "pictures.h"
#include "places.h"
#include "plain_text.h"
#include "terminal.h"

namespace heed::cli {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  heed demo     takes nothing: the sentence belongs to heed\n"
    "  heed inspect  what else there is to see in it\n"
    "\n"
    "It writes a page for a browser, demo.html, and prints its name: into\n"
    "$XDG_CACHE_HOME/heed, else ~/.cache/heed, else a new folder of $TMPDIR or /tmp.\n"
    "Where none of them can be written to, it says so, and there is no page.\n";

constexpr const char* kWord = "it";

struct Sample {
  std::string sentence;
  std::vector<std::string> tokens;
  Tensor q, k, v;  ///< [layers, heads, tokens, head size], float32
};

Sample read_sample() {
  const std::string path = data_file("it.safetensors");
  const TensorFile file = read_tensors(path);
  Sample sample;
  try {
    sample.sentence = file.metadata.at("sentence");
    sample.tokens = Json::parse(file.metadata.at("tokens")).get<std::vector<std::string>>();
    sample.q = convert(file.tensors.at("q"), DType::f32);
    sample.k = convert(file.tensors.at("k"), DType::f32);
    sample.v = convert(file.tensors.at("v"), DType::f32);
  } catch (const std::out_of_range&) {
    throw Failure(ExitCode::bad_input, path + " is not the sample that belongs to this program");
  } catch (const Json::exception&) {
    throw Failure(ExitCode::bad_input, path + ": the list of tokens is not JSON");
  }
  return sample;
}

/// Where one token looks, in every layer and head.
class Gaze {
 public:
  Gaze(const Sample& sample, const char* word) : tokens_(&sample.tokens) {
    const auto& shape = sample.q.shape;
    layers = shape.at(0);
    heads = shape.at(1);
    const auto count = static_cast<std::size_t>(shape.at(2));
    const auto at = std::find(sample.tokens.begin(), sample.tokens.end(), word);
    if (at == sample.tokens.end() || sample.tokens.size() != count) {
      throw Failure(ExitCode::bad_input, "the sample's tokens do not fit its tensors");
    }
    row_ = static_cast<std::size_t>(at - sample.tokens.begin());
    Tensor output = make_tensor(DType::f32, sample.v.shape);
    weights_ = make_tensor(DType::f32, {layers, heads, shape[2], shape[2]});
    const auto begin = std::chrono::steady_clock::now();
    attention_forward(view_of(sample.q), view_of(sample.k), view_of(sample.v),
                      {.output = view_of(output), .weights = view_of(weights_)});
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  /// The token's row of weights in one head.
  [[nodiscard]] std::vector<float> row(std::int64_t layer, std::int64_t head) const {
    const std::size_t count = tokens_->size();
    std::vector<float> weights(count);
    const auto first = (static_cast<std::size_t>(layer * heads + head) * count + row_) * count;
    std::memcpy(weights.data(), weights_.data.data() + first * sizeof(float),
                count * sizeof(float));
    return weights;
  }

  std::int64_t layers = 0, heads = 0;
  double seconds = 0;

 private:
  const std::vector<std::string>* tokens_;
  std::size_t row_ = 0;
  Tensor weights_;
};

std::size_t peak_of(const std::vector<float>& weights) {
  return static_cast<std::size_t>(std::max_element(weights.begin(), weights.end()) -
                                  weights.begin());
}

std::size_t longest(const std::vector<std::string>& words) {
  std::size_t length = 0;
  for (const auto& word : words) length = std::max(length, word.size());
  return length;
}

/// "  animal  0.68 ##########": one bar of a chart or line of the list.
std::string bar_line(const std::string& label, const std::string& word, float weight, int width,
                     const Terminal& terminal, bool bright) {
  const int cells = std::max(width - static_cast<int>(label.size() + word.size()) - 7, 4);
  const std::string drawn = bar(weight, cells, terminal.unicode);
  const std::string shown = bright ? styled(word, "1", terminal.colour) : word;
  const std::string line = label + shown + format("  %.2f ", static_cast<double>(weight)) +
                           styled(drawn, bright ? "36" : "34", terminal.colour);
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

std::string padded(std::string word, std::size_t length) {
  word.resize(std::max(word.size(), length), ' ');
  return word;
}

std::string list_of_heads(const Sample& sample, const Gaze& gaze, const Terminal& terminal) {
  const std::size_t length = longest(sample.tokens);
  const int width = std::min(terminal.width, 72);
  std::string text;
  for (std::int64_t layer = 0; layer < gaze.layers; ++layer) {
    for (std::int64_t head = 0; head < gaze.heads; ++head) {
      const auto weights = gaze.row(layer, head);
      const auto peak = peak_of(weights);
      const std::string label = format("  layer %lld head %2lld  ", static_cast<long long>(layer),
                                       static_cast<long long>(head));
      const bool bright = sample.tokens[peak].front() != '[' && weights[peak] > 0.5F;
      text += bar_line(label, padded(sample.tokens[peak], length), weights[peak], width, terminal,
                       bright);
    }
  }
  return text;
}

std::string chart(const Sample& sample, const Gaze& gaze, std::int64_t layer, std::int64_t head,
                  const Terminal& terminal) {
  const auto weights = gaze.row(layer, head);
  const auto peak = peak_of(weights);
  const std::size_t length = longest(sample.tokens);
  const int width = std::min(terminal.width, 72);
  std::string text =
      styled(format("Layer %lld head %lld, \"%s\" looks at", static_cast<long long>(layer),
                    static_cast<long long>(head), kWord),
             "1", terminal.colour) +
      "\n";
  for (std::size_t i = 0; i < weights.size(); ++i) {
    text +=
        bar_line("  ", padded(sample.tokens[i], length), weights[i], width, terminal, i == peak);
  }
  return text;
}

std::string count_on(const Sample& sample, const Gaze& gaze, const std::string& token) {
  int count = 0;
  for (std::int64_t layer = 0; layer < gaze.layers; ++layer) {
    for (std::int64_t head = 0; head < gaze.heads; ++head) {
      count += sample.tokens[peak_of(gaze.row(layer, head))] == token ? 1 : 0;
    }
  }
  return std::to_string(count);
}

/// Everything that `heed inspect` finds out about the sample.
Inspection inspect(const Sample& sample) {
  StatusLine quiet("demo", true);
  PoolExecutor pool(0);
  const Call call = call_of(view_of(sample.q), view_of(sample.k), {});
  Inspection inspection = inspect_heads(call, {.tokens = sample.tokens}, pool, quiet);
  inspection.source = "sample";
  inspection.sentence = sample.sentence;
  return inspection;
}

/// Where the page goes: the user's cache, or a new folder for temporary files.
std::string report_path() {
  const auto folder_of = [](const char* name, const char* below) -> std::string {
    const char* const value = std::getenv(name);
    return value == nullptr || *value != '/' ? "" : std::string(value) + below;
  };
  for (const std::string& folder :
       {folder_of("XDG_CACHE_HOME", "/heed"), folder_of("HOME", "/.cache/heed")}) {
    if (folder.empty()) continue;
    try {
      make_folder(folder);
      check_file(folder + "/demo.html");
      return folder + "/demo.html";
    } catch (const std::exception&) {
      continue;  // a home that cannot be written to
    }
  }
  std::error_code none;  // $TMPDIR may name what is no folder
  std::string made = std::filesystem::temp_directory_path(none).string() + "/heed-XXXXXX";
  if (none || mkdtemp(made.data()) == nullptr) return "";
  return made + "/demo.html";
}

void show_inspection(const Sample& sample, const Terminal& terminal,
                     const std::function<void(const std::string&)>& say) {
  const Inspection inspection = inspect(sample);
  say("All heads at once. A small map for each: rows are the words that look, columns those that "
      "are "
      "looked at. Warm colours, or dense characters: more than an even share.");
  print(poster_text(inspection, terminal) + "\n");
  say("The head that finds the animal, row \"it\": its largest weights and how much they cover.");
  const auto word = std::find(sample.tokens.begin(), sample.tokens.end(), kWord);
  print(arcs_text(inspection, {.layer = 3, .head = 1}, word - sample.tokens.begin(), terminal) +
        "\n");
  say("Are the heads well? heed inspect tells, of these or of your own model's.");
  print(inspection_text(inspection, terminal) + "\n");
  const std::string path = report_path();
  if (path.empty()) {
    return say(
        "There is no page of all this: no folder for it can be written to (heed demo --help).");
  }
  write_text(path, html_report(inspection));
  print("All of this to look through, in a browser:\n  " + one_line(path) + "\n\n");
}

void demo() {
  const Sample sample = read_sample();
  const Gaze gaze(sample, kWord);
  const Terminal terminal = terminal_of(1);
  const auto width = static_cast<std::size_t>(std::min(terminal.width, 76));
  const auto say = [width](const std::string& text) { print(paragraph(text, width) + "\n"); };

  print("\n" + styled(paragraph(sample.sentence, width), "1", terminal.colour) + "\n");
  say(
      format("What does \"it\" mean here? A small language model (MiniLM, %lld layers of %lld "
             "attention heads) read the sentence; its queries, keys and values are stored beside "
             "this program. From them heed just computed, exactly and in %s,",
             static_cast<long long>(gaze.layers), static_cast<long long>(gaze.heads),
             human_seconds(gaze.seconds).c_str()));
  print("  softmax(Q K^T / sqrt(" + std::to_string(sample.q.shape.back()) + ")) V\n\n");
  say("for all heads at once. Each head gives \"it\" weights over the words that sum to 1: how "
      "much "
      "of each word flows into it. One line per head: the word that \"it\" attends to most, and "
      "how much.");
  print(list_of_heads(sample, gaze, terminal) + "\n");
  say("In " + count_on(sample, gaze, "[CLS]") +
      " heads \"it\" looks at [CLS] most, the mark at the start of the text: the usual place to "
      "look when a head has nothing to add. Others have a job. Two of them in full:");
  print(chart(sample, gaze, 3, 1, terminal) + "\n");
  say("This head looks at the animal, not the street. Nobody told it; it learned that from text. "
      "Layer 5 head 11 looks at the animal too.");
  print(chart(sample, gaze, 0, 2, terminal) + "\n");
  say("This one does something simpler: every word looks at the word before it. Later layers build "
      "on that.");
  show_inspection(sample, terminal, say);
  print(
      "Your own model:    heed inspect --help\nYour own tensors:  heed run --help\nThis machine:   "
      "   heed info, heed "
      "bench\n");
}

}  // namespace

Action add_demo(CLI::App& root) {
  add_command(root, "demo", "what the attention heads of a real model see in a sentence",
              kExamples);
  return demo;
}

}  // namespace heed::cli

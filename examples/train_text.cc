// A small model learns to write like a text, byte by byte, and goes on where it was stopped:
//
//     example_train_text model.safetensors                            200 steps on the GPL
//     example_train_text model.safetensors --steps 2000 --text FILE   of your own; again: 2000 more
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <string>

#include "training/character_model.h"

namespace {

namespace training = heed::training;

constexpr const char* kUsage =
    "example_train_text [MODEL.safetensors] [FLAGS]\n"
    "\n"
    "  MODEL.safetensors  where it is kept, and goes on from if it is there (model.safetensors)\n"
    "  --steps N          of training, 0 or more (200)\n"
    "  --every N          a line and a checkpoint every N steps (20)\n"
    "  --sample N         bytes that it writes at the end (300)\n"
    "  --text FILE        what it learns from (the GPL of Debian)\n";

struct Arguments {
  std::string checkpoint = "model.safetensors", text = "/usr/share/common-licenses/GPL-3";
  int steps = 200, every = 20, sample = 300;
  bool help = false;
};

int number(const std::string& flag, const std::string& word) {
  if (word.empty() || word.size() > 9 || word.find_first_not_of("0123456789") != word.npos) {
    throw heed::Error(flag + " takes a number, 0 or more and of at most 9 digits; found '" + word +
                      "'");
  }
  return std::stoi(word);
}

Arguments read(int count, char** words) {
  Arguments a;
  bool named = false;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const char* const next = i + 1 < count ? words[i + 1] : "";
    if (word == "--steps")
      a.steps = number(word, next), ++i;
    else if (word == "--every")
      a.every = number(word, next), ++i;
    else if (word == "--sample")
      a.sample = number(word, next), ++i;
    else if (word == "--text" && i + 1 == count)
      throw heed::Error("--text takes a file");
    else if (word == "--text")
      a.text = next, ++i;
    else if (word == "--help" || word == "-h")
      a.help = true;
    else if (word.starts_with("--"))
      throw heed::Error(word + " is none of --steps, --every, --sample, --text and --help");
    else if (named)
      throw heed::Error("unexpected argument '" + word + "'");
    else
      a.checkpoint = word, named = true;
  }
  if (a.every < 1) throw heed::Error("--every is 1 or more");
  if (!a.checkpoint.ends_with(".safetensors")) {
    throw heed::Error(a.checkpoint + ": the name must end in .safetensors");
  }
  return a;
}

/// A line for people: numbers, then a bar for each quarter of a nat.
void tell(long long step, double loss, double speed) {
  std::array<char, 32> told{};
  std::snprintf(told.data(), told.size(), "%.0f tokens/s", speed);
  const auto bars = static_cast<std::size_t>(std::isfinite(loss) ? std::min(4 * loss, 40.0) : 0);
  std::printf("step %5lld  loss %.3f  %-16s  %s\n", step, loss, told.data(),
              std::string(bars, '#').c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** words) try {
  const Arguments a = read(count, words);
  if (a.help) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  heed::check_writable(a.checkpoint);  // rather than after the first steps
  const std::string text = heed::read_text(a.text);
  if (text.empty()) throw heed::Error(a.text + " is empty");
  const bool goes_on = std::filesystem::exists(a.checkpoint);
  training::CharacterModel model =
      goes_on ? training::CharacterModel::load(a.checkpoint)
              : training::CharacterModel(training::vocabulary_of(text), {});
  const auto tokens = training::tokens_of(text, model.vocabulary());
  std::printf("%zu bytes of %zu kinds, %lld parameters, %s step %lld\n", text.size(),
              model.vocabulary().size(), static_cast<long long>(model.size()),
              goes_on ? "going on at" : "from", static_cast<long long>(model.steps()));
  auto begin = std::chrono::steady_clock::now();
  double loss = 0;
  for (int step = 1; step <= a.steps; ++step) {
    loss += model.train(tokens).mean;
    if (step % a.every != 0 && step != a.steps) continue;
    const int steps = step % a.every == 0 ? a.every : step % a.every;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const auto& o = model.options();
    tell(model.steps(), loss / steps,
         static_cast<double>(steps * o.batch * o.context) / seconds.count());
    model.save(a.checkpoint);
    begin = std::chrono::steady_clock::now();
    loss = 0;
  }
  const auto begun = std::min<std::ptrdiff_t>(16, std::ssize(tokens));
  std::vector<std::int64_t> written(tokens.begin(), tokens.begin() + begun);
  written = model.continued(std::move(written), a.sample, 0.7, 1);
  std::string sample;
  for (const std::int64_t token : written)
    sample += model.vocabulary()[static_cast<std::size_t>(token)];
  std::printf("--- a sample ---\n%s\n", sample.c_str());
} catch (const std::exception& error) {
  std::fprintf(stderr, "train_text: %s\n", error.what());
  return 1;
}

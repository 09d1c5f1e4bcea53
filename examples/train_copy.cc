// Two layers of attention learn to copy what followed the last occurrence of a token, and the
// inspector finds the two heads that do it: one that looks at the token before, one that looks for
// what it found.
//
//     example_train_copy          1500 steps
//     example_train_copy STEPS
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>

#include "heed/error.h"
#include "training/copy_task.h"

namespace {

constexpr const char* kUsage = "example_train_copy [STEPS]  of training, 0 or more (1500)\n";

int steps_of(const std::string& word) {
  if (word.empty() || word.size() > 9 || word.find_first_not_of("0123456789") != word.npos) {
    throw heed::Error("STEPS: expected a number, 0 or more and of at most 9 digits; found '" +
                      word + "'");
  }
  return std::stoi(word);
}

void draw(double loss) {  // a bar for each quarter of a nat
  std::printf("  %s\n", std::string(static_cast<std::size_t>(16 * loss / 4), '#').c_str());
}

void tell(const char* layer, const heed::training::CopyModel::Look& look) {
  for (std::size_t h = 0; h < look.previous.size(); ++h) {
    const char* kind = look.previous[h] > 0.7    ? "a previous-token head"
                       : look.induction[h] > 0.7 ? "an induction head"
                                                 : "neither of the two";
    std::printf(
        "%s head %zu: %2.0f %% of its weight on the token before, %2.0f %% of the answers found: "
        "%s\n",
        layer, h, 100 * look.previous[h], 100 * look.induction[h], kind);
  }
}

}  // namespace

int main(int count, char** words) try {
  const std::string first = count > 1 ? words[1] : "1500";
  if (first == "--help" || first == "-h") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (count > 2) throw heed::Error(std::string("unexpected argument '") + words[2] + "'");
  const int steps = steps_of(first);
  heed::training::CopyModel model({});
  const auto& task = model.options();
  std::printf("%lld tokens of %lld kinds, %lld parameters; guessing has a loss of ln %lld = 2.48\n",
              static_cast<long long>(task.length), static_cast<long long>(task.vocabulary),
              static_cast<long long>(model.size()), static_cast<long long>(task.vocabulary));
  for (int step = 0; step <= steps; ++step) {
    if (step % std::max(steps / 15, 1) == 0) {
      const heed::training::Loss loss = model.test();
      std::printf("step %4d  loss %.3f  right %3.0f %%", step, loss.mean, 100 * loss.accuracy);
      draw(loss.mean);
    }
    if (step < steps) (void)model.train();
  }
  const heed::training::Loss loss = model.test();
  tell("first layer,", model.look(0));
  tell("second layer,", model.look(1));
  if (loss.mean < 0.5) std::printf("learnt: a loss below 0.5\n");
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "train_copy: %s\n", error.what());
  return 1;
}

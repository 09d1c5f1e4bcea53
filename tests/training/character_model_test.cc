// The model of text: what it refuses, and that a checkpoint is all of it.
#include "training/character_model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace heed::training {
namespace {

const char* const kText = "the cat sat on the mat and the dog sat on the cat";

/// A rate and a share that no short decimal number is.
CharacterOptions small() {
  return {.d_model = 16,
          .layers = 1,
          .heads = 2,
          .context = 8,
          .batch = 2,
          .dropout = 0.2 / 3,
          .rate = 0.01 / 3};
}

template <typename F>
std::string error_of(F call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

TEST(character_model, has_the_bytes_of_a_text_as_numbers_in_order_on_every_cpu) {
  EXPECT_EQ(vocabulary_of("b\xC3\xA9 ab"), " ab\xA9\xC3");
}

TEST(character_model, goes_on_from_a_checkpoint_with_the_same_bits) {
  const std::string words = kText;
  CharacterModel whole(vocabulary_of(words), small());
  const auto tokens = tokens_of(words, whole.vocabulary());
  for (int step = 0; step < 3; ++step) (void)whole.train(tokens);
  const std::string path =
      testing::TempDir() + "character_model_" + std::to_string(getpid()) + ".safetensors";
  whole.save(path);
  CharacterModel part = CharacterModel::load(path);
  std::filesystem::remove(path);
  EXPECT_EQ(part.steps(), 3);
  EXPECT_EQ(part.vocabulary(), whole.vocabulary());
  EXPECT_EQ(part.options().rate, small().rate);
  EXPECT_EQ(part.options().dropout, small().dropout);
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(part.train(tokens).mean, whole.train(tokens).mean) << "step " << step;
  }
  EXPECT_EQ(part.continued(tokens, 20, 0.7, 1), whole.continued(tokens, 20, 0.7, 1));
}

TEST(character_model, refuses_text_that_it_cannot_learn) {
  CharacterModel model("abc", small());
  EXPECT_EQ(error_of([&] { (void)model.train(std::vector<std::int64_t>(8, 1)); }),
            "the text has 8 bytes; expected at least 9, the context and one more");
  EXPECT_EQ(error_of([&] { (void)tokens_of("abd", model.vocabulary()); }),
            "the text has byte 64, which the model does not know");
}

}  // namespace
}  // namespace heed::training

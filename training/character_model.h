// A small model of text, byte by byte: layers of causal attention and of a map with ReLU, each
// behind a normalisation, in a residual stream.
#pragma once

#include <heed/modules_io.h>

#include <string>
#include <string_view>

#include "training/learning.h"

namespace heed::training {

struct CharacterOptions {
  std::int64_t d_model = 96, layers = 2, heads = 4, context = 96, batch = 12;
  double dropout = 0.05;  ///< of weights of attention
  double rate = 2e-3;
  std::uint64_t seed = 1;
};

/// The bytes that occur in a text, each once, ascending.
[[nodiscard]] std::string vocabulary_of(std::string_view text);

/// The tokens of a text; throws heed::Error for a byte that the vocabulary lacks.
[[nodiscard]] std::vector<std::int64_t> tokens_of(std::string_view text,
                                                  std::string_view vocabulary);

/// A token drawn from softmax(logits / temperature).
[[nodiscard]] std::int64_t drawn_token(std::span<const float> logits, double temperature,
                                       Random& random);

class CharacterModel {
 public:
  CharacterModel(std::string vocabulary, const CharacterOptions& options);

  /// Forward, backward, a step downhill on pieces of the text. Which pieces, and which weights are
  /// dropped, follow from the seed and the number of the step alone: a model that was saved goes on
  /// with the bits of one that was not.
  Loss train(std::span<const std::int64_t> text);

  /// `count` more tokens, drawn with probabilities softmax(logits / temperature).
  std::vector<std::int64_t> continued(std::vector<std::int64_t> tokens, int count,
                                      double temperature, std::uint64_t seed);

  /// Parameters, Adam's moments, the number of steps, vocabulary and options.
  void save(const std::string& path);
  /// Throws heed::Error if the file is of another model, or if its metadata do not fit its tensors
  /// or hold what is no number, or none that a model can have.
  static CharacterModel load(const std::string& path);

  [[nodiscard]] const std::string& vocabulary() const { return vocabulary_; }
  [[nodiscard]] const CharacterOptions& options() const { return options_; }
  [[nodiscard]] std::int64_t steps() const { return adam_.steps(); }
  [[nodiscard]] std::int64_t size() const { return adam_.size(); }

 private:
  struct Layer {
    Layer(const CharacterOptions& options, std::uint64_t seed);

    LayerNorm before_attention, before_map;
    MultiHeadAttention attention;
    Linear up, down;
    std::vector<float> x, normal, attended, middle, normal_middle, wide, narrow;  // [rows, ..]
    SavedAttention saved;
  };

  void forward(std::span<const std::int64_t> tokens, std::int64_t batch, std::uint64_t seed);
  void layer_forward(Layer& layer, std::int64_t batch, std::uint64_t seed);
  void backward(std::span<const std::int64_t> tokens, std::int64_t batch);
  void layer_backward(Layer& layer, std::int64_t batch);
  std::vector<Parameter> parameters();

  std::string vocabulary_;
  CharacterOptions options_;
  Embedding tokens_, places_;
  std::vector<Layer> layers_;
  LayerNorm last_;
  Linear logits_;
  Adam adam_;
  std::vector<std::int64_t> place_;
  std::vector<float> stream_, normal_, out_, d_stream_, d_rows_, d_wide_;
};

}  // namespace heed::training

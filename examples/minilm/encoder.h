// BERT's encoder and a mean over its rows: tokens of sentences as vectors of length 1.
#pragma once

#include <heed/heed.h>
#include <heed/io.h>

#include <cstdint>
#include <span>
#include <vector>

#include "examples/minilm/model_folder.h"

namespace minilm {

using Tokens = std::vector<std::int64_t>;

/// y = gain (x - mean) / sqrt(variance + epsilon) + bias over each row.
class Normalisation {
 public:
  Normalisation(std::int64_t size, double epsilon);

  void apply(std::span<float> row) const;
  [[nodiscard]] std::vector<heed::Parameter> parameters();

 private:
  double epsilon_;
  std::vector<float> gain_, bias_;
};

class Encoder {
 public:
  /// Takes the parameters from a file that has them by BERT's names; other tensors are left alone.
  /// Throws heed::Error, which names the tensor and its shapes, if one is missing or does not fit.
  Encoder(const heed::TensorFile& file, const EncoderSizes& sizes);

  /// The embeddings [sentences, d_model] of one batch, each of 1 .. positions tokens, these below
  /// the size of the vocabulary. Rows of `padding` fill sentences up to the longest; no bit of an
  /// embedding depends on them, nor on the other sentences.
  ///
  ///     x = norm(word[token] + position[place] + type[0])           [B, T, d_model]
  ///     x = norm(x + attention(x)),  x = norm(x + down(gelu(up(x))))   for each layer
  ///     e = m / |m|,  m = mean of the sentence's own rows of x
  [[nodiscard]] std::vector<float> embed(std::span<const Tokens> batch, std::int64_t padding) const;

  [[nodiscard]] std::int64_t d_model() const { return sizes_.d_model; }

 private:
  struct Layer {
    explicit Layer(const EncoderSizes& sizes);
    [[nodiscard]] std::vector<heed::Parameter> parameters();

    heed::MultiHeadAttention attention;
    Normalisation after_attention;
    heed::Linear up, down;
    Normalisation after_map;
  };

  [[nodiscard]] std::vector<float> first_rows(std::span<const std::int64_t> tokens,
                                              std::int64_t length) const;

  EncoderSizes sizes_;
  std::vector<float> words_, places_, types_;
  Normalisation first_;
  std::vector<Layer> layers_;
};

}  // namespace minilm

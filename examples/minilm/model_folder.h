// What the folder of a model says in its small files: the vocabulary, and the sizes of the encoder.
#pragma once

#include <cstdint>
#include <string>

namespace minilm {

/// A model of the family BERT, from config.json.
struct EncoderSizes {
  std::int64_t vocabulary = 0, positions = 0, types = 0;
  std::int64_t d_model = 0, layers = 0, heads = 0, d_wide = 0;
  double epsilon = 0;  ///< of the normalisations
};

struct ModelFolder {
  std::string vocabulary{};  ///< vocab.txt
  EncoderSizes sizes{};
  std::int64_t longest = 0;  ///< tokens of a sentence, [CLS] and [SEP] among them
};

/// Reads config.json and vocab.txt and, where they are there, sentence_bert_config.json
/// (max_seq_length; else as many tokens as there are positions), tokenizer_config.json and
/// 1_Pooling/config.json. Throws heed::Error, which names the file, for what is missing and for a
/// model that this program would compute wrongly: another activation than the exact GELU, positions
/// that are not learnt, cased letters, accents that are kept, pooling other than the mean.
[[nodiscard]] ModelFolder read_model_folder(const std::string& folder);

}  // namespace minilm

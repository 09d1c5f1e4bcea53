// WordPiece: a text as tokens of a vocabulary, cut as BERT cuts it (uncased).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace minilm {

class WordPiece {
 public:
  /// `vocabulary`: a token a line; the first line is token 0. Pieces that go on with a word begin
  /// with "##". Throws heed::Error unless [PAD], [UNK], [CLS] and [SEP] are there, and each token
  /// once.
  explicit WordPiece(std::string_view vocabulary);

  /// [CLS], the tokens of the text, [SEP]: `longest` at most, the last ones left out. A word that
  /// the pieces cannot spell, or of more than 100 characters, is [UNK]. "[SEP]" and the like in a
  /// text are those tokens. Throws heed::Error if the text is not UTF-8.
  [[nodiscard]] std::vector<std::int64_t> tokens_of(std::string_view text,
                                                    std::int64_t longest) const;

  [[nodiscard]] const std::string& name_of(std::int64_t token) const {
    return names_[static_cast<std::size_t>(token)];
  }
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(names_.size()); }
  [[nodiscard]] std::int64_t padding() const { return tokens_.at("[PAD]"); }

 private:
  void append_text(std::u32string_view text, std::vector<std::int64_t>& tokens) const;
  void append_word(std::u32string_view word, std::vector<std::int64_t>& tokens) const;

  std::vector<std::string> names_;
  std::unordered_map<std::string, std::int64_t> tokens_;
};

}  // namespace minilm

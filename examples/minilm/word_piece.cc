// Words of a text, then the longest known pieces of each word from the left.
#include "examples/minilm/word_piece.h"

#include <heed/error.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "examples/minilm/unicode.h"

namespace minilm {
namespace {

struct Special {
  const char* name;
  std::u32string_view text;
};
constexpr std::array<Special, 5> kSpecial{{{"[PAD]", U"[PAD]"},
                                           {"[UNK]", U"[UNK]"},
                                           {"[CLS]", U"[CLS]"},
                                           {"[SEP]", U"[SEP]"},
                                           {"[MASK]", U"[MASK]"}}};
constexpr std::size_t kLongestWord = 100;  // characters, after folding; BERT's own limit

/// Words in lower case and without marks. Spaces end a word; ideographs and punctuation are words.
std::vector<std::u32string> words_of(std::u32string_view text) {
  std::vector<std::u32string> words;
  std::u32string word, folded;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(word);
    word.clear();
  };
  for (const char32_t c : text) {
    if (is_dropped(c)) continue;
    if (is_space(c)) {
      end_word();
      continue;
    }
    folded.clear();
    append_folded(c, folded);
    if (is_ideograph(c)) {
      end_word();
      words.push_back(folded);
      continue;
    }
    for (const char32_t f : folded) {  // U+037E, the Greek question mark, is folded to a semicolon
      const bool apart = is_punctuation(f);
      if (apart) end_word();
      word += f;
      if (apart) end_word();
    }
  }
  end_word();
  return words;
}

}  // namespace

WordPiece::WordPiece(std::string_view vocabulary) {
  while (!vocabulary.empty()) {
    const std::size_t end = std::min(vocabulary.find('\n'), vocabulary.size());
    std::string name(vocabulary.substr(0, end));
    if (!name.empty() && name.back() == '\r') name.pop_back();
    const bool is_new = tokens_.emplace(name, size()).second;
    if (!is_new) {
      throw heed::Error("vocabulary: line " + std::to_string(size() + 1) + " is '" + name +
                        "', as line " + std::to_string(tokens_[name] + 1) +
                        " is; expected each token once");
    }
    names_.push_back(std::move(name));
    vocabulary.remove_prefix(std::min(end + 1, vocabulary.size()));
  }
  for (const char* needed : {"[PAD]", "[UNK]", "[CLS]", "[SEP]"}) {
    if (tokens_.count(needed) == 0) {
      throw heed::Error("vocabulary: no line is " + std::string(needed) + "; expected one among " +
                        std::to_string(size()) + " lines");
    }
  }
}

std::vector<std::int64_t> WordPiece::tokens_of(std::string_view text, std::int64_t longest) const {
  if (longest < 2) {
    throw heed::Error("at most " + std::to_string(longest) + " tokens; expected 2 or more");
  }
  const std::u32string points = code_points(text);
  std::u32string_view rest = points;
  std::vector<std::int64_t> tokens{tokens_.at("[CLS]")};
  for (std::size_t i = 0; i < rest.size();) {
    const auto* const special = std::find_if(kSpecial.begin(), kSpecial.end(), [&](auto& s) {
      return rest.substr(i).starts_with(s.text) && tokens_.count(s.name) > 0;
    });
    if (special == kSpecial.end()) {
      ++i;
      continue;
    }
    append_text(rest.substr(0, i), tokens);
    tokens.push_back(tokens_.at(special->name));
    rest.remove_prefix(i + special->text.size());
    i = 0;
  }
  append_text(rest, tokens);
  tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(longest) - 1));
  tokens.push_back(tokens_.at("[SEP]"));
  return tokens;
}

void WordPiece::append_text(std::u32string_view text, std::vector<std::int64_t>& tokens) const {
  for (const std::u32string& word : words_of(text)) append_word(word, tokens);
}

void WordPiece::append_word(std::u32string_view word, std::vector<std::int64_t>& tokens) const {
  const std::size_t before = tokens.size();
  const auto unknown = [&] {
    tokens.resize(before);
    tokens.push_back(tokens_.at("[UNK]"));
  };
  if (word.size() > kLongestWord) return unknown();
  std::string letters;               // UTF-8 of the word
  std::vector<std::size_t> ends{0};  // where each character ends there
  for (const char32_t c : word) {
    letters += utf8(c);
    ends.push_back(letters.size());
  }
  for (std::size_t from = 0; from < word.size();) {
    const std::string prefix = from == 0 ? "" : "##";
    auto piece = tokens_.end();
    std::size_t to = word.size();
    for (; to > from; --to) {
      piece = tokens_.find(prefix + letters.substr(ends[from], ends[to] - ends[from]));
      if (piece != tokens_.end()) break;
    }
    if (piece == tokens_.end()) return unknown();
    tokens.push_back(piece->second);
    from = to;
  }
}

}  // namespace minilm

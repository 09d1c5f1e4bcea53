// Reads UTF-8, and the tables of unicode_tables.inc.
#include "examples/minilm/unicode.h"

#include <heed/error.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace minilm {
namespace {

#include "examples/minilm/unicode_tables.inc"

/// Takes what stands before the separator, or all, from the front of the text.
std::string_view take(std::string_view& text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return taken;
}

char32_t hexadecimal(std::string_view digits) {
  std::uint32_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  return number;
}

/// "9-a 20": words between blanks and ends of lines.
std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    std::string_view line = take(text, '\n');
    while (!line.empty()) {
      if (const std::string_view word = take(line, ' '); !word.empty()) words.push_back(word);
    }
  }
  return words;
}

class Ranges {
 public:
  explicit Ranges(std::string_view table) {
    for (std::string_view word : words_of(table)) {
      const char32_t first = hexadecimal(take(word, '-'));
      ranges_.emplace_back(first, word.empty() ? first : hexadecimal(word));
    }
  }

  [[nodiscard]] bool contain(char32_t c) const {
    const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), c,
                                        [](char32_t a, const auto& r) { return a < r.first; });
    return after != ranges_.begin() && c <= std::prev(after)->second;
  }

 private:
  std::vector<std::pair<char32_t, char32_t>> ranges_;  // ascending, ends included
};

/// "61 c0 c1; 9c7+9be 9cb;": what others become, then those others.
std::unordered_map<char32_t, std::u32string> folds_of(std::string_view table) {
  std::unordered_map<char32_t, std::u32string> folds;
  std::u32string to;
  bool begins = true;
  for (std::string_view word : words_of(table)) {
    const bool ends = word.back() == ';';
    if (ends) word.remove_suffix(1);
    if (begins) {
      to.clear();
      while (!word.empty()) to += hexadecimal(take(word, '+'));
    } else {
      folds[hexadecimal(word)] = to;
    }
    begins = ends;
  }
  return folds;
}

/// Bytes of the code point that this byte begins; 0: none does.
std::size_t length_at(unsigned char byte) {
  if (byte < 0x80) return 1;
  if (byte >= 0xc2 && byte < 0xe0) return 2;
  if (byte >= 0xe0 && byte < 0xf0) return 3;
  return byte >= 0xf0 && byte < 0xf5 ? 4 : 0;
}

}  // namespace

std::u32string code_points(std::string_view utf8) {
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // shorter forms are not UTF-8
  std::u32string points;
  for (std::size_t i = 0; i < utf8.size();) {
    const auto first = static_cast<unsigned char>(utf8[i]);
    const std::size_t length = length_at(first);
    bool good = length > 0 && i + length <= utf8.size();
    char32_t c = length < 2 ? first : first & (0x7fU >> length);
    for (std::size_t n = 1; good && n < length; ++n) {
      const auto byte = static_cast<unsigned char>(utf8[i + n]);
      good = (byte & 0xc0U) == 0x80;
      c = c << 6U | (byte & 0x3fU);
    }
    if (!good || c < kLeast[length] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) {
      throw heed::Error("byte " + std::to_string(i) + " is not UTF-8");
    }
    points += c;
    i += length;
  }
  return points;
}

std::string utf8(char32_t c) {
  const auto byte = [c](unsigned shift, unsigned mask, unsigned mark) {
    return static_cast<char>(mark | (c >> shift & mask));
  };
  if (c < 0x80) return {byte(0, 0x7f, 0)};
  if (c < 0x800) return {byte(6, 0x1f, 0xc0), byte(0, 0x3f, 0x80)};
  if (c < 0x10000) return {byte(12, 0x0f, 0xe0), byte(6, 0x3f, 0x80), byte(0, 0x3f, 0x80)};
  return {byte(18, 0x07, 0xf0), byte(12, 0x3f, 0x80), byte(6, 0x3f, 0x80), byte(0, 0x3f, 0x80)};
}

bool is_dropped(char32_t c) {
  static const Ranges kRanges(kDropped);
  return kRanges.contain(c);
}

bool is_space(char32_t c) {
  static const Ranges kRanges(kSpaces);
  return kRanges.contain(c);
}

bool is_ideograph(char32_t c) {
  static const Ranges kRanges(kIdeographs);
  return kRanges.contain(c);
}

bool is_punctuation(char32_t c) {
  static const Ranges kRanges(kPunctuation);
  return kRanges.contain(c);
}

void append_folded(char32_t c, std::u32string& text) {
  static const std::unordered_map<char32_t, std::u32string> kFolded = folds_of(kFolds);
  if (c >= 0xac00 && c < 0xd7a4) {
    // A Hangul syllable: leading consonant, vowel, perhaps a trailing consonant (Unicode 3.12).
    const char32_t index = c - 0xac00, trailing = index % 28;
    text += 0x1100 + index / 588;
    text += 0x1161 + index % 588 / 28;
    if (trailing > 0) text += 0x11a7 + trailing;
  } else if (const auto found = kFolded.find(c); found != kFolded.end()) {
    text += found->second;
  } else {
    text += c;
  }
}

}  // namespace minilm

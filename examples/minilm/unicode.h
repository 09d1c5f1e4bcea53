// Unicode as BERT's tokenizer sees it: which characters it drops, puts apart, or takes for others.
#pragma once

#include <string>
#include <string_view>

namespace minilm {

/// The code points of UTF-8. Throws heed::Error at the first byte that is none.
[[nodiscard]] std::u32string code_points(std::string_view utf8);

/// UTF-8 of one code point.
[[nodiscard]] std::string utf8(char32_t c);

[[nodiscard]] bool is_dropped(char32_t c);  ///< controls, nonspacing marks, private use
[[nodiscard]] bool is_space(char32_t c);
[[nodiscard]] bool is_ideograph(char32_t c);  ///< CJK: a word of its own
[[nodiscard]] bool is_punctuation(char32_t c);

/// Appends the character in lower case and without its marks: U+00C9 as "e", a Hangul syllable as
/// its letters.
void append_folded(char32_t c, std::u32string& text);

}  // namespace minilm

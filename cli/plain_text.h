// Text from files made fit to be shown: tokens are somebody else's, and may hold anything.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace heed::cli {

constexpr std::size_t kWhole = std::numeric_limits<std::size_t>::max();

/// Valid UTF-8 on one line: controls, and what turns the direction of writing or is not seen, as
/// "\n" or "\u202e", but not the joiners and selectors of variants that scripts and emoji need;
/// bytes that are no UTF-8 as U+FFFD. Of more than `most` characters the last one is "…".
[[nodiscard]] std::string plain_text(std::string_view text, std::size_t most = kWhole);

/// plain_text for pictures, whose letters differ in width: of what takes more room than `most`
/// letters in most fonts the last is "…".
[[nodiscard]] std::string drawn_text(std::string_view text, std::size_t most);

/// The same with bytes that are no UTF-8 as "\xff", and joiners and selectors escaped, with and
/// without which names look alike: a name or a message, harmless and on one line.
/// Applied twice it changes nothing.
[[nodiscard]] std::string one_line(std::string_view text);

/// The same of at most `most` bytes: of more the two ends stay, with "..." between them.
[[nodiscard]] std::string one_short_line(std::string_view text, std::size_t most);

/// A name out of a file, for messages: as one_line writes it, cut after 80 bytes.
[[nodiscard]] std::string name_text(std::string_view name);

/// How many characters (code points) the text has.
[[nodiscard]] std::size_t length_of(std::string_view text);

/// The text and as many spaces as make it `width` characters long.
[[nodiscard]] std::string filled_to(std::string text, std::size_t width);

/// What each `end` ends, and what is left behind the last one, unless that is nothing.
[[nodiscard]] std::vector<std::string_view> parts_of(std::string_view text, char end);

/// Words set into lines of at most `width` characters, all but the first begun with `indent`.
[[nodiscard]] std::string paragraph(const std::string& text, std::size_t width,
                                    const std::string& indent = {});

}  // namespace heed::cli

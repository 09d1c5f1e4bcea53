// What the reader sees: width and colours of a terminal, bars, lines, sizes, and how output ends.
#pragma once

#include <cstdint>
#include <string>

namespace heed::cli {

/// Which colours a terminal understands beyond the sixteen that all of them have.
enum class ColourDepth : std::uint8_t { none, indexed, full };

/// What a terminal's text stands on.
enum class Ground : std::uint8_t { dark, light };

/// What may be written to a file descriptor.
struct Terminal {
  bool is_terminal = false;
  int width = 80;        ///< columns; 80 where there is no terminal
  bool cursor = false;   ///< a line can be drawn again: a terminal, and not TERM=dumb
  bool colour = false;   ///< a terminal, and neither NO_COLOR nor TERM=dumb
  bool unicode = false;  ///< the locale's encoding is UTF-8
  /// Of maps. none unless `colour`; by COLORTERM (truecolor, 24bit) and TERM (-direct, -256color).
  ColourDepth depth = ColourDepth::none;
  Ground ground = Ground::dark;  ///< light if COLORFGBG ends in 7 or 15
};
[[nodiscard]] Terminal terminal_of(int descriptor);

/// A bar of round(share * cells) cells; in UTF-8 with a resolution of an eighth.
[[nodiscard]] std::string bar(double share, int cells, bool unicode);

/// The text between two escape sequences if `colour`, else the text. "1" is bold, "36" cyan.
[[nodiscard]] std::string styled(const std::string& text, const char* style, bool colour);

/// printf into a string.
[[nodiscard]] [[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

/// Whether a number that was printed has rounded to 0, as "-0.0 %" has.
[[nodiscard]] bool reads_as_zero(const std::string& number);

/// "-0.0 %" as "0.0 %": a number that rounds to 0 has no sign.
[[nodiscard]] std::string without_sign_of_zero(std::string number);

/// The shortest digits that are this number and no other: "0.99999999", "1e+308".
[[nodiscard]] std::string exact_digits(double number);

/// "3.1 GiB"
[[nodiscard]] std::string human_bytes(double bytes);

/// "12.3 ms"
[[nodiscard]] std::string human_seconds(double seconds);

/// Writes to stdout. What cannot be written is found by finish_output.
void print(const std::string& text);

/// Flushes stdout; throws Failure with ExitCode::io if anything could not be written.
void finish_output();

/// Writes one line to stderr, its middle left out where it has more than 1024 bytes.
void print_message(const std::string& text);

}  // namespace heed::cli

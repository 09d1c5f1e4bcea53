// Terminals, bars, lines.
#include "terminal.h"

#include <langinfo.h>
#include <locale.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "exit_codes.h"
#include "plain_text.h"
#include "signals.h"

namespace heed::cli {
namespace {

// The reason of the first write to stdout that failed. Text beyond the buffer is written at once,
// and a later flush, with nothing left to write, would have no reason to give.
int write_error = 0;

// The environment's encoding. The process's own locale is left as it is: numbers keep their point
// whatever the language, and the status line's thread may ask, which setlocale() does not allow.
bool utf8_locale() {
  const locale_t locale = newlocale(LC_CTYPE_MASK, "", nullptr);
  if (locale == nullptr) return false;
  const bool utf8 = std::string_view(nl_langinfo_l(CODESET, locale)) == "UTF-8";
  freelocale(locale);
  return utf8;
}

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

ColourDepth depth_of(std::string_view kind) {
  const std::string_view promised = variable("COLORTERM");
  const auto ends_with = [kind](std::string_view end) {
    return kind.size() >= end.size() && kind.substr(kind.size() - end.size()) == end;
  };
  if (promised == "truecolor" || promised == "24bit" || ends_with("-direct")) {
    return ColourDepth::full;
  }
  return ends_with("-256color") ? ColourDepth::indexed : ColourDepth::none;
}

// rxvt, Konsole and others set "foreground;background" as numbers of the sixteen colours.
Ground ground_of_environment() {
  const std::string_view colours = variable("COLORFGBG");
  const std::string_view last = colours.substr(colours.rfind(';') + 1);
  return colours.empty() || (last != "7" && last != "15") ? Ground::dark : Ground::light;
}

}  // namespace

Terminal terminal_of(int descriptor) {
  Terminal terminal;
  terminal.unicode = utf8_locale();
  terminal.is_terminal = isatty(descriptor) == 1;
  if (!terminal.is_terminal) return terminal;
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) terminal.width = size.ws_col;
  const std::string_view kind = variable("TERM");
  terminal.cursor = kind != "dumb";
  terminal.colour = terminal.cursor && variable("NO_COLOR").empty() && !kind.empty();
  if (terminal.colour) terminal.depth = depth_of(kind);
  terminal.ground = ground_of_environment();
  return terminal;
}

std::string bar(double share, int cells, bool unicode) {
  const double length = std::clamp(share, 0.0, 1.0) * cells;
  if (!unicode) return std::string(static_cast<std::size_t>(std::lround(length)), '#');
  constexpr std::array<const char*, 8> kEighths{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto eighths = static_cast<std::size_t>(std::lround(8.0 * length));
  std::string text;
  for (std::size_t i = 0; i < eighths / 8; ++i) text += "█";
  return text + kEighths[eighths % 8];
}

std::string styled(const std::string& text, const char* style, bool colour) {
  return colour ? "\033[" + std::string(style) + "m" + text + "\033[0m" : text;
}

std::string format(const char* pattern, ...) {
  std::va_list arguments;
  va_start(arguments, pattern);
  std::va_list again;
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, pattern, arguments);
  va_end(arguments);
  std::string text(static_cast<std::size_t>(std::max(length, 0)), '\0');
  std::vsnprintf(text.data(), text.size() + 1, pattern, again);
  va_end(again);
  return text;
}

bool reads_as_zero(const std::string& number) {
  return number.find('0') != std::string::npos &&
         number.find_first_of("123456789") == std::string::npos;
}

std::string without_sign_of_zero(std::string number) {
  if (number.starts_with('-') && reads_as_zero(number)) number.erase(0, 1);
  return number;
}

std::string exact_digits(double number) {
  if (std::fabs(number) < 1e15 && number == std::trunc(number)) return format("%.0f", number);
  std::array<char, 32> digits{};  // -2.2250738585072014e-308 has 24
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr};
}

std::string human_bytes(double bytes) {
  constexpr std::array<const char*, 5> kUnits{"bytes", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024.0 && unit + 1 < kUnits.size()) {
    bytes /= 1024.0;
    ++unit;
  }
  return format(unit == 0 ? "%.0f %s" : "%.1f %s", bytes, kUnits[unit]);
}

std::string human_seconds(double seconds) {
  if (seconds < 1e-3) return format("%.1f us", seconds * 1e6);
  if (seconds < 1.0) return format("%.2f ms", seconds * 1e3);
  return format("%.2f s", seconds);
}

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() || write_error != 0) return;
  write_error = errno;
}

namespace {

[[noreturn]] void end_by_broken_pipe() {
  struct sigaction now {};
  const bool ignored = sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
  if (ignored) std::_Exit(static_cast<int>(ExitCode::signal_base) + SIGPIPE);
  end_by(SIGPIPE);
}

}  // namespace

void finish_output() {
  if (std::fflush(stdout) != 0 && write_error == 0) write_error = errno;
  if (write_error == 0 && std::ferror(stdout) == 0) return;
  if (write_error == EPIPE) end_by_broken_pipe();
  const std::string why = write_error == 0 ? "" : ": " + std::string(std::strerror(write_error));
  throw Failure(ExitCode::io, "cannot write to standard output" + why);
}

void print_message(const std::string& text) {
  // A message begins with who complains and of what, and ends with what came or what helps. Words
  // of the call stand between, and may have as many bytes as the system lets them.
  constexpr std::size_t kMost = 1024;
  const std::string line = one_short_line(text, kMost) + "\n";
  wipe_status_line();
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace heed::cli

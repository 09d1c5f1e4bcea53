// Messages about files: one line each, whatever bytes a file or its name holds.
#include "io/messages.h"

#include <system_error>

#include "heed/error.h"

namespace heed::io {
namespace {

struct Character {
  char32_t code = 0;
  std::size_t bytes = 0;  // 0: not UTF-8
};

/// The character that starts at `at`, by table 3-7 of the Unicode standard: no overlong forms, no
/// surrogates, nothing above U+10FFFF.
Character character_at(std::string_view text, std::size_t at) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 0;
  if (bytes == 0 || lead > 0xF4 || text.size() - at < bytes) return {};
  char32_t code = lead & (0x7FU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return {};
    code = code << 6U | (byte(i) & 0x3FU);
  }
  constexpr char32_t kLowest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLowest[bytes] || (code >= 0xD800 && code < 0xE000) || code > 0x10FFFF) return {};
  return {code, bytes};
}

/// Controls, line separators, changes of direction, and what the Unicode standard lets a font leave
/// out (Default_Ignorable_Code_Point).
bool prints(char32_t code) noexcept {
  struct Range {
    char32_t first, last;
  };
  constexpr Range kUnseen[] = {
      {0, 0x1F},        {0x7F, 0x9F},       {0xAD, 0xAD},       {0x34F, 0x34F},    {0x61C, 0x61C},
      {0x115F, 0x1160}, {0x17B4, 0x17B5},   {0x180B, 0x180F},   {0x200B, 0x200F},  {0x2028, 0x202E},
      {0x2060, 0x206F}, {0x3164, 0x3164},   {0xFE00, 0xFE0F},   {0xFEFF, 0xFEFF},  {0xFFA0, 0xFFA0},
      {0xFFF0, 0xFFFB}, {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF}};
  for (const Range& range : kUnseen) {
    if (code >= range.first && code <= range.last) return false;
  }
  return (code & 0xFFFEU) != 0xFFFE;
}

/// The number after a prefix that tells how many digits it has.
std::string in_hexadecimal(std::string_view prefix, std::uint32_t number, int digits) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string text(prefix);
  while (digits-- > 0) text += kHex[number >> (4U * static_cast<unsigned>(digits)) & 15U];
  return text;
}

/// A character that does not print, as C++ and Python write it.
std::string escape(char32_t code) {
  if (code == '\n') return "\\n";
  if (code == '\t') return "\\t";
  if (code < 0x80) return in_hexadecimal("\\x", code, 2);
  return code < 0x10000 ? in_hexadecimal("\\u", code, 4) : in_hexadecimal("\\U", code, 8);
}

}  // namespace

std::string escaped(std::string_view text, std::size_t limit) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (at >= limit) return result + "...";
    const Character character = character_at(text, at);
    const std::size_t bytes = character.bytes == 0 ? 1 : character.bytes;
    if (text[at] == '\\') {
      result += "\\\\";
    } else if (character.bytes == 0) {
      result += in_hexadecimal("\\x", static_cast<unsigned char>(text[at]), 2);
    } else if (prints(character.code)) {
      result += text.substr(at, bytes);
    } else {
      result += escape(character.code);
    }
    at += bytes;
  }
  return result;
}

std::string in_quotes(std::string_view text) { return '"' + escaped(text, 80) + '"'; }

std::string label_of(std::string_view path) {
  constexpr std::size_t kMost = 256;
  constexpr std::string_view kGap = "...";
  std::string text = escaped(path);
  if (text.size() <= kMost) return text;
  const auto inside_character = [&text](std::size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80;
  };
  std::size_t head = (kMost - kGap.size()) / 2;
  std::size_t tail = text.size() - head;
  while (inside_character(head)) --head;
  while (inside_character(tail)) ++tail;
  return text.replace(head, tail - head, kGap);
}

bool is_utf8(std::string_view text) noexcept {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = character_at(text, at).bytes;
    if (bytes == 0) return false;
    at += bytes;
  }
  return true;
}

std::string count_of(std::int64_t count, std::string_view noun) {
  return std::to_string(count) + ' ' + std::string(noun) + (count == 1 ? "" : "s");
}

void refuse(const std::string& label, const std::string& expected, const std::string& found,
            std::int64_t offset) {
  throw Error(ErrorKind::format, label + ": expected " + expected + ", found " + found +
                                     ", at offset " + std::to_string(offset));
}

void fail(const std::string& label, const std::string& cannot, int error_number) {
  throw Error(ErrorKind::io,
              label + ": cannot " + cannot + ": " + std::system_category().message(error_number));
}

}  // namespace heed::io

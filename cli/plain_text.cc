// Decoding UTF-8 as the Unicode standard wants it, and what of it is not shown as it is.
#include "plain_text.h"

#include <algorithm>
#include <cstdint>

namespace heed::cli {
namespace {

constexpr std::uint32_t kBroken = 0xfffd;

struct Decoded {
  std::uint32_t point;
  std::size_t bytes;
};

// One code point; a byte that begins none is U+FFFD, and so are surrogates and overlong forms.
Decoded decode(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  if (first < 0x80) return {first, 1};
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return {kBroken, 1};
  std::uint32_t point = first & (0xffU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xc0U) != 0x80U) return {kBroken, 1};
    point = point << 6U | (next & 0x3fU);
  }
  const bool overlong = (bytes == 3 && point < 0x800) || (bytes == 4 && point < 0x10000);
  if (overlong || (point >= 0xd800 && point < 0xe000) || point > 0x10ffff) return {kBroken, 1};
  return {point, bytes};
}

struct Range {
  std::uint32_t first, last;
};

template <std::size_t kCount>
bool is_in(const Range (&ranges)[kCount], std::uint32_t point) {
  return std::any_of(ranges, ranges + kCount, [point](const Range& range) {
    return point >= range.first && point <= range.last;
  });
}

// Controls (C0, DEL, C1), line separators, what turns the direction of writing, what a font may
// leave out (Default_Ignorable_Code_Point of Unicode) but for invisible parts, and non-characters.
bool is_shown(std::uint32_t point) {
  constexpr Range kUnseen[] = {
      {0, 0x1f},          {0x7f, 0x9f},       {0xad, 0xad},      {0x61c, 0x61c},
      {0x115f, 0x1160},   {0x17b4, 0x17b5},   {0x180e, 0x180e},  {0x200b, 0x200b},
      {0x200e, 0x200f},   {0x2028, 0x202e},   {0x2060, 0x206f},  {0x3164, 0x3164},
      {0xfeff, 0xfeff},   {0xffa0, 0xffa0},   {0xfff0, 0xfffb},  {0x1bca0, 0x1bca3},
      {0x1d173, 0x1d17a}, {0xe0000, 0xe00ff}, {0xe01f0, 0xe0fff}};
  return !is_in(kUnseen, point) && (point & 0xfffeU) != 0xfffe;
}

// Joiners and selectors of variants: scripts and emoji need them, but names with and without look
// alike.
bool is_invisible_part(std::uint32_t point) {
  constexpr Range kInvisibleParts[] = {{0x34f, 0x34f},   {0x180b, 0x180d}, {0x180f, 0x180f},
                                       {0x200c, 0x200d}, {0xfe00, 0xfe0f}, {0xe0100, 0xe01ef}};
  return is_in(kInvisibleParts, point);
}

// Without format(), which takes several times as long: a token may be a hundred thousand controls.
std::string in_hexadecimal(std::string prefix, std::uint32_t number, unsigned digits) {
  while (digits-- > 0) prefix += "0123456789abcdef"[number >> (4 * digits) & 15U];
  return prefix;
}

// As heed's library writes them into its messages.
std::string escape(std::uint32_t point) {
  if (point == '\n') return "\\n";
  if (point == '\t') return "\\t";
  if (point < 0x80) return in_hexadecimal("\\x", point, 2);
  return point < 0x10000 ? in_hexadecimal("\\u", point, 4) : in_hexadecimal("\\U", point, 8);
}

// Is the byte at the front no UTF-8? U+FFFD itself is.
bool is_broken(const Decoded& one) { return one.point == kBroken && one.bytes == 1; }

std::string escaped(std::string_view text, std::size_t limit) {
  std::string line;
  for (std::size_t at = 0; at < text.size();) {
    if (at >= limit) return line + "...";
    const Decoded one = decode(text.substr(at));
    if (is_broken(one)) {
      line += in_hexadecimal("\\x", static_cast<unsigned char>(text[at]), 2);
    } else if (!is_shown(one.point) || is_invisible_part(one.point)) {
      line += escape(one.point);
    } else {
      line += text.substr(at, one.bytes);
    }
    at += one.bytes;
  }
  return line;
}

/// Text that can be shown, of `most` letters at most; `halves` says how many half letters a
/// character takes.
template <typename Halves>
std::string cut(std::string_view text, std::size_t most, const Halves& halves) {
  std::string plain;
  std::size_t length = 0;
  while (!text.empty()) {
    const Decoded one = decode(text);
    std::string shown(text.substr(0, one.bytes));
    if (one.point == kBroken) {
      shown = "\xef\xbf\xbd";
    } else if (!is_shown(one.point)) {
      shown = escape(one.point);
    }
    const std::size_t added = halves(one.point, shown);
    const bool last = text.size() == one.bytes;
    if (most != kWhole && length + added > 2 * (last ? most : most - 1)) return plain + "…";
    plain += shown;
    length += added;
    text.remove_prefix(one.bytes);
  }
  return plain;
}

}  // namespace

std::string plain_text(std::string_view text, std::size_t most) {
  return cut(text, most,
             [](std::uint32_t, std::string_view shown) { return 2 * length_of(shown); });
}

std::string drawn_text(std::string_view text, std::size_t most) {
  return cut(text, most, [](std::uint32_t point, std::string_view shown) {
    const auto is_one_of = [&](std::string_view letters) {
      return shown.size() == 1 && letters.find(shown) != letters.npos;
    };
    // Letters of East Asia, and emoji; what is hidden is shown as an escape.
    const bool square = point >= 0x2e80 && (point < 0xa4d0 || point >= 0xac00) && shown[0] != '\\';
    const bool broadest = square || is_one_of("MWmw@%");
    const bool broad = is_one_of("ABCDEFGHJKLNOPQRSTUVXYZ&");
    return (broadest ? 4 : broad ? 3 : 2) * length_of(shown);
  });
}

std::string one_line(std::string_view text) { return escaped(text, kWhole); }

std::string one_short_line(std::string_view text, std::size_t most) {
  constexpr std::string_view kGap = "...";
  std::string line = one_line(text);
  if (line.size() <= most) return line;
  const auto inside_character = [&line](std::size_t at) {
    return (static_cast<unsigned char>(line[at]) & 0xc0U) == 0x80U;
  };
  std::size_t head = (most - kGap.size()) / 2;
  std::size_t tail = line.size() - head;
  while (inside_character(head)) --head;
  while (inside_character(tail)) ++tail;
  return line.replace(head, tail - head, kGap);
}

std::string name_text(std::string_view name) { return escaped(name, 80); }

std::size_t length_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U;
  }));
}

std::string filled_to(std::string text, std::size_t width) {
  const std::size_t length = length_of(text);
  if (length < width) text.append(width - length, ' ');
  return text;
}

// No stream: where std::getline has no memory for a part, it only says that there are no more.
std::vector<std::string_view> parts_of(std::string_view text, char end) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin < text.size();) {
    parts.push_back(text.substr(begin, text.find(end, begin) - begin));
    begin += parts.back().size() + 1;
  }
  return parts;
}

std::string paragraph(const std::string& text, std::size_t width, const std::string& indent) {
  std::string lines;
  std::string line;
  for (const std::string_view word : parts_of(text, ' ')) {
    if (!line.empty() && length_of(line) + 1 + length_of(word) > width) {
      lines += line + "\n";
      line = indent;
    } else if (!line.empty()) {
      line += ' ';
    }
    line += word;
  }
  return lines + line + "\n";
}

}  // namespace heed::cli

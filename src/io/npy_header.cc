// The text of a .npy header: a Python dictionary literal, read by a grammar of six rules and never
// evaluated.
//
//   dictionary = "{" [ entry { "," entry } [ "," ] ] "}"
//   entry      = string ":" ( string | "True" | "False" | tuple )
//   tuple      = "(" [ integer "," [ integer { "," integer } [ "," ] ] ] ")"
//   integer    = "0" | digit { digit }, no leading zero; followed by "L" in versions 1.0 and 2.0
//   string     = 'printable' | "printable", without backslash
//   between any two of these: space, tab, carriage return, line feed, form feed
#include <array>
#include <optional>

#include "io/messages.h"
#include "io/npy.h"

namespace heed::io {
namespace {

constexpr std::int64_t kMaxHeader = 10000;  // NumPy's own limit, against slow evaluation

class Literal {
 public:
  Literal(const Stream& stream, std::string_view text, std::int64_t offset, int version)
      : stream_(stream), text_(text), offset_(offset), long_suffix_(version < 3) {}

  NpyHeader dictionary() {
    NpyHeader header;
    std::array<bool, kKeys.size()> seen{};
    expect('{', "a Python dictionary");
    while (!next_is('}')) {
      const std::int64_t at = here();
      const std::string_view key = string("a key");
      const std::size_t which = index_of(key, at);
      if (seen[which]) refuse("the key " + in_quotes(key) + " once", "it again", at);
      seen[which] = true;
      expect(':', "':'");
      value(which, header);
      if (!next_is('}')) expect(',', "',' or '}'");
    }
    const std::int64_t end = here();
    expect('}', "'}'");
    for (std::size_t which = 0; which < kKeys.size(); ++which) {
      if (!seen[which]) refuse("the key " + in_quotes(kKeys[which]), "the end of the keys", end);
    }
    if (here() - offset_ < static_cast<std::int64_t>(text_.size())) {
      refuse("nothing after the dictionary", in_quotes(text_.substr(at_)), here());
    }
    return header;
  }

 private:
  static constexpr std::array<std::string_view, 3> kKeys{"descr", "fortran_order", "shape"};

  [[noreturn]] void refuse(const std::string& expected, const std::string& found,
                           std::int64_t at) const {
    stream_.refuse(expected, found, at);
  }
  [[noreturn]] void refuse_here(const std::string& expected) {
    here();
    refuse_at(expected);
  }
  [[noreturn]] void refuse_at(const std::string& expected) const {
    const std::int64_t at = offset_ + static_cast<std::int64_t>(at_);
    refuse(expected, at_ < text_.size() ? in_quotes(text_.substr(at_, 1)) : "the end of the header",
           at);
  }

  /// The offset of the next character that is no space.
  std::int64_t here() {
    at_ = std::min(text_.find_first_not_of(" \t\r\n\f", at_), text_.size());
    return offset_ + static_cast<std::int64_t>(at_);
  }
  bool next_is(char character) {
    here();
    return at_ < text_.size() && text_[at_] == character;
  }
  void expect(char character, const std::string& name) {
    if (!next_is(character)) refuse_here(name);
    ++at_;
  }

  std::string_view string(const std::string& name) {
    if (!next_is('\'') && !next_is('"')) refuse_here(name + " in quotes");
    const char quote = text_[at_++];
    const std::size_t start = at_;
    while (at_ < text_.size() && text_[at_] != quote && text_[at_] >= ' ' && text_[at_] != '\\')
      ++at_;
    if (at_ == text_.size() || text_[at_] != quote) refuse_at("plain characters up to a quote");
    return text_.substr(start, at_++ - start);
  }

  std::size_t index_of(std::string_view key, std::int64_t at) const {
    for (std::size_t which = 0; which < kKeys.size(); ++which) {
      if (kKeys[which] == key) return which;
    }
    refuse("one of the keys \"descr\", \"fortran_order\" and \"shape\"", in_quotes(key), at);
  }

  void value(std::size_t key, NpyHeader& header) {
    const std::int64_t at = here();
    if (key == 0) {
      header.descr_offset = at;
      type(string("an element type"), at, header);
    } else if (key == 1) {
      header.fortran_order = boolean();
    } else {
      header.shape_offset = at;
      header.shape = tuple();
    }
  }

  void type(std::string_view descr, std::int64_t at, NpyHeader& header) const {
    struct Type {
      std::string_view name;
      DType dtype;
    };
    static constexpr std::array<Type, 12> kTypes{{{"b1", DType::boolean},
                                                  {"u1", DType::u8},
                                                  {"i1", DType::i8},
                                                  {"u2", DType::u16},
                                                  {"i2", DType::i16},
                                                  {"u4", DType::u32},
                                                  {"i4", DType::i32},
                                                  {"u8", DType::u64},
                                                  {"i8", DType::i64},
                                                  {"f2", DType::f16},
                                                  {"f4", DType::f32},
                                                  {"f8", DType::f64}}};
    const bool object = descr == "|O" || descr == "O";
    for (const Type& type : kTypes) {
      if (descr.size() != 3 || descr.substr(1) != type.name) continue;
      const char order = descr[0];
      if (order != '<' && order != '>' && (order != '|' || size_of(type.dtype) > 1)) continue;
      header.dtype = type.dtype;
      header.big_endian = order == '>';
      return;
    }
    refuse(
        "an element type of b1, u1, i1, u2, i2, u4, i4, u8, i8, f2, f4, f8 after '<' or '>', "
        "of one byte after '|' too",
        in_quotes(descr) + (object ? ", Python objects, which are never loaded" : ""), at);
  }

  bool boolean() {
    for (const std::string_view word : {"True", "False"}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return word == "True";
    }
    refuse_here("True or False");
  }

  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> axes;
    expect('(', "a tuple of sizes");
    while (!next_is(')')) {
      if (axes.size() == kNpyMaxRank) refuse("at most 64 axes", "one more", here());
      axes.push_back(integer());
      if (axes.size() == 1 || !next_is(')')) expect(',', "','");
    }
    ++at_;
    return axes;
  }

  std::int64_t integer() {
    const std::int64_t at = here();
    const std::size_t start = at_;
    std::int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_add_overflow(value, text_[at_] - '0', &value)) {
        refuse("a size below 2^63", in_quotes(text_.substr(start, 40)), at);
      }
    }
    const std::size_t digits = at_ - start;
    if (digits == 0) refuse_here("a size, an integer >= 0");
    if (digits > 1 && text_[start] == '0') {
      refuse("a size without leading zero", in_quotes(text_.substr(start, digits)), at);
    }
    if (long_suffix_ && at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2
    return value;
  }

  const Stream& stream_;
  std::string_view text_;
  std::int64_t offset_;  // of the text in the stream
  std::size_t at_ = 0;
  bool long_suffix_;
};

}  // namespace

NpyHeader parse_npy_dictionary(const Stream& stream, std::string_view text, std::int64_t offset,
                               int version) {
  return Literal(stream, text, offset, version).dictionary();
}

NpyHeader read_npy_header(Stream& stream) {
  std::array<std::byte, 12> lead{};
  const std::span<std::byte> bytes(lead);
  const auto magic = bytes.first(kNpyMagic.size());
  stream.read(magic, "magic \"\\x93NUMPY\"");
  if (text_of(magic) != kNpyMagic) {
    stream.refuse("the magic " + in_quotes(kNpyMagic), in_quotes(text_of(magic)), 0);
  }
  const auto version = bytes.subspan(6, 2);
  stream.read(version, "version");
  const int major = std::to_integer<int>(version[0]);
  const int minor = std::to_integer<int>(version[1]);
  if (major < 1 || major > 3 || minor != 0) {
    stream.refuse("version 1.0, 2.0 or 3.0", std::to_string(major) + '.' + std::to_string(minor),
                  6);
  }
  const auto length_bytes = bytes.subspan(8, major == 1 ? 2 : 4);
  stream.read(length_bytes, "header length");
  const auto length = static_cast<std::int64_t>(little_endian(length_bytes));
  if (length > kMaxHeader) {
    stream.refuse("a header of at most 10000 bytes", std::to_string(length), 8);
  }
  std::vector<std::byte> text(static_cast<std::size_t>(length));
  const std::int64_t offset = stream.offset();
  stream.read(text, "header");
  return parse_npy_dictionary(stream, text_of(text), offset, major);
}

}  // namespace heed::io

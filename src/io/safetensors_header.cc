// The JSON header of .safetensors, checked token by token while it is parsed: no document is built,
// and nothing nests deeper than the format does.
#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "io/messages.h"
#include "io/safetensors.h"

namespace heed::io {
namespace {

constexpr std::int64_t kTextOffset = 8;
constexpr std::string_view kMetadata = "__metadata__";

/// Reads characters for the parser and tells how many it took.
struct Counting {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  const char** taken;

  reference operator*() const { return *at; }
  Counting& operator++() {
    *taken = ++at;
    return *this;
  }
  Counting operator++(int) {
    const Counting before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Counting& other) const { return at == other.at; }
};

class Tokens {
 public:
  using Json = nlohmann::json;

  Tokens(const std::string& label, std::string_view text)
      : label_(label), text_(text), taken_(text.data()) {}

  SafetensorsHeader parse() {
    const char* end = text_.data() + text_.size();
    Json::sax_parse(Counting{text_.data(), &taken_}, Counting{end, &taken_}, this);
    return std::move(header_);
  }

  bool null() { wrong(); }
  bool boolean(bool /*value*/) { wrong(); }
  bool number_integer(Json::number_integer_t /*value*/) { wrong(); }
  bool number_float(Json::number_float_t /*value*/, const std::string& /*text*/) { wrong(); }
  bool binary(Json::binary_t& /*value*/) { wrong(); }

  bool number_unsigned(Json::number_unsigned_t value) {
    if (level_ != Level::shape && level_ != Level::offsets) wrong();
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) wrong();
    if (level_ == Level::offsets && numbers_.size() == 2) wrong();
    numbers_.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool string(std::string& value) {
    if (level_ == Level::metadata) {
      header_.metadata[key_] = std::move(value);
    } else if (level_ == Level::entry && key_ == "dtype") {
      set_dtype(value);
    } else {
      wrong();
    }
    return true;
  }

  bool start_object(std::size_t /*size*/) {
    if (level_ == Level::outside) {
      level_ = Level::names;
    } else if (level_ == Level::names) {
      level_ = key_ == kMetadata ? Level::metadata : Level::entry;
    } else {
      wrong();
    }
    fields_.clear();
    return true;
  }

  bool key(std::string& key) {
    if (!is_new(key)) refuse("the key " + in_quotes(key) + " once", "it again");
    if (level_ == Level::entry && key != "dtype" && key != "shape" && key != "data_offsets") {
      refuse("one of the keys \"dtype\", \"shape\" and \"data_offsets\"", in_quotes(key));
    }
    if (level_ == Level::names && key != kMetadata) {
      header_.entries.emplace_back();
      header_.entries.back().name = key;
      header_.entries.back().offset = token_offset();
    }
    key_ = std::move(key);
    return true;
  }

  bool end_object() {
    if (level_ == Level::entry && fields_.size() != 3) {
      for (const char* field : {"dtype", "shape", "data_offsets"}) {
        if (!fields_.contains(field)) {
          refuse_end("the key " + in_quotes(field) + " for tensor " +
                         in_quotes(header_.entries.back().name),
                     "the end of its keys");
        }
      }
    }
    level_ = level_ == Level::names ? Level::outside : Level::names;
    return true;
  }

  bool start_array(std::size_t /*size*/) {
    if (level_ != Level::entry || key_ == "dtype") wrong();
    level_ = key_ == "shape" ? Level::shape : Level::offsets;
    numbers_.clear();
    return true;
  }

  bool end_array() {
    SafetensorsEntry& entry = header_.entries.back();
    if (level_ == Level::shape) {
      entry.shape = numbers_;
    } else {
      if (numbers_.size() != 2) refuse_end("two offsets", std::to_string(numbers_.size()));
      entry.begin = numbers_[0];
      entry.end = numbers_[1];
    }
    level_ = Level::entry;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const Json::exception& /*exception*/) {
    const auto at = std::min(text_.size(), position == 0 ? 0 : position - 1);
    io::refuse(label_, "JSON in UTF-8",
               at >= text_.size() ? "the end of the header" : in_quotes(text_.substr(at, 1)),
               kTextOffset + static_cast<std::int64_t>(at));
  }

 private:
  /// Metadata are many and short: their own map tells which were there.
  bool is_new(const std::string& key) {
    if (level_ == Level::metadata) return !header_.metadata.contains(key);
    return (level_ == Level::names ? names_ : fields_).insert(key).second;
  }

  enum class Level { outside, names, metadata, entry, shape, offsets };

  void set_dtype(const std::string& name) {
    constexpr std::string_view kWithout[] = {"F8_E5M2",     "F8_E4M3", "F8_E5M2FNUZ",
                                             "F8_E4M3FNUZ", "F8_E8M0", "F6_E2M3",
                                             "F6_E3M2",     "F4",      "C64"};
    for (std::size_t i = 0; i < kSafetensorsNames.size(); ++i) {
      if (kSafetensorsNames[i] != name) continue;
      header_.entries.back().dtype = static_cast<DType>(i);
      return;
    }
    const bool published = std::ranges::find(kWithout, name) != std::end(kWithout);
    refuse("an element type of BOOL, U8, I8, U16, I16, U32, I32, U64, I64, F16, BF16, F32, F64",
           in_quotes(name) + (published ? ", which the format has and heed has not" : ""));
  }

  /// The last value or key that the parser took, as it stands in the text. A number ends one
  /// character before what was taken, since only the next one shows that it ended.
  [[nodiscard]] std::string_view token() const {
    constexpr std::string_view kBetween = " \t\r\n,]}";
    std::string_view text = text_.substr(0, static_cast<std::size_t>(taken_ - text_.data()));
    while (text.size() > 1 && kBetween.find(text.back()) != std::string_view::npos) {
      text.remove_suffix(1);
    }
    std::size_t start = text.size() - 1;
    if (text[start] == '"') {
      while (start > 0 && (text[--start] != '"' || is_escaped(text, start))) {
      }
    } else if (text[start] != '{' && text[start] != '[') {
      while (start > 0 && is_word(text[start - 1])) --start;
    }
    return text.substr(start);
  }

  static bool is_escaped(std::string_view text, std::size_t at) {
    std::size_t slashes = 0;
    while (slashes < at && text[at - 1 - slashes] == '\\') ++slashes;
    return slashes % 2 == 1;
  }

  static bool is_word(char c) {  // of a number, true, false, null
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == 'E' || c == '+' || c == '-' ||
           c == '.';
  }

  [[nodiscard]] std::int64_t token_offset() const {
    return kTextOffset + (token().data() - text_.data());
  }

  [[noreturn]] void refuse(const std::string& expected, const std::string& found) const {
    io::refuse(label_, expected, found, token_offset());
  }
  /// The same at the bracket that was taken last.
  [[noreturn]] void refuse_end(const std::string& expected, const std::string& found) const {
    io::refuse(label_, expected, found, kTextOffset + (taken_ - text_.data()) - 1);
  }

  [[noreturn]] void wrong() const {
    const bool field = level_ == Level::entry;
    refuse(level_ == Level::outside    ? "an object"
           : level_ == Level::names    ? "an object for " + in_quotes(key_)
           : level_ == Level::metadata ? "a string for the metadata " + in_quotes(key_)
           : level_ == Level::shape    ? "a size, an integer from 0 to 2^63 - 1"
           : level_ == Level::offsets  ? "two offsets, integers from 0 to 2^63 - 1"
           : field && key_ == "dtype"  ? "a string for \"dtype\""
                                       : "an array for " + in_quotes(key_),
           in_quotes(token()));
  }

  const std::string& label_;
  std::string_view text_;
  const char* taken_;
  Level level_ = Level::outside;
  std::string key_;
  std::set<std::string> names_;
  std::set<std::string> fields_;
  std::vector<std::int64_t> numbers_;
  SafetensorsHeader header_;
};

}  // namespace

SafetensorsHeader parse_safetensors_header(const std::string& label, std::string_view text) {
  // The parser takes a NUL for the end of its input.
  const auto nul = text.find('\0');
  if (nul != std::string_view::npos) {
    refuse(label, "JSON in UTF-8", "a zero byte", kTextOffset + static_cast<std::int64_t>(nul));
  }
  return Tokens(label, text).parse();
}

}  // namespace heed::io

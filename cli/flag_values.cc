// Words of the command line into values.
#include "flag_values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

namespace heed::cli {
namespace {

[[noreturn]] void refuse(std::string_view word, const std::string& expected) {
  throw std::invalid_argument("expected " + expected + ", got '" + std::string(word) + "'");
}

// No number has other bytes. from_chars of libstdc++ 12 converts them to unsigned char, which
// changes their value: allowed, but the fuzz targets watch such conversions, and have no
// exceptions.
bool is_ascii(std::string_view word) {
  return std::ranges::none_of(word,
                              [](char c) { return (static_cast<unsigned char>(c) & 0x80U) != 0; });
}

// The whole word as a number, whatever the locale; false if it is none.
template <typename Number>
bool read_number(std::string_view word, Number& value) {
  if (!is_ascii(word)) return false;
  if (word.starts_with('+') && !word.starts_with("+-")) word.remove_prefix(1);
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc{} && end == word.data() + word.size() && !word.empty();
}

// Digits behind a sign or none, however many: a number, though perhaps of no type.
bool is_whole(std::string_view word) {
  if (word.starts_with('+') || word.starts_with('-')) word.remove_prefix(1);
  return !word.empty() && word.find_first_not_of("0123456789") == std::string_view::npos;
}

std::vector<std::string_view> split(std::string_view word, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto at = word.find(separator);
    parts.push_back(word.substr(0, at));
    if (at == std::string_view::npos) return parts;
    word.remove_prefix(at + 1);
  }
}

// "1,2,3" into a list; false if any part is no number, so that the word may name a file.
template <typename Number>
bool read_list(std::string_view word, std::vector<Number>& list) {
  list.clear();
  for (const auto part : split(word, ',')) {
    Number number{};
    if (!read_number(part, number)) return false;
    list.push_back(number);
  }
  return true;
}

// Is it, or was it meant to be, the name of a file? Of one that ends in .npz the system tells what
// is amiss.
bool names_file(const std::string& word) {
  for (const std::string_view ending : {".npy", ".npz", ".safetensors"}) {
    if (word.ends_with(ending)) return true;
  }
  std::error_code error;
  return std::filesystem::exists(word, error) || error;
}

template <typename List>
void parse_list_or_file(const std::string& word, const char* number, List& value) {
  value = {};
  if (read_list(word, value.list)) return;
  value.list.clear();
  if (!names_file(word)) {
    refuse(word, std::string(number) + ", a list of them, as 1,2,3, or a file that exists");
  }
  value.file = word;
}

std::int64_t parse_side(std::string_view word, std::string_view whole) {
  if (word == "inf") return kUnlimited;
  std::int64_t side = 0;
  if (!read_number(word, side) || side < 0) {
    refuse(whole, "LEFT,RIGHT, each a count of keys from 0 up, or inf");
  }
  return side;
}

template <char separator>
void parse_pair(const std::string& word, Pair<separator>& value) {
  const auto parts = split(word, separator);
  std::string expected = "one size or two with ";
  expected.append(1, separator).append(" between, each at least 1 and below 2^63");
  if (parts.size() > 2 || !read_number(parts[0], value.first)) refuse(word, expected);
  value.second = value.first;
  if (parts.size() == 2 && !read_number(parts[1], value.second)) refuse(word, expected);
  if (value.first < 1 || value.second < 1) refuse(word, expected);
}

constexpr std::array<std::pair<std::string_view, DType>, 8> kDTypeWords{{{"float16", DType::f16},
                                                                         {"bfloat16", DType::bf16},
                                                                         {"float32", DType::f32},
                                                                         {"float64", DType::f64},
                                                                         {"f16", DType::f16},
                                                                         {"bf16", DType::bf16},
                                                                         {"f32", DType::f32},
                                                                         {"f64", DType::f64}}};

}  // namespace

void parse(const std::string& word, std::string& value) {
  if (word.empty()) refuse(word, "a name");
  value = word;
}

void parse(const std::string& word, double& value) {
  if (!read_number(word, value)) refuse(word, "a number of float64");
}

void parse(const std::string& word, std::optional<double>& value) { parse(word, value.emplace()); }

template <typename Number>
Number whole_number(const std::string& word, Number least, Number most) {
  Number number{};
  if (read_number(word, number) && std::clamp(number, least, most) == number) return number;
  if (!is_whole(word)) refuse(word, "an integer");
  throw std::invalid_argument("expected " + std::to_string(least) + " to " + std::to_string(most) +
                              ", got " + word);
}

template int whole_number(const std::string&, int, int);
template std::int64_t whole_number(const std::string&, std::int64_t, std::int64_t);
template std::uint32_t whole_number(const std::string&, std::uint32_t, std::uint32_t);
template std::uint64_t whole_number(const std::string&, std::uint64_t, std::uint64_t);

void parse(const std::string& word, std::int64_t& value) {
  // Rows and keys: which there are the input tells, and one below 0 is refused with those.
  if (!read_number(word, value)) refuse(word, "an integer from 0 up and below 2^63");
}

void parse(const std::string& word, Numbers& value) {
  parse_list_or_file(word, "a number of float64", value);
}
void parse(const std::string& word, Integers& value) {
  parse_list_or_file(word, "an integer of int64", value);
}

void parse(const std::string& word, HeadList& value) {
  if (word.empty()) refuse(word, "LAYER.HEAD or a list of them, as 3.1,5.11");
  value.words = word;
}

void parse(const std::string& word, Bytes& value) {
  const std::string expected =
      "a number of bytes from 1 to below 2^63, such as 3000000, 512M or 4G";
  std::string_view digits = word;
  int shift = 0;
  constexpr std::string_view kSuffixes = "KMGT";
  if (!digits.empty()) {
    const auto suffix = kSuffixes.find(digits.back());
    if (suffix != std::string_view::npos) {
      shift = static_cast<int>(10 * (suffix + 1));
      digits.remove_suffix(1);
    }
  }
  std::int64_t count = 0;
  if (!read_number(digits, count) || count < 1) refuse(word, expected);
  if (count > (std::numeric_limits<std::int64_t>::max() >> shift)) refuse(word, expected);
  value.count = count << shift;
}

void parse(const std::string& word, Layout& value) {
  if (word != "bhtd" && word != "bthd") refuse(word, "bhtd or bthd");
  value = word == "bthd" ? Layout::bthd : Layout::bhtd;
}

void parse(const std::string& word, DecodeOrder& value) {
  if (word != "prefill" && word != "key-by-key") refuse(word, "prefill or key-by-key");
  value = word == "prefill" ? DecodeOrder::of_prefill : DecodeOrder::key_by_key;
}

void parse(const std::string& word, DType& value) {
  for (const auto& [name, dtype] : kDTypeWords) {
    if (word == name) {
      value = dtype;
      return;
    }
  }
  refuse(word, "float16 (f16), bfloat16 (bf16), float32 (f32) or float64 (f64)");
}

void parse(const std::string& word, std::optional<DType>& value) { parse(word, value.emplace()); }

void parse(const std::string& word, Window& value) {
  const auto sides = split(word, ',');
  if (sides.size() != 2) refuse(word, "LEFT,RIGHT, each a count of keys from 0 up, or inf");
  value = {parse_side(sides[0], word), parse_side(sides[1], word)};
}

void parse(const std::string& word, Pair<'/'>& value) { parse_pair(word, value); }
void parse(const std::string& word, Pair<'x'>& value) { parse_pair(word, value); }

std::string_view name_of(Layout value) { return value == Layout::bthd ? "bthd" : "bhtd"; }
std::string_view name_of(DecodeOrder value) {
  return value == DecodeOrder::of_prefill ? "prefill" : "key-by-key";
}

}  // namespace heed::cli

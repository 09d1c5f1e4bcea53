// The kinds of values that flags take, and how each is read from a word.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "heed/attention.h"
#include "heed/tensor.h"

namespace heed::cli {

/// "0.5", "0.5,0.25,0.125" or the name of a file.
struct Numbers {
  std::vector<double> list;
  std::string file;
};

/// "16", "16,12,9" or the name of a file.
struct Integers {
  std::vector<std::int64_t> list;
  std::string file;
};

/// "3.1,5.11": layers and heads; which there are the input tells.
struct HeadList {
  std::string words;
};

/// "3000000", "512M", "4G": binary multiples. 0: not given.
struct Bytes {
  std::int64_t count = 0;
};

/// The order of axes of four-axis files.
enum class Layout : std::uint8_t { bhtd, bthd };

/// Two sizes, of which the second may be left out and is then the first: "32/8", "777x1333".
template <char separator>
struct Pair {
  std::int64_t first = 1;
  std::int64_t second = 1;
};

/// A whole number of a range, which messages tell: "expected 0 to 4096, got 5000".
template <typename Number, Number least, Number most>
struct Whole {
  Number value = least;
};

constexpr int kMaxThreads = 4096;
using Threads = Whole<int, 0, kMaxThreads>;
using Count = Whole<std::int64_t, 1, std::numeric_limits<std::int64_t>::max()>;
using Seed = Whole<std::uint64_t, 0, std::numeric_limits<std::uint64_t>::max()>;
/// As numpy.random.seed takes it.
using NumpySeed = Whole<std::uint32_t, 0, std::numeric_limits<std::uint32_t>::max()>;

/// The number that a word is; throws std::invalid_argument if it is none from least to most.
template <typename Number>
[[nodiscard]] Number whole_number(const std::string& word, Number least, Number most);

// parse: reads a word into a value; throws std::invalid_argument with what was wrong.
void parse(const std::string& word, std::string& value);
void parse(const std::string& word, std::optional<double>& value);
void parse(const std::string& word, double& value);
void parse(const std::string& word, std::int64_t& value);
void parse(const std::string& word, Numbers& value);
void parse(const std::string& word, Integers& value);
void parse(const std::string& word, HeadList& value);
void parse(const std::string& word, Bytes& value);
void parse(const std::string& word, Layout& value);
void parse(const std::string& word, DecodeOrder& value);
void parse(const std::string& word, DType& value);
void parse(const std::string& word, std::optional<DType>& value);
void parse(const std::string& word, Window& value);
void parse(const std::string& word, Pair<'/'>& value);
void parse(const std::string& word, Pair<'x'>& value);

template <typename Number, Number least, Number most>
void parse(const std::string& word, Whole<Number, least, most>& value) {
  value.value = whole_number(word, least, most);
}

template <typename Number, Number least, Number most>
void parse(const std::string& word, std::optional<Whole<Number, least, most>>& value) {
  parse(word, value.emplace());
}

/// "512,2048": each part as a value of its own.
template <typename Value>
void parse(const std::string& word, std::vector<Value>& list) {
  list.clear();
  for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = word.find(',', begin);
    const std::string part = word.substr(begin, end - begin);
    try {
      parse(part, list.emplace_back());
    } catch (const std::invalid_argument& error) {
      if (part == word) throw;
      throw std::invalid_argument(std::string(error.what()) + " in '" + word + "'");
    }
  }
}

// The word that is read as this value.
[[nodiscard]] std::string_view name_of(Layout value);
[[nodiscard]] std::string_view name_of(DecodeOrder value);

}  // namespace heed::cli

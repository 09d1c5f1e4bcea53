// F5, the parser alone: a word as the value of a flag, of the kind that the first byte picks. A
// refusal tells what was expected and what came; a number is the one that the C library reads,
// which takes some that heed does not; what is echoed reads back as the same.
#include "flag_values.h"

#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <stdexcept>

#include "echo.h"
#include "fuzz.h"

namespace {

using heed::cli::Json;
using heed_fuzz::expect;

/// The echo as a word again.
std::string word_of(const Json& echo, char separator) {
  if (echo.is_null()) return "inf";
  if (echo.is_string()) return echo.get<std::string>();
  if (echo.is_number_float()) {
    std::array<char, 32> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(), echo.get<double>()).ptr;
    return {text.data(), end};
  }
  if (!echo.is_array()) return echo.dump();
  std::string word;
  for (const Json& part : echo)
    word += (word.empty() ? "" : std::string(1, separator)) + word_of(part, ',');
  return word;
}

/// Is it `word` to the C library, whole, without blanks before it and in range?
template <typename Number>
bool read_by_c(const std::string& word, Number& number) {
  if (word.empty() || std::isspace(static_cast<unsigned char>(word[0])) != 0) return false;
  char* end = nullptr;
  errno = 0;
  if constexpr (std::is_floating_point_v<Number>) {
    number = std::strtod(word.c_str(), &end);
  } else {
    number = std::strtoll(word.c_str(), &end, 10);
  }
  return errno == 0 && end == word.c_str() + word.size();
}

// What the C library reads heed reads as the same number, but for hexadecimal ones and the many
// ways to write a NaN.
template <typename Number>
void compare_with_c(const std::string& word, const Number* read) {
  Number number{};
  const bool c = read_by_c(word, number);
  if (read != nullptr) {
    // Numbers below the normal ones may be a range error to the C library.
    constexpr bool kReal = std::is_floating_point_v<Number>;
    expect(c || (kReal && errno == ERANGE), "a number to heed alone", word);
    const bool nan = kReal && number != number;
    expect(nan ? *read != *read : std::memcmp(read, &number, sizeof number) == 0, "another number",
           word);
  } else if (c) {
    expect(std::is_floating_point_v<Number> && word.find_first_of("xXnN") != std::string::npos,
           "a number to C alone", word);
  }
}

template <typename Value>
void read(const std::string& word, char separator) {
  Value value{};
  bool refused = false;
  try {
    heed::cli::parse(word, value);
  } catch (const std::invalid_argument& error) {
    refused = true;
    const std::string message = error.what();
    const auto got = message.rfind(", got ");
    expect(message.starts_with("expected ") && got != std::string::npos &&
               message.find(word, message.find(", got ")) != std::string::npos,
           "expected, got", message);
  }
  if constexpr (std::is_same_v<Value, double> || std::is_same_v<Value, std::int64_t>) {
    compare_with_c(word, refused ? nullptr : &value);
  }
  if (refused) return;
  const std::string echoed = word_of(heed::cli::echo(value), separator);
  Value again{};
  heed::cli::parse(echoed, again);
  expect(word_of(heed::cli::echo(again), separator) == echoed, "echoed as another value", word);
}

struct Kind {
  void (*read)(const std::string& word, char separator);
  char separator = ',';
};

namespace cli = heed::cli;
constexpr std::array kKinds{Kind{read<std::string>},
                            Kind{read<double>},
                            Kind{read<std::optional<double>>},
                            Kind{read<std::int64_t>},
                            Kind{read<std::vector<std::int64_t>>},
                            Kind{read<cli::Numbers>},
                            Kind{read<cli::Integers>},
                            Kind{read<cli::Bytes>},
                            Kind{read<cli::Layout>},
                            Kind{read<heed::DecodeOrder>},
                            Kind{read<heed::DType>},
                            Kind{read<std::optional<heed::DType>>},
                            Kind{read<heed::Window>},
                            Kind{read<cli::Pair<'/'>>, '/'},
                            Kind{read<cli::Pair<'x'>>, 'x'},
                            Kind{read<cli::Threads>},
                            Kind{read<cli::HeadList>},
                            Kind{read<cli::Count>},
                            Kind{read<cli::NumpySeed>},
                            Kind{read<std::optional<cli::Seed>>}};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  heed_fuzz::Bytes bytes(data, size);
  const Kind& kind = kKinds[bytes.byte() % kKinds.size()];
  std::string word = bytes.text(size);
  std::erase(word, '\0');  // an argument has none
  kind.read(word, kind.separator);
  return 0;
}

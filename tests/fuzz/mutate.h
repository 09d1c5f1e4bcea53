// Mutations that keep a file worth reading: after libFuzzer's own, half of the inputs have their
// lengths and checksums set right again, so that what lies behind those checks is reached too.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#if defined(HEED_FUZZ)
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

/// repair(data, size, most) returns the new size.
#define HEED_FUZZ_REPAIR(repair)                                                       \
  extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, \
                                                 std::size_t most, unsigned seed) {    \
    size = LLVMFuzzerMutate(data, size, most);                                         \
    return (seed >> 7U) % 2 == 0 ? size : repair(data, size, most, seed >> 8U);        \
  }
#else
#define HEED_FUZZ_REPAIR(repair) static_assert(true);
#endif

namespace heed_fuzz {

inline std::uint64_t number(const std::uint8_t* data, int bytes) {
  std::uint64_t value = 0;
  for (int i = bytes; i-- > 0;) value = value << 8U | data[i];
  return value;
}

inline void put_number(std::uint8_t* data, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i, value >>= 8U) data[i] = static_cast<std::uint8_t>(value);
}

/// Replaces bytes [at, at + removed) by `text`, if that fits.
inline std::size_t spliced(std::uint8_t* data, std::size_t size, std::size_t most, std::size_t at,
                           std::size_t removed, std::string_view text) {
  if (size - removed + text.size() > most) return size;
  std::memmove(data + at + text.size(), data + at + removed, size - at - removed);
  std::memcpy(data + at, text.data(), text.size());
  return size - removed + text.size();
}

/// The magic, a version that exists, and the length of a header that ends behind its last brace.
inline std::size_t repair_npy(std::uint8_t* data, std::size_t size, std::size_t /*most*/,
                              unsigned seed) {
  if (size < 12) return size;
  std::memcpy(data, "\x93NUMPY", 6);
  data[6] = static_cast<std::uint8_t>(1 + seed % 3);
  data[7] = 0;
  const std::size_t start = data[6] == 1 ? 10 : 12;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::size_t end = text.find('}', start);
  end = end == std::string_view::npos ? size : end + 1;
  if (end < size && data[end] == '\n') ++end;
  put_number(data + 8, end - start, data[6] == 1 ? 2 : 4);
  return size;
}

/// A header as long as its text, and, every other time, data as long as the largest offset.
inline std::size_t repair_safetensors(std::uint8_t* data, std::size_t size, std::size_t most,
                                      unsigned seed) {
  if (size < 10) return size;
  data[8] = '{';
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  int depth = 0;
  std::size_t end = 8;
  for (bool quoted = false; end < size; ++end) {
    if (text[end] == '"') quoted = !quoted;
    if (text[end] == '\\') ++end;
    if (quoted || end >= size) continue;
    depth += text[end] == '{' ? 1 : text[end] == '}' ? -1 : 0;
    if (depth == 0) break;
  }
  end = end >= size ? size : end + 1;
  put_number(data, end - 8, 8);
  std::size_t largest = 0;
  for (auto at = text.find("offsets", 8); at < end; at = text.find("offsets", at + 1)) {
    const auto comma = text.find(',', at);
    if (comma >= end) break;
    std::size_t value = 0;
    for (auto digit = comma + 1; digit < end && text[digit] >= '0' && text[digit] <= '9'; ++digit)
      value = value * 10 + static_cast<std::size_t>(text[digit] - '0');
    largest = value > largest ? value : largest;
  }
  if (seed % 2 == 0 || largest > most - end) return size;
  if (end + largest > size) std::memset(data + size, 0, end + largest - size);
  return end + largest;
}

}  // namespace heed_fuzz

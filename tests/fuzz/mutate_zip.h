// A damaged zip archive, set right again: CRC-32, sizes and offsets of what its directory lists.
#pragma once

#include <zlib.h>

#include <array>

#include "mutate.h"

namespace heed_fuzz {

/// Bytes that a member inflates to, and their CRC-32.
inline std::pair<std::uint64_t, std::uint32_t> content_of(int method, const std::uint8_t* data,
                                                          std::size_t size) {
  if (method == 0) return {size, crc32(0, data, static_cast<uInt>(size))};
  static std::array<std::uint8_t, 1 << 16> inflated;
  z_stream stream{};
  if (inflateInit2(&stream, -15) != Z_OK) return {};
  stream.next_in = const_cast<Bytef*>(data);  // zlib's type lacks const
  stream.avail_in = static_cast<uInt>(size);
  stream.next_out = inflated.data();
  stream.avail_out = inflated.size();
  inflate(&stream, Z_FINISH);
  const std::size_t got = stream.total_out;
  inflateEnd(&stream);
  return {got, crc32(0, inflated.data(), static_cast<uInt>(got))};
}

/// Members from the start of the file get sizes that reach to the next signature, and are listed in
/// a directory that is written anew: with their names, or, now and then, as it was.
inline std::size_t repair_zip(std::uint8_t* data, std::size_t size, std::size_t most,
                              unsigned seed) {
  constexpr std::string_view kLocal("PK\3\4", 4), kCentral("PK\1\2", 4);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::string directory;
  std::size_t members = 0, at = 0;
  while (at + 30 <= size && text.substr(at, 4) == kLocal) {
    const std::size_t name = number(data + at + 26, 2), extra = number(data + at + 28, 2);
    const std::size_t start = at + 30 + name + extra;
    if (start > size) break;
    std::size_t end = std::min(text.find(kLocal, start), text.find(kCentral, start));
    if (end == std::string_view::npos) end = size;
    const int method = static_cast<int>(number(data + at + 8, 2));
    const auto [bytes, crc] = content_of(method, data + start, end - start);
    put_number(data + at + 14, crc, 4);
    if (number(data + at + 18, 4) != 0xFFFFFFFFU) {  // else zip64
      put_number(data + at + 18, end - start, 4);
      put_number(data + at + 22, bytes, 4);
    }
    std::array<std::uint8_t, 46> entry{};
    std::memcpy(entry.data(), kCentral.data(), 4);
    put_number(entry.data() + 4, 45, 2);
    std::memcpy(entry.data() + 6, data + at + 4, 26);
    put_number(entry.data() + 42, at, 4);
    directory.append(reinterpret_cast<const char*>(entry.data()), entry.size());
    directory += text.substr(at + 30, name + extra);
    ++members;
    at = end;
  }
  if (members == 0 || seed % 8 == 0) return size;
  std::string record("PK\5\6");
  record.resize(22, '\0');
  auto* bytes = reinterpret_cast<std::uint8_t*>(record.data());
  put_number(bytes + 8, members, 2);
  put_number(bytes + 10, members, 2);
  put_number(bytes + 12, directory.size(), 4);
  put_number(bytes + 16, at, 4);
  return spliced(data, size, most, at, size - at, directory + record);
}

}  // namespace heed_fuzz

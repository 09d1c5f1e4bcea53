// Messages about files: one line each, whatever bytes a file or its name holds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace heed::io {

/// What would not print as one character of a line is written as C++ and Python do, "\n", "\x1b",
/// "\u202e": control characters, line separators, changes of direction, what is not seen; a byte
/// that is not UTF-8 as "\xff". A backslash is doubled. So that a header of 100 MB makes no message
/// of 100 MB, text after `limit` bytes is cut, with "..." in its place.
[[nodiscard]] std::string escaped(std::string_view text,
                                  std::size_t limit = std::string_view::npos);

/// Between double quotes, cut after 80 bytes.
[[nodiscard]] std::string in_quotes(std::string_view text);

/// A file's name, escaped. The system takes one of 4095 bytes; of more than 256 the ends stay,
/// which tell where the file lies and what it is called, with "..." between them.
[[nodiscard]] std::string label_of(std::string_view path);

[[nodiscard]] bool is_utf8(std::string_view text) noexcept;

/// "1 byte", "2 bytes"
[[nodiscard]] std::string count_of(std::int64_t count, std::string_view noun);

/// Throws ErrorKind::format: "label: expected E, found F, at offset N".
[[noreturn]] void refuse(const std::string& label, const std::string& expected,
                         const std::string& found, std::int64_t offset);

/// Throws ErrorKind::io: "label: cannot do it: the system's reason".
[[noreturn]] void fail(const std::string& label, const std::string& cannot, int error_number);

}  // namespace heed::io

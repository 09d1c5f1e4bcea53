// A file that is read in place, and bytes that are read front to back.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "io/descriptor.h"

namespace heed::io {

/// A regular file, read with pread; knows whether it changed meanwhile.
class InputFile {
 public:
  explicit InputFile(const std::string& path);

  [[nodiscard]] const std::string& label() const noexcept { return label_; }  ///< label_of the path
  [[nodiscard]] std::int64_t size() const noexcept { return status_.st_size; }

  /// Fills `to`. `what` names the bytes in the refusal of a file that ends before them.
  void read(std::span<std::byte> to, std::int64_t offset, std::string_view what) const;

  /// Throws ErrorKind::io if size or time of change are not what they were at the start.
  void check_unchanged() const;

 private:
  std::string label_;
  Descriptor descriptor_;
  struct stat status_ {};
};

/// Bytes that are read once, front to back: a file, or what a zip archive holds under a name.
class Stream {
 public:
  Stream(std::string label, std::int64_t size) : label_(std::move(label)), size_(size) {}
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] std::int64_t offset() const noexcept { return offset_; }
  [[nodiscard]] std::int64_t remaining() const noexcept { return size_ - offset_; }

  /// Fills `to`. `what` names the bytes in the refusal of a stream that ends before them.
  void read(std::span<std::byte> to, std::string_view what);

  [[noreturn]] void refuse(const std::string& expected, const std::string& found,
                           std::int64_t offset) const;

 private:
  /// Fills `to` from the position `offset()`; the bytes are known to be there.
  virtual void fill(std::span<std::byte> to) = 0;

  std::string label_;
  std::int64_t size_;
  std::int64_t offset_ = 0;
};

class FileStream final : public Stream {
 public:
  explicit FileStream(const InputFile& file) : Stream(file.label(), file.size()), file_(file) {}

 private:
  void fill(std::span<std::byte> to) override { file_.read(to, offset(), "data"); }

  const InputFile& file_;
};

/// An unsigned number, lowest byte first.
[[nodiscard]] constexpr std::uint64_t little_endian(std::span<const std::byte> bytes) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    value = value << 8U | std::to_integer<std::uint64_t>(bytes[i]);
  }
  return value;
}

/// The bytes as text.
[[nodiscard]] inline std::string_view text_of(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace heed::io

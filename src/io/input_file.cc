// A file that is read in place, and bytes that are read front to back.
#include "io/input_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "heed/error.h"
#include "io/messages.h"

namespace heed::io {
namespace {

// pread transfers at most 0x7ffff000 bytes at once on Linux, and fewer keep signals' delay short.
constexpr std::size_t kMaxTransfer = std::size_t{1} << 26U;

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  return "a device";
}

[[noreturn]] void refuse_end(const std::string& label, std::size_t wanted, std::string_view what,
                             std::int64_t available, std::int64_t offset) {
  refuse(label, count_of(static_cast<std::int64_t>(wanted), "byte") + " of " + std::string(what),
         available == 0 ? "the end" : std::to_string(available), offset);
}

}  // namespace

InputFile::InputFile(const std::string& path) : label_(label_of(path)) {
  if (path.find('\0') != std::string::npos) fail(label_, "open", EINVAL);
  // O_NONBLOCK: opening a pipe that nobody writes to must end in a refusal, not wait for a writer.
  descriptor_ = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!descriptor_.is_open() || ::fstat(descriptor_.get(), &status_) != 0) {
    fail(label_, "open", errno);
  }
  if (!S_ISREG(status_.st_mode)) {
    throw Error(ErrorKind::io, label_ + ": expected a regular file, found " +
                                   std::string(kind_of(status_.st_mode)));
  }
}

void InputFile::read(std::span<std::byte> to, std::int64_t offset, std::string_view what) const {
  const std::int64_t available = std::max<std::int64_t>(size() - offset, 0);
  if (static_cast<std::uint64_t>(available) < to.size()) {
    refuse_end(label_, to.size(), what, available, offset);
  }
  while (!to.empty()) {
    const ssize_t got =
        ::pread(descriptor_.get(), to.data(), std::min(to.size(), kMaxTransfer), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(label_, "read at offset " + std::to_string(offset), errno);
    if (got == 0) {
      throw Error(ErrorKind::io, label_ + ": the file became shorter while it was read: " +
                                     std::to_string(size()) + " bytes expected, " +
                                     std::to_string(offset) + " found");
    }
    to = to.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
}

void InputFile::check_unchanged() const {
  struct stat now {};
  if (::fstat(descriptor_.get(), &now) != 0) fail(label_, "look at the file again", errno);
  if (now.st_size != status_.st_size || now.st_mtim.tv_sec != status_.st_mtim.tv_sec ||
      now.st_mtim.tv_nsec != status_.st_mtim.tv_nsec) {
    throw Error(ErrorKind::io, label_ + ": the file changed while it was read");
  }
}

void Stream::read(std::span<std::byte> to, std::string_view what) {
  if (static_cast<std::uint64_t>(remaining()) < to.size()) {
    refuse_end(label_, to.size(), what, remaining(), offset_);
  }
  fill(to);
  offset_ += static_cast<std::int64_t>(to.size());
}

void Stream::refuse(const std::string& expected, const std::string& found,
                    std::int64_t offset) const {
  io::refuse(label_, expected, found, offset);
}

}  // namespace heed::io

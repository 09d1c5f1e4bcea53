// A file that appears under its name only when it is complete.
#include "io/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <random>

#include "heed/error.h"
#include "io/messages.h"

namespace heed::io {
namespace {

constexpr std::size_t kMaxTransfer = std::size_t{1} << 26U;
constexpr int kMaxLinks = 40;  // as the kernel
constexpr int kMaxNames = 100;

std::string directory_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

/// Follows symbolic links in the last component, to a name that may not exist yet.
std::string resolve(const std::string& label, std::string path) {
  for (int links = 0; links < kMaxLinks; ++links) {
    std::array<char, PATH_MAX> to{};
    const ssize_t length = ::readlink(path.c_str(), to.data(), to.size());
    if (length < 0) return path;  // no link; whatever else is wrong shows when the file is made
    const std::string target(to.data(), static_cast<std::size_t>(length));
    path = target.starts_with('/') ? target : directory_of(path) + '/' + target;
  }
  fail(label, "write", ELOOP);
}

int sync(const Descriptor& descriptor) {
  int result = 0;
  do {
    result = ::fsync(descriptor.get());
  } while (result != 0 && errno == EINTR);
  return result;
}

}  // namespace

OutputFile::OutputFile(const std::string& path) : label_(label_of(path)) {
  if (path.empty() || path.find('\0') != std::string::npos) fail(label_, "write", EINVAL);
  target_ = resolve(label_, path);
  directory_ = directory_of(target_);
  struct stat old {};
  const bool exists = ::stat(target_.c_str(), &old) == 0;
  if (exists && !S_ISREG(old.st_mode)) {
    throw Error(ErrorKind::io, label_ + ": cannot write: it exists and is no regular file");
  }
  // A file without a name would have room for all data, and find no name at last.
  if (!exists && errno == ENAMETOOLONG) fail(label_, "write", errno);
  directory_descriptor_ =
      Descriptor(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory_descriptor_.is_open()) {
    fail(label_, "open the directory " + in_quotes(directory_), errno);
  }
  open_unnamed();
  if (!descriptor_.is_open()) open_named();
  take_mode_of_old_file();
}

/// Leaves the descriptor closed where a file without a name, or giving it one through /proc, is not
/// to be had: which errno says so differs between file systems, and open_named() meets real errors
/// again.
void OutputFile::open_unnamed() {
#ifdef O_TMPFILE
  if (::access("/proc/self/fd", X_OK) != 0) return;
  descriptor_ = Descriptor(::open(directory_.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666));
#endif
}

void OutputFile::open_named() {
  for (int attempt = 0; attempt < kMaxNames; ++attempt) {
    std::string name = new_name();
    descriptor_ = Descriptor(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (descriptor_.is_open()) {
      temporary_.set(std::move(name));
      return;
    }
    if (errno != EEXIST) break;
  }
  fail(label_, "create a file in the directory " + in_quotes(directory_), errno);
}

void OutputFile::take_mode_of_old_file() {
  struct stat old {};
  if (::stat(target_.c_str(), &old) != 0) return;
  if (::fchmod(descriptor_.get(), old.st_mode & 0777U) != 0) fail(label_, "set permissions", errno);
}

std::string OutputFile::new_name() const {
  std::random_device random;
  return directory_ + "/.heed-" + std::to_string(random()) + ".tmp";
}

void OutputFile::write(std::span<const std::byte> bytes, std::int64_t offset) {
  while (!bytes.empty()) {
    const std::size_t wanted = std::min(bytes.size(), kMaxTransfer);
    const ssize_t done = ::pwrite(descriptor_.get(), bytes.data(), wanted, offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      fail(label_, "write at offset " + std::to_string(offset), done < 0 ? errno : ENOSPC);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    offset += done;
  }
  end_ = std::max(end_, offset);
}

void OutputFile::write(std::span<const std::byte> bytes) { write(bytes, end_); }

/// Network file systems report at close what they could not store. The file without a name lives on
/// through a second descriptor, so that it gets its name only after that report.
void OutputFile::close_checked() {
  Descriptor other;
  if (temporary_.empty()) {
    other = Descriptor(::fcntl(descriptor_.get(), F_DUPFD_CLOEXEC, 0));
    if (!other.is_open()) fail(label_, "duplicate a descriptor", errno);
  }
  if (::close(descriptor_.release()) != 0 && errno != EINTR) fail(label_, "close", errno);
  descriptor_ = std::move(other);
}

/// A name that is free is taken at once; one that is not is replaced by way of another name, since
/// linkat does not replace.
void OutputFile::give_name() {
  const std::string self = "/proc/self/fd/" + std::to_string(descriptor_.get());
  const auto link_as = [&](const std::string& name) {
    return ::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
  };
  if (link_as(target_)) return;
  for (int attempt = 0; errno == EEXIST && attempt < kMaxNames; ++attempt) {
    std::string name = new_name();
    if (!link_as(name)) continue;
    temporary_.set(std::move(name));
    return;
  }
  fail(label_, "link", errno);
}

void OutputFile::commit() {
  if (sync(descriptor_) != 0) fail(label_, "sync", errno);
  close_checked();
  {
    const SignalsHeld held;  // else Ctrl-C between the two leaves the temporary name behind
    if (temporary_.empty()) give_name();
    if (!temporary_.empty()) {
      if (::rename(temporary_.path().c_str(), target_.c_str()) != 0) fail(label_, "rename", errno);
      temporary_.set({});
    }
  }
  // The name must survive a power cut as well. Some file systems cannot sync a directory.
  if (sync(directory_descriptor_) != 0 && errno != EINVAL && errno != EROFS) {
    fail(label_, "sync the directory of the complete file", errno);
  }
}

SignalsHeld::SignalsHeld() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old_mask_);
}

SignalsHeld::~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr); }

FileSizeSignalBlocked::FileSizeSignalBlocked() {
  sigset_t signal;
  sigemptyset(&signal);
  sigaddset(&signal, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &signal, &old_mask_);
  sigset_t pending;
  sigpending(&pending);
  was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
}

FileSizeSignalBlocked::~FileSizeSignalBlocked() {
  sigset_t signal;
  sigemptyset(&signal);
  sigaddset(&signal, SIGXFSZ);
  constexpr timespec kNow{0, 0};
  if (!was_pending_) {
    while (sigtimedwait(&signal, nullptr, &kNow) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

}  // namespace heed::io

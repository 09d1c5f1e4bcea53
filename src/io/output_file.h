// A file that appears under its name only when it is complete.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "io/descriptor.h"

namespace heed::io {

/// A name in the file system that goes when this does.
class TemporaryName {
 public:
  TemporaryName() = default;
  TemporaryName(const TemporaryName&) = delete;
  TemporaryName& operator=(const TemporaryName&) = delete;
  ~TemporaryName() {
    if (!empty()) ::unlink(path_.c_str());
  }

  [[nodiscard]] bool empty() const noexcept { return path_.empty(); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  void set(std::string path) noexcept { path_ = std::move(path); }

 private:
  std::string path_;
};

/// Writes go to a file without a name in the directory of `path` (O_TMPFILE), or where the file
/// system lacks that to one with a name of its own; commit() gives it its name. Destroyed without
/// commit, nothing remains. A process killed at any point leaves the old file or the new one, and
/// besides it at most a temporary file: without O_TMPFILE the part that was written, with it a
/// complete copy if SIGKILL, or another thread, ends it between two system calls of commit(),
/// linkat and rename.
class OutputFile {
 public:
  /// Throws ErrorKind::io if no file can be created there.
  explicit OutputFile(const std::string& path);

  [[nodiscard]] const std::string& label() const noexcept { return label_; }  ///< label_of the path

  void write(std::span<const std::byte> bytes, std::int64_t offset);

  /// Appends.
  void write(std::span<const std::byte> bytes);
  void write(const std::string& text) { write(std::as_bytes(std::span(text))); }

  /// Syncs, closes, renames, syncs the directory.
  void commit();

 private:
  void open_unnamed();
  void open_named();
  void take_mode_of_old_file();
  void close_checked();
  void give_name();
  std::string new_name() const;

  std::string label_;
  std::string target_;       // where the path's symbolic links end
  std::string directory_;    // of the target
  TemporaryName temporary_;  // empty: the file has no name
  Descriptor descriptor_;
  Descriptor directory_descriptor_;
  std::int64_t end_ = 0;
};

/// While this lives, signals to this thread wait: what ends the process ends it before or after.
class SignalsHeld {
 public:
  SignalsHeld();
  ~SignalsHeld();
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t old_mask_{};
};

/// While this lives, exceeding RLIMIT_FSIZE is an error of the call (EFBIG) and not the death of
/// the process by SIGXFSZ. It holds the signal back in this thread only; no handler is installed.
class FileSizeSignalBlocked {
 public:
  FileSizeSignalBlocked();
  ~FileSizeSignalBlocked();
  FileSizeSignalBlocked(const FileSizeSignalBlocked&) = delete;
  FileSizeSignalBlocked& operator=(const FileSizeSignalBlocked&) = delete;

 private:
  sigset_t old_mask_{};
  bool was_pending_ = false;
};

}  // namespace heed::io

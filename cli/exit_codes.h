// How the command ends: every exit code, and the exception that carries one to main.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>

#include "heed/error.h"

namespace heed::cli {

/// Public: README.md and `heed --help` list them, and docs/versioning.md says what may change.
enum class ExitCode : int {
  ok = 0,
  check_failed = 1,  ///< a comparison that was asked for did not hold
  usage = 2,         ///< the call is wrong: a flag, a shape, a combination
  bad_input = 3,     ///< a file is not what it says it is
  io = 4,            ///< the operating system refused to read or write
  memory = 5,        ///< not enough memory; the message names the estimate
  not_finite = 6,    ///< run --check-finite found NaN or infinity in the result
  signal_base = 128  ///< + the signal's number: 130 SIGINT, 143 SIGTERM, 141 SIGPIPE
};

/// The exit code of a library error.
[[nodiscard]] constexpr ExitCode exit_code_of(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::argument:
      return ExitCode::usage;
    case ErrorKind::format:
      return ExitCode::bad_input;
    case ErrorKind::io:
      return ExitCode::io;
    case ErrorKind::memory:
      return ExitCode::memory;
  }
  return ExitCode::usage;
}

/// What a command throws to end: the code and the one line that says why.
class Failure : public std::runtime_error {
 public:
  Failure(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

/// The usual kind: the call is wrong.
class UsageError : public Failure {
 public:
  explicit UsageError(const std::string& message) : Failure(ExitCode::usage, message) {}
};

/// Around the error that is being handled, which a file other than the input caused: whose fault it
/// is, to stand before the error's message once that is in the words of the call.
class FaultOf : public std::runtime_error, public std::nested_exception {
 public:
  /// The path as messages have it.
  FaultOf(const std::string& flag, const std::string& path)
      : std::runtime_error(flag + ": "), path_(path) {}

  /// "--against: FILE: ..", with each of the two once.
  [[nodiscard]] std::string told(const std::string& message) const {
    if (message.starts_with(what())) return message;
    const bool named =
        message.starts_with(path_ + ": ") || message.starts_with(path_ + " holds a tensor");
    return what() + (named ? "" : path_ + ": ") + message;
  }

 private:
  std::string path_;
};

}  // namespace heed::cli

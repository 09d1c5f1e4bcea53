// The one exception type of heed: who complains, what was expected, what came.
#pragma once

#include <stdexcept>
#include <string>

#include "heed/export.h"

namespace heed {

/// What kind of thing went wrong; the command line turns each into an exit code.
enum class ErrorKind {
  argument,  ///< the caller's mistake: a shape, a type, an option, an environment variable
  format,    ///< a file is damaged, or of no format that heed reads
  io,        ///< the operating system refused to read or write
  memory,    ///< an allocation failed; the message names its bytes, lists or pages
};

/// Thrown by every public function, before anything is written to an output where its header does
/// not say otherwise (`backward` of modules takes scratch memory step by step). std::bad_alloc
/// comes in its place where there is no memory even for a message or a list of names.
class HEED_API Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}

  /// A caller's mistake, the usual kind.
  explicit Error(const std::string& message) : Error(ErrorKind::argument, message) {}

  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace heed

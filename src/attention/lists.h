// Lists of what a call is given: small memory, which may be refused like any other.
#pragma once

#include <new>
#include <string>

#include "heed/error.h"

namespace heed {

/// f(), which makes lists; where there is no memory for them, an error of the function's.
template <typename F>
auto with_lists(const char* function, const F& f, const char* of = "sequences and parts") {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::memory, std::string(function) + ": no memory for lists of " + of);
  }
}

}  // namespace heed

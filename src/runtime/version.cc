// The version of the library that is running.
#include "heed/runtime.h"

namespace heed {

std::string_view version() noexcept { return HEED_VERSION; }

}  // namespace heed

// Whether a test runs under a sanitizer, which slows it several times and takes memory of its own.
#pragma once

#include <cstddef>

namespace heed_test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// Of so many cases one in how many runs: a sanitizer wants memory and steps looked at, and fewer numbers do for that.
/// 7 meets no period of the cases.
constexpr std::size_t one_in(std::size_t cases) { return kSanitized && cases > 500 ? 7 : 1; }

}  // namespace heed_test

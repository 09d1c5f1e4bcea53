// Whether a test runs under a sanitizer, which slows it several times and takes memory of its own.
#pragma once

#include <cstddef>

namespace heed_test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// Of a block of so many cases, one in how many runs: a sanitizer looks at memory and steps, for which fewer numbers do.
/// 17 is the least number that is prime to the periods of tests/forward/cases.cc, whose factors are 2, 3, 5, 7, 11, 13 and 19.
constexpr std::size_t one_in(std::size_t cases) { return kSanitized && cases > 500 ? 17 : 1; }

}  // namespace heed_test

// Whether a test runs under a sanitizer, which slows it several times and takes memory of its own.
#pragma once

namespace heed_test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace heed_test

// Whether a test runs under a sanitizer, which slows it several times and takes memory of its own.
#pragma once

#include <cstddef>
#include <vector>

extern "C" {  // of the sanitizer that a program was linked with
[[gnu::weak]] void __asan_init();
[[gnu::weak]] void __tsan_init();
}

namespace heed_test {

/// Told when a test runs: most tests are not compiled for sanitizers, only what they call is.
inline bool sanitized() { return __asan_init != nullptr || __tsan_init != nullptr; }

/// Of a block of so many cases, one in how many runs: a sanitizer looks at memory and steps, for
/// which fewer numbers do. 17 is the least number that is prime to the periods of
/// tests/forward/cases.cc, whose factors are 2, 3, 5, 7, 11, 13 and 19.
inline std::size_t one_in(std::size_t cases) { return sanitized() && cases > 50 ? 17 : 1; }

/// Each third, for the same reason, of problems that other tests have, too.
template <typename T>
std::vector<T> each_third(const std::vector<T>& all) {
  if (!sanitized()) return all;
  std::vector<T> some;
  for (std::size_t n = 0; n < all.size(); n += 3) some.push_back(all[n]);
  return some;
}

/// Under ThreadSanitizer the last alone: what threads share is the same on every instruction set.
template <typename Isa>
std::vector<Isa> isas_for_races(const std::vector<Isa>& isas) {
  return __tsan_init != nullptr ? std::vector<Isa>{isas.back()} : isas;
}

}  // namespace heed_test

// SplitMix64 (Steele, Lea, Flood 2014) by counter.
#pragma once

#include <cstdint>

namespace heed {

/// The number that the generator of this seed gives at its (counter + 1)-th call.
inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t counter) {
  std::uint64_t z = seed + (counter + 1) * 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

}  // namespace heed

// Fixed problems and hashes of results: bits that every machine and every release has. Inputs are
// made without libm, which may differ from machine to machine.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "forward/half.h"

namespace heed_test {

/// FNV-1a begins here.
inline constexpr std::uint64_t kNoHash = 1469598103934665603U;

template <typename T>
void fill_uniform(Tensor<T>& t, Random& random) {
  t.each([&](auto b, auto h, auto i, auto x) {
    t.at(b, h, i, x) = static_cast<T>(4 * random.uniform() - 2);
  });
}

/// Three splits of 768 keys, rows of more than one chain of 64, heads that share keys, sizes that
/// fill no vector.
inline Call<float> uniform_call(std::uint64_t seed, const Dims& dims = {2, 4, 2, 37, 1700, 20, 9}) {
  Call<float> s = plain_call<float>(dims, seed);
  Random random(seed);
  for (Tensor<float>* t : {&s.q, &s.k, &s.v}) fill_uniform(*t, random);
  return s;
}

inline std::uint64_t hashed(float x, std::uint64_t hash) {
  return (hash ^ std::bit_cast<std::uint32_t>(x)) * 1099511628211U;
}

/// Of the elements' bits, after those of `hash`.
template <typename T>  // float, or counts and keys that a float holds
std::uint64_t hashed(const Tensor<T>& t, std::uint64_t hash) {
  t.each([&](auto b, auto h, auto i, auto x) {
    hash = hashed(static_cast<float>(t.at(b, h, i, x)), hash);
  });
  return hash;
}

inline std::uint64_t hashed(const std::vector<float>& numbers, std::uint64_t hash) {
  for (const float x : numbers) hash = hashed(x, hash);
  return hash;
}

/// hash_now() is the same on every instruction set that calls of the type can have here.
template <typename Hash>
void expect_everywhere(std::uint64_t expected, const Hash& hash_now,
                       heed::DType dtype = heed::DType::f32) {
  for (const heed::Isa isa : isas_of(dtype)) {
    const Forced forced(isa);
    const std::uint64_t hash = hash_now();
    EXPECT_EQ(hash, expected) << std::hex << hash << " has " << heed::name_of(isa);
  }
}

}  // namespace heed_test

// Normal values by seed: heed's own, or those that NumPy's RandomState draws.
#pragma once

#include <cstdint>
#include <random>

namespace heed::cli {

/// SplitMix64 (Steele, Lea, Flood 2014), a sum of twelve uniform numbers: mean 0, variance 1, and
/// no function of a mathematics library that might differ.
class OwnNormals {
 public:
  explicit OwnNormals(std::uint64_t seed) : state_(seed) {}

  double next() {
    double sum = -6.0;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(bits() >> 40U) * 0x1p-24;
    return sum;
  }

  bool next_bit() { return (bits() >> 63U) != 0; }

 private:
  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  std::uint64_t state_;
};

/// numpy.random.RandomState(seed).randn: the sequence is frozen by NumPy's compatibility policy.
class NumpyNormals {
 public:
  explicit NumpyNormals(std::uint32_t seed) : bits_(seed) {}
  double next();

 private:
  double uniform();

  std::mt19937 bits_;  // seeded by an integer as init_genrand does, in NumPy as in the standard
  double kept_ = 0;
  bool has_kept_ = false;
};

enum class Generator : std::uint8_t { heed, numpy };

/// One or the other.
class Normals {
 public:
  Normals(Generator generator, std::uint64_t seed)
      : generator_(generator), own_(seed), numpy_(static_cast<std::uint32_t>(seed)) {}
  double next() { return generator_ == Generator::numpy ? numpy_.next() : own_.next(); }

 private:
  Generator generator_;
  OwnNormals own_;
  NumpyNormals numpy_;
};

}  // namespace heed::cli

// Which weights dropout keeps: Philox4x32-10, one call at a time.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace oracle {

/// Ten rounds over a counter of four words (Salmon and others, 2011).
inline std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

/// Dropout of weights: rate p, taken to 2^-16.
struct Dropout {
  double p = 0;
  std::uint64_t seed = 0;
  // What row, key, batch entry and head 0 are in the whole, and how many heads that has; 0: the
  // call's.
  std::int64_t first_query = 0, first_key = 0, first_batch = 0, first_head = 0, heads = 0;

  [[nodiscard]] std::uint32_t threshold() const {
    return static_cast<std::uint32_t>(std::lround(p * 65536));
  }
  /// What a weight that is kept is multiplied with.
  [[nodiscard]] double keep_factor() const { return 65536.0 / (65536.0 - threshold()); }
  /// The place of head h of batch entry b among all, in a call with so many heads, modulo 2^32.
  [[nodiscard]] std::uint32_t head_of(std::int64_t b, std::int64_t h, std::int64_t of_call) const {
    return static_cast<std::uint32_t>(sum(first_batch, b) *
                                          static_cast<std::uint64_t>(heads == 0 ? of_call : heads) +
                                      sum(first_head, h));
  }
  /// What the weight of key j for query i is multiplied with; `head` counts over the whole batch.
  [[nodiscard]] double factor(std::uint32_t head, std::int64_t i, std::int64_t j) const {
    if (threshold() == 0) return 1;
    const std::uint64_t key = sum(first_key, j);
    const auto words =
        philox({static_cast<std::uint32_t>(sum(first_query, i)),
                static_cast<std::uint32_t>(key / 8), head, 0},
               {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    const std::uint32_t word = words[static_cast<std::size_t>(key % 8 / 2)];
    const std::uint32_t draw = key % 2 == 0 ? word & 0xFFFF : word >> 16;
    return draw < threshold() ? 0 : keep_factor();
  }

 private:
  /// Of two places, neither of them negative: it may be beyond int64.
  static std::uint64_t sum(std::int64_t a, std::int64_t b) {
    return static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b);
  }
};

}  // namespace oracle

// Which keys a query row may see: intervals from causal, window and lengths, bits from dense masks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/problem.h"
#include "kernels/kernels.h"

namespace heed {

/// Half-open range of keys; empty where begin >= end.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] bool empty() const { return begin >= end; }
};

[[nodiscard]] inline KeyRange intersection(KeyRange a, KeyRange b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

/// a + b, or the 64-bit number that is nearest to it.
[[nodiscard]] std::int64_t add_saturated(std::int64_t a, std::int64_t b);

/// The position of query row i of batch entry b, saturated.
[[nodiscard]] std::int64_t position_of(const Problem& p, std::int64_t b, std::int64_t i);

/// The rows of one tile: which head, query and keys each has, and what all of them share.
struct TileRows {
  int count = 0;
  std::int64_t batch = 0;
  std::int64_t kv_head = 0;
  std::int64_t head[kernels::kMaxTileRows];
  std::int64_t query[kernels::kMaxTileRows];
  KeyRange keys[kernels::kMaxTileRows];  ///< that each may see, before dense masks and biases
  KeyRange some;                         ///< every key that some row may see lies here
  KeyRange all;                          ///< every row may see these, by intervals

  /// Rows first .. first + count - 1 of the rows that share a KV head of batch entry b.
  void assign(const Problem& p, std::int64_t b, std::int64_t shared_head, std::int64_t first,
              int row_count);

  /// True if every row may see every one of these keys, by intervals.
  [[nodiscard]] bool all_see(KeyRange range) const {
    return all.begin <= range.begin && range.end <= all.end;
  }

  /// One bit for each row.
  [[nodiscard]] std::uint64_t full_word() const {
    return count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
  }
};

/// What the rows of a tile may see of a range of keys.
enum class Sight { none, some, all };

/// Fills words[j] with who may see key range.begin + j, by intervals and dense masks.
Sight fill_visible(const Problem& p, const TileRows& rows, KeyRange range,
                   kernels::KeyBits key_bits, std::uint64_t* words);

}  // namespace heed

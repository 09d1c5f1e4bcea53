// Which keys a query row may see: intervals from causal, window and lengths, bits from dense masks.
#include "attention/visibility.h"

#include <algorithm>
#include <limits>

#include "attention/element.h"

namespace heed {
namespace {

/// Keys whose bits are made at a time.
constexpr int kSquare = 64;
/// Bytes of a row's mask by which the next block of keys lies ahead: asked for a block in advance.
constexpr std::uintptr_t kBytesAhead = kernels::kBlockKeys;

/// words[j] &= who may see key range.begin + j by this mask (flip = 0: true may, ~0: false may).
void apply_dense(const View4& mask, std::uint64_t flip, const TileRows& rows, KeyRange range,
                 kernels::KeyBits key_bits, std::uint64_t* words) {
  const bool bytes = mask.stride[3] == 1 && size_of(mask.dtype) == 1;
  const auto step = mask.stride[3] * static_cast<std::int64_t>(size_of(mask.dtype));
  std::uint8_t dense[kernels::kMaxTileRows][kSquare];
  const std::uint8_t* row[kernels::kMaxTileRows];
  for (std::int64_t first = range.begin; first < range.end; first += kSquare) {
    const int count = static_cast<int>(std::min<std::int64_t>(kSquare, range.end - first));
    const std::byte* last = nullptr;
    for (int r = 0; r < rows.count; ++r) {
      const std::byte* at = mask.at(rows.batch, rows.head[r], rows.query[r], first);
      if (bytes) {
        row[r] = reinterpret_cast<const std::uint8_t*>(at);
        __builtin_prefetch(
            reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(at) + kBytesAhead));
        continue;
      }
      row[r] = at == last ? row[r - 1] : dense[r];
      for (int j = 0; at != last && j < count; ++j) {
        dense[r][j] = is_true(at + j * step, mask.dtype) ? 1 : 0;
      }
      last = at;
    }
    std::uint64_t square[kSquare];
    key_bits(row, rows.count, count, square);
    for (int j = 0; j < count; ++j) words[first - range.begin + j] &= square[j] ^ flip;
  }
}

}  // namespace

std::int64_t add_saturated(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return a < 0 ? std::numeric_limits<std::int64_t>::min()
               : std::numeric_limits<std::int64_t>::max();
}

std::int64_t position_of(const Problem& p, std::int64_t b, std::int64_t i) {
  return add_saturated(entry(p.options.mask.query_start, b, 0), i);
}

void TileRows::assign(const Problem& p, std::int64_t b, std::int64_t shared_head,
                      std::int64_t first, int row_count) {
  const Mask& mask = p.options.mask;
  const std::int64_t start = entry(mask.query_start, b, 0);
  const std::int64_t queries = p.queries_of(b);
  const std::int64_t query_end = entry(mask.query_lengths, b, queries);
  std::int64_t key_begin = p.hidden_of(b);
  std::int64_t key_end = entry(mask.key_lengths, b, p.keys_of(b));
  if (key_begin >= key_end) key_begin = key_end = 0;
  const std::int64_t left = mask.window.left;
  const std::int64_t right = mask.causal ? 0 : mask.window.right;
  count = row_count;
  batch = b;
  kv_head = shared_head;
  std::int64_t h = shared_head * p.group() + first / queries;
  std::int64_t i = first % queries;
  for (int r = 0; r < count; ++r, ++i) {
    if (i == queries) {
      i = 0;
      ++h;
    }
    head[r] = h;
    query[r] = i;
  }
  if (left == kUnlimited && right == kUnlimited && query_end >= queries) {
    some = all = {key_begin, key_end};
    std::fill_n(keys, count, all);
    return;
  }
  some = {p.keys, 0};
  all = {0, p.keys};
  for (int r = 0; r < count; ++r) {
    KeyRange seen{key_begin, query[r] < query_end ? key_end : 0};
    const std::int64_t position = add_saturated(start, query[r]);
    if (right != kUnlimited) {
      seen.end = std::min(seen.end, add_saturated(add_saturated(position, right), 1));
    }
    if (left != kUnlimited) seen.begin = std::max(seen.begin, add_saturated(position, -left));
    if (seen.empty()) seen = {};
    keys[r] = seen;
    all = {std::max(all.begin, seen.begin), std::min(all.end, seen.end)};
    if (seen.empty()) continue;
    some = {std::min(some.begin, seen.begin), std::max(some.end, seen.end)};
  }
}

Sight fill_visible(const Problem& p, const TileRows& rows, KeyRange range,
                   kernels::KeyBits key_bits, std::uint64_t* words) {
  const std::int64_t count = range.end - range.begin;
  if (rows.all_see(range)) {
    if (!p.dense_mask()) return Sight::all;
    std::fill_n(words, count, rows.full_word());
  } else {
    // Each row's bit is switched at the two ends of its interval, then carried along the keys.
    std::fill_n(words, count, 0);
    for (int r = 0; r < rows.count; ++r) {
      const KeyRange seen{std::max(rows.keys[r].begin, range.begin),
                          std::min(rows.keys[r].end, range.end)};
      if (seen.empty()) continue;
      words[seen.begin - range.begin] ^= std::uint64_t{1} << r;
      if (seen.end < range.end) words[seen.end - range.begin] ^= std::uint64_t{1} << r;
    }
    for (std::int64_t j = 1; j < count; ++j) words[j] ^= words[j - 1];
  }
  if (p.keep.present) apply_dense(p.keep, 0, rows, range, key_bits, words);
  if (p.drop.present) apply_dense(p.drop, ~std::uint64_t{0}, rows, range, key_bits, words);
  std::uint64_t any = 0;
  std::uint64_t every = rows.full_word();
  for (std::int64_t j = 0; j < count; ++j) {
    any |= words[j];
    every &= words[j];
  }
  if (any == 0) return Sight::none;
  return every == rows.full_word() ? Sight::all : Sight::some;
}

}  // namespace heed

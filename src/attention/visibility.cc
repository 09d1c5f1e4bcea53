// Which keys a query row may see: intervals from causal, window and lengths, bits from dense masks.
#include "attention/visibility.h"

#include <algorithm>
#include <limits>

#include "attention/element.h"

namespace heed {
namespace {

std::int64_t add_saturated(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return a < 0 ? std::numeric_limits<std::int64_t>::min()
               : std::numeric_limits<std::int64_t>::max();
}

/// Transposes a 64 x 64 matrix of bits: bit j of word i becomes bit i of word j. Quadrants are
/// exchanged at half the size in each of six rounds.
void transpose_bits(std::uint64_t (&words)[64]) {
  std::uint64_t low = 0x00000000FFFFFFFFu;
  for (int half = 32; half != 0; half >>= 1, low ^= low << half) {
    for (int i = 0; i < 64; i = ((i | half) + 1) & ~half) {
      const std::uint64_t exchanged = ((words[i] >> half) ^ words[i | half]) & low;
      words[i] ^= exchanged << half;
      words[i | half] ^= exchanged;
    }
  }
}

/// Bit j: element j of a row of a mask is not 0. count <= 64.
std::uint64_t row_bits(const std::byte* row, DType dtype, std::int64_t stride, int count) {
  std::uint64_t bits = 0;
  int j = 0;
  if (stride == 1 && size_of(dtype) == 1) {
    constexpr std::uint64_t kLow = 0x7F7F7F7F7F7F7F7Fu;
    for (; j + 8 <= count; j += 8) {
      const auto bytes = load<std::uint64_t>(row + j);
      const std::uint64_t nonzero = (((bytes & kLow) + kLow) | bytes) & ~kLow;
      // Gathers the eight top bits of the bytes, lowest byte first.
      bits |= ((nonzero >> 7) * 0x0102040810204080u >> 56) << j;
    }
  }
  const auto step = stride * static_cast<std::int64_t>(size_of(dtype));
  for (; j < count; ++j) bits |= std::uint64_t{is_true(row + j * step, dtype)} << j;
  return bits;
}

/// words[j] &= who may see key range.begin + j by this mask (flip = 0: true may, ~0: false may).
void apply_dense(const View4& mask, std::uint64_t flip, const TileRows& rows, KeyRange range,
                 std::uint64_t* words) {
  for (std::int64_t first = range.begin; first < range.end; first += 64) {
    const int count = static_cast<int>(std::min<std::int64_t>(64, range.end - first));
    std::uint64_t square[64] = {};
    const std::byte* last = nullptr;
    for (int r = 0; r < rows.count; ++r) {
      const std::byte* row = mask.at(rows.batch, rows.head[r], rows.query[r], first);
      square[r] =
          row == last ? square[r - 1] : row_bits(row, mask.dtype, mask.stride[3], count) ^ flip;
      last = row;
    }
    transpose_bits(square);
    for (int j = 0; j < count; ++j) words[first - range.begin + j] &= square[j];
  }
}

}  // namespace

std::int64_t position_of(const Problem& p, std::int64_t b, std::int64_t i) {
  return add_saturated(entry(p.options.mask.query_start, b, 0), i);
}

void TileRows::assign(const Problem& p, std::int64_t b, std::int64_t kv_head, std::int64_t first,
                      int row_count) {
  const Mask& mask = p.options.mask;
  const std::int64_t start = entry(mask.query_start, b, 0);
  const std::int64_t query_end = entry(mask.query_lengths, b, p.queries);
  const std::int64_t key_end = entry(mask.key_lengths, b, p.keys);
  const std::int64_t left = mask.window.left;
  const std::int64_t right = mask.causal ? 0 : mask.window.right;
  count = row_count;
  batch = b;
  std::int64_t h = kv_head * p.group() + first / p.queries;
  std::int64_t i = first % p.queries;
  for (int r = 0; r < count; ++r, ++i) {
    if (i == p.queries) {
      i = 0;
      ++h;
    }
    head[r] = h;
    query[r] = i;
  }
  if (left == kUnlimited && right == kUnlimited && query_end >= p.queries) {
    some = all = {0, key_end};
    std::fill_n(keys, count, all);
    return;
  }
  some = {p.keys, 0};
  all = {0, p.keys};
  for (int r = 0; r < count; ++r) {
    KeyRange seen{0, query[r] < query_end ? key_end : 0};
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

Sight fill_visible(const Problem& p, const TileRows& rows, KeyRange range, std::uint64_t* words) {
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
  if (p.keep.present) apply_dense(p.keep, 0, rows, range, words);
  if (p.drop.present) apply_dense(p.drop, ~std::uint64_t{0}, rows, range, words);
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

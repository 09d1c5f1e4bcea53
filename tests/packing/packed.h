// Random sequences laid end to end, and each of them as a call of its own.
#pragma once

#include <vector>

#include "forward/draws.h"
#include "forward/seen.h"
#include "forward/support.h"

namespace heed_test {

/// A call over all sequences. Rows before, between and behind them that belong to none are 0xFF.
template <typename T>
struct Packed {
  Call<T> call;
  std::vector<std::int64_t> query_offsets, key_offsets;

  [[nodiscard]] std::size_t sequences() const { return query_offsets.size() - 1; }

  [[nodiscard]] heed::Packing packing() const {
    const auto n = static_cast<std::int64_t>(query_offsets.size());
    return {heed::view(query_offsets.data(), {n}), heed::view(key_offsets.data(), {n})};
  }

  /// Sequence s alone.
  [[nodiscard]] Call<T> sequence(std::size_t s) const {
    Call<T> one = call;
    one.query_start = one.key_lengths = one.query_lengths = {};
    one = with_keys(with_queries(one, range(query_offsets[s], query_offsets[s + 1]), false),
                    range(key_offsets[s], key_offsets[s + 1]));
    const auto pick = [s](const std::vector<std::int64_t>& all) {
      return all.empty() ? all : std::vector<std::int64_t>{all[all.size() == 1 ? 0 : s]};
    };
    one.query_start = pick(call.query_start);
    one.key_lengths = pick(call.key_lengths);
    one.query_lengths = pick(call.query_lengths);
    return one;
  }
};

struct Lengths {
  std::vector<std::int64_t> queries, keys;
};

/// Any lengths, some of them 0; now and then one that is much longer than the others.
inline Lengths random_lengths(Random& random) {
  Lengths all;
  for (std::int64_t n = random.between(1, 7); n > 0; --n) {
    const auto some = [&] {
      return random.pick<std::int64_t>({0, 1, 2, random.between(3, 40), random.between(60, 200)});
    };
    all.queries.push_back(some());
    all.keys.push_back(random.chance(0.4) ? all.queries.back() : some());
  }
  if (random.chance(0.3)) {
    const auto at =
        static_cast<std::size_t>(random.below(static_cast<std::int64_t>(all.keys.size())));
    all.keys[at] = random.between(760, 1700);
  }
  return all;
}

template <typename T>
Packed<T> packed(Random& random, const Lengths& lengths, Dims d, std::int64_t slack) {
  Packed<T> p;
  const auto offsets = [&](const std::vector<std::int64_t>& counts) {
    std::vector<std::int64_t> all{slack > 0 ? random.below(slack) : 0};
    for (const std::int64_t n : counts) all.push_back(all.back() + n);
    return all;
  };
  p.query_offsets = offsets(lengths.queries);
  p.key_offsets = offsets(lengths.keys);
  const std::int64_t queries = p.query_offsets.back() + slack, keys = p.key_offsets.back() + slack;
  Call<T>& c = p.call;
  c.q = Tensor<T>({1, d.heads, queries, d.size});
  c.k = Tensor<T>({1, d.kv_heads, keys, d.size});
  c.v = Tensor<T>({1, d.kv_heads, keys, d.value_size});
  const auto fill = [&](Tensor<T>& t, const std::vector<std::int64_t>& at) {
    t.each([&](auto b, auto h, auto i, auto x) {
      if (i >= at.front() && i < at.back()) t.at(b, h, i, x) = static_cast<T>(random.normal());
    });
  };
  fill(c.q, p.query_offsets);
  fill(c.k, p.key_offsets);
  fill(c.v, p.key_offsets);
  return p;
}

/// Options of every kind.
template <typename T>
void add_options(Random& random, Packed<T>& p) {
  Call<T>& c = p.call;
  const Dims d = c.dims();
  const std::size_t sequences = p.sequences();
  const auto length = [](const std::vector<std::int64_t>& offsets, std::size_t s) {
    return offsets[s + 1] - offsets[s];
  };
  const auto per_head = [&] {
    std::vector<double> all;
    for (std::int64_t h = 0; h < d.heads; ++h)
      all.push_back(static_cast<double>(random.between(1, 16)) / 8);
    return all;
  };
  c.causal = random.chance(0.4);
  if (random.chance(0.3)) c.left = random.between(0, 60);
  if (random.chance(0.2)) c.right = random.between(0, 60);
  if (random.chance(0.2)) c.scale = per_head();
  if (random.chance(0.2)) c.alibi = per_head();
  if (random.chance(0.2)) c.sinks = per_head();
  if (random.chance(0.2)) c.softcap = 5;
  c.normalize_qk = random.chance(0.2);
  if (random.chance(0.2)) c.mod = Mod::tilt;                    // knows heads, rows and keys
  if (c.mod == Mod::tilt && sequences > 1) c.mod = Mod::holes;  // tilt counts batch entries too
  const bool starts = random.chance(0.4), key_lengths = random.chance(0.2);
  const bool query_lengths = random.chance(0.2);
  for (std::size_t s = 0; s < sequences; ++s) {
    const std::int64_t queries = length(p.query_offsets, s), keys = length(p.key_offsets, s);
    if (starts) c.query_start.push_back(keys - queries + random.between(-2, 2));
    if (key_lengths) c.key_lengths.push_back(random.between(0, keys));
    if (query_lengths) c.query_lengths.push_back(random.between(0, queries));
  }
  const auto shape = [&]() -> Shape {
    return {1, random.chance(0.5) ? d.heads : 1, random.chance(0.7) ? d.queries : 1,
            random.chance(0.8) ? d.keys : 1};
  };
  if (random.chance(0.2)) {
    c.bias = Tensor<double>(shape());
    c.bias.each([&](auto b, auto h, auto i, auto j) {
      c.bias.at(b, h, i, j) = static_cast<double>(random.between(-255, 255)) / 64;
    });
  }
  const auto mask = [&](Tensor<std::uint8_t>& t) {
    t = Tensor<std::uint8_t>(shape());
    t.each([&](auto b, auto h, auto i, auto j) { t.at(b, h, i, j) = random.chance(0.5); });
  };
  if (random.chance(0.2)) mask(c.keep);
  if (random.chance(0.2)) mask(c.drop);
}

template <typename T>
Packed<T> random_packed(Random& random) {
  const std::int64_t kv_heads = random.between(1, 2), group = random.between(1, 3);
  Packed<T> p =
      packed<T>(random, random_lengths(random),
                {1, kv_heads * group, kv_heads, 0, 0, random.between(1, 20), random.between(1, 20)},
                random.pick<std::int64_t>({0, 2, 5}) + 2);
  add_options(random, p);
  return p;
}

/// The rows of one sequence in a packed tensor.
template <typename T>
Tensor<T> rows_of(const Tensor<T>& all, const std::vector<std::int64_t>& offsets, std::size_t s) {
  return gathered(all, 2, range(offsets[s], offsets[s + 1]));
}

/// Rows that belong to no sequence are as they were: 0xFF.
template <typename T>
bool beside_untouched(const Tensor<T>& all, const std::vector<std::int64_t>& offsets) {
  bool untouched = true;
  all.each([&](auto b, auto h, auto i, auto x) {
    if (i >= offsets.front() && i < offsets.back()) return;
    constexpr unsigned char kOnes[8] = {255, 255, 255, 255, 255, 255, 255, 255};
    const T value = all.at(b, h, i, x);
    untouched &= std::memcmp(&value, kOnes, sizeof value) == 0;
  });
  return untouched;
}

template <typename T>
Seen<T> rows_of(const Seen<T>& all, const std::vector<std::int64_t>& offsets, std::size_t s) {
  return gathered(all, 2, range(offsets[s], offsets[s + 1]));
}

template <typename T>
bool beside_untouched(const Seen<T>& all, const std::vector<std::int64_t>& offsets) {
  bool untouched = beside_untouched(all.key, offsets) && beside_untouched(all.visible, offsets);
  for (const auto field : statistic_numbers<T>())
    untouched &= beside_untouched(all.*field, offsets);
  return untouched;
}

}  // namespace heed_test

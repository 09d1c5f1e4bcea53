// A prefix that many sequences share, such as a system prompt: computed once for all of them, then
// merged with each sequence's own keys. The same attention as over prefix and own keys in one call.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "heed/heed.h"

int main() {
  constexpr std::int64_t kSequences = 8, kHeads = 4, kPrefix = 1000, kOwn = 30, kSize = 32;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto drawn = [&](std::int64_t count) {
    std::vector<float> x(static_cast<std::size_t>(count));
    for (float& value : x) value = normal(random);
    return x;
  };
  const auto prefix_k = drawn(kHeads * kPrefix * kSize), prefix_v = drawn(kHeads * kPrefix * kSize);
  const auto own_k = drawn(kSequences * kHeads * kOwn * kSize);
  const auto own_v = drawn(kSequences * kHeads * kOwn * kSize);
  const auto q = drawn(kSequences * kHeads * kSize);  // one query row for each sequence and head

  // The prefix: one batch entry, whose query rows are those of all sequences.
  std::vector<float> o_prefix(q.size()), lse_prefix(q.size() / kSize);
  const auto all_rows = [](auto* data) {
    return heed::view_bthd(data, 1, kSequences, kHeads, kSize);  // [1, H, S, D]
  };
  const auto keys = [](const std::vector<float>& x, std::int64_t batch, std::int64_t count) {
    return heed::view(x.data(), {batch, kHeads, count, kSize});
  };
  heed::TensorView lse_rows = heed::view(lse_prefix.data(), {1, kSequences, kHeads});
  lse_rows = heed::swap_axes(lse_rows, 1, 2);  // [1, H, S]
  heed::attention_forward(all_rows(q.data()), keys(prefix_k, 1, kPrefix),
                          keys(prefix_v, 1, kPrefix),
                          {.output = all_rows(o_prefix.data()), .lse = lse_rows});

  // Each sequence's own keys: one batch entry each.
  const auto one_row = [](auto* data) { return heed::view(data, {kSequences, kHeads, 1, kSize}); };
  const auto lse_of = [](auto* data) { return heed::view(data, {kSequences, kHeads, 1}); };
  std::vector<float> o_own(q.size()), lse_own(lse_prefix.size()), o(q.size());
  heed::attention_forward(one_row(q.data()), keys(own_k, kSequences, kOwn),
                          keys(own_v, kSequences, kOwn),
                          {.output = one_row(o_own.data()), .lse = lse_of(lse_own.data())});
  heed::merge(one_row(o_prefix.data()), lse_of(lse_prefix.data()), one_row(o_own.data()),
              lse_of(lse_own.data()), {.output = one_row(o.data())});

  // The same in one call, the prefix copied in front of each sequence's keys.
  const auto joined = [&](const std::vector<float>& prefix, const std::vector<float>& own) {
    std::vector<float> all;
    for (std::int64_t n = 0; n < kSequences * kHeads; ++n) {
      const auto shared = prefix.begin() + n % kHeads * kPrefix * kSize;
      all.insert(all.end(), shared, shared + kPrefix * kSize);
      all.insert(all.end(), own.begin() + n * kOwn * kSize, own.begin() + (n + 1) * kOwn * kSize);
    }
    return all;
  };
  std::vector<float> whole(q.size());
  heed::attention_forward(
      one_row(q.data()), keys(joined(prefix_k, own_k), kSequences, kPrefix + kOwn),
      keys(joined(prefix_v, own_v), kSequences, kPrefix + kOwn), {.output = one_row(whole.data())});
  float apart = 0;
  for (std::size_t i = 0; i < o.size(); ++i) apart = std::max(apart, std::fabs(o[i] - whole[i]));
  std::printf("keys read: %lld of %lld\n",
              static_cast<long long>(kHeads * (kPrefix + kSequences * kOwn)),
              static_cast<long long>(kHeads * kSequences * (kPrefix + kOwn)));
  std::printf("%s\n", apart < 1e-6F ? "the same attention" : "they differ");
}

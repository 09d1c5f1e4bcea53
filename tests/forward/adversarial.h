// Problems whose scores are given.
#pragma once

#include "forward/call.h"

namespace heed_test {

template <typename T, typename F>
void fill(Tensor<T>& t, F of) {
  t.each([&](auto b, auto h, auto i, auto x) { t.at(b, h, i, x) = static_cast<T>(of(i, x)); });
}

/// q in one column, so that key j's score is exactly score(j) at scale 1.
template <typename T, typename F>
Call<T> with_scores(std::int64_t queries, std::int64_t keys, F score) {
  auto s = plain_call<T>({1, 1, 1, queries, keys, 1, 3}, 41);
  fill(s.q, [](auto, auto) { return 1; });
  fill(s.k, [&](auto j, auto) { return score(j); });
  s.scale = {1};
  return s;
}

}  // namespace heed_test

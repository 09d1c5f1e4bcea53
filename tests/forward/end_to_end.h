// The entries of a batch laid end to end, as sequences of one packed call.
#pragma once

#include "forward/support.h"

namespace heed_test {

/// [B, H, T, X] as [1, H, B T, X].
template <typename T>
Tensor<T> end_to_end(const Tensor<T>& from) {
  Tensor<T> to({1, from.shape[1], from.shape[0] * from.shape[2], from.shape[3]});
  from.each([&](auto b, auto h, auto i, auto x) {
    to.at(0, h, b * from.shape[2] + i, x) = from.at(b, h, i, x);
  });
  return to;
}

/// And back.
template <typename T>
Tensor<T> apart(const Tensor<T>& from, std::int64_t batch) {
  if (!from.present()) return from;
  Tensor<T> to({batch, from.shape[1], from.shape[2] / batch, from.shape[3]});
  to.each([&](auto b, auto h, auto i, auto x) {
    to.at(b, h, i, x) = from.at(0, h, b * to.shape[2] + i, x);
  });
  return to;
}

template <typename T>
Result<T> apart(Result<T> from, std::int64_t batch) {
  from.o = apart(from.o, batch);
  from.lse = apart(from.lse, batch);
  return from;
}

/// The same call of the entries as sequences. Masks and biases must be the same for all entries and
/// rows.
template <typename T>
Call<T> packed(const Call<T>& call);

}  // namespace heed_test

// Packing a call's entries.
#include "forward/end_to_end.h"

namespace heed_test {
namespace {

/// A mask or bias of all entries and rows, as often as there are sequences.
template <typename T>
Tensor<T> repeated(const Tensor<T>& from, std::int64_t sequences) {
  if (!from.present() || from.shape[3] == 1) return from;
  EXPECT_LE(from.shape[0], 1) << "a mask of entries in a packed call";
  EXPECT_LE(from.shape[2], 1) << "a mask of rows in a packed call";
  Tensor<T> to({1, from.shape[1], from.shape[2], from.shape[3] * sequences});
  to.each([&](auto b, auto h, auto i, auto j) {
    to.at(b, h, i, j) = from.at(b, h, i, j % from.shape[3]);
  });
  return to;
}

}  // namespace

template <typename T>
Call<T> packed(const Call<T>& s) {
  const std::int64_t sequences = s.q.shape[0];
  Call<T> p = s;
  p.rank = 4;
  for (auto t : {&Call<T>::q, &Call<T>::k, &Call<T>::v}) p.*t = end_to_end(s.*t);
  p.keep = repeated(s.keep, sequences);
  p.drop = repeated(s.drop, sequences);
  p.bias = repeated(s.bias, sequences);
  for (std::int64_t n = 0; n <= sequences; ++n) {
    p.query_offsets.push_back(n * s.q.shape[2]);
    p.key_offsets.push_back(n * s.k.shape[2]);
  }
  return p;
}

template Call<float> packed(const Call<float>&);
template Call<double> packed(const Call<double>&);

}  // namespace heed_test

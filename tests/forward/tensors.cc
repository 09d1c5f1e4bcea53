// Layouts and random numbers.
#include "forward/tensors.h"

#include <cmath>

namespace heed_test {

std::uint64_t Random::bits() {
  std::uint64_t z = state_ += 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

std::int64_t Random::below(std::int64_t n) {
  return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(n));
}

double Random::uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

double Random::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(6.283185307179586 * uniform());
}

const char* name_of(Layout layout) {
  constexpr std::array<const char*, kLayouts> kNames{
      "BHTD",          "BTHD",     "packed QKV",   "padded rows", "off by one", "stride-0 batch",
      "stride-0 head", "reversed", "strided last", "transposed",  "overlapping"};
  return kNames[static_cast<std::size_t>(layout)];
}

Placement place(const Shape& shape, Layout layout) {
  const auto [B, H, T, X] = shape;
  Placement p{{H * T * X, T * X, X, 1}, 0, 0};
  switch (layout) {
    case Layout::bhtd:
      break;
    case Layout::bthd:
      p.stride = {T * H * X, X, H * X, 1};
      break;
    case Layout::packed_qkv:
      p.stride = {T * 3 * H * X, X, 3 * H * X, 1};
      p.first = H * X;
      break;
    case Layout::padded_row:
      p.stride = {H * T * (X + 5), T * (X + 5), X + 5, 1};
      break;
    case Layout::off_by_one:
      p.first = 1;
      break;
    case Layout::stride0_batch:
      p.stride[0] = 0;
      break;
    case Layout::stride0_head:
      p.stride = {T * X, 0, X, 1};
      break;
    case Layout::reversed:
      p.stride[2] = -X;
      p.first = T > 0 ? (T - 1) * X : 0;
      break;
    case Layout::strided_last:
      p.stride = {H * T * X * 3, T * X * 3, X * 3, 3};
      break;
    case Layout::transposed:
      p.stride = {H * T * X, T * X, 1, T};
      break;
    case Layout::overlapping:
      p.stride[2] = X / 2 + 1;
      p.stride[1] = T * p.stride[2] + X;
      p.stride[0] = H * p.stride[1];
      break;
  }
  // From the lowest address to the highest, with some slack at the end.
  p.span = p.first + 1;
  for (std::size_t a = 0; a < 4; ++a) {
    if (shape[a] == 0) return {p.stride, 0, 1};
    if (p.stride[a] > 0) p.span += (shape[a] - 1) * p.stride[a];
  }
  p.span += layout == Layout::bhtd ? 0 : 7;
  return p;
}

heed::ConstTensorView shown(const void* data, heed::DType dtype, const Shape& shape,
                            const Shape& stride, int rank) {
  heed::ConstTensorView v{data, dtype, rank, {}, {}};
  constexpr std::array<std::array<std::size_t, 4>, 5> kAxes{
      {{}, {3}, {2, 3}, {0, 2, 3}, {0, 1, 2, 3}}};
  for (std::size_t a = 0; a < static_cast<std::size_t>(rank); ++a) {
    const std::size_t axis = kAxes[static_cast<std::size_t>(rank)][a];
    v.shape[a] = shape[axis];
    v.stride[a] = stride[axis];
  }
  return v;
}

}  // namespace heed_test

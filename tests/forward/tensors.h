// Random tensors in any layout, their slack filled with NaN, seen by heed and by the oracle.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "heed/tensor.h"
#include "oracle/attention.h"

namespace heed_test {

/// splitmix64
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits();
  /// in [0, n)
  std::int64_t below(std::int64_t n);
  /// in [low, high]
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }
  /// in [0, 1)
  double uniform();
  double normal();
  bool chance(double p) { return uniform() < p; }
  template <typename T>
  T pick(std::initializer_list<T> all) {
    return all.begin()[below(static_cast<std::int64_t>(all.size()))];
  }

 private:
  std::uint64_t state_;
};

using Shape = std::array<std::int64_t, 4>;

enum class Layout {
  bhtd,
  bthd,
  packed_qkv,     // rows of q, k, v side by side: row stride 3 H D
  padded_row,     // row stride D + 5
  off_by_one,     // base one element after an aligned address
  stride0_batch,  // every batch entry is the same memory; inputs only, as the next one
  stride0_head,
  reversed,      // rows from last to first: negative stride
  strided_last,  // every third element
  transposed,    // rows and columns exchanged
  overlapping,   // row i + 1 begins in the middle of row i; inputs only
};
inline constexpr int kLayouts = 11;
const char* name_of(Layout layout);

/// Layouts in which no two elements share memory.
inline bool writable(Layout layout) {
  return layout != Layout::stride0_batch && layout != Layout::stride0_head &&
         layout != Layout::overlapping;
}

/// Strides and base of a layout, and the elements of memory it spans.
struct Placement {
  Shape stride;
  std::int64_t first, span;
};
Placement place(const Shape& shape, Layout layout);

/// Which of [B, H, T, X] a view of this rank shows: rank 3 has one head, rank 2 one batch entry
/// too.
heed::ConstTensorView shown(const void* data, heed::DType dtype, const Shape& shape,
                            const Shape& stride, int rank);

/// A view without its last axis, of length 1.
template <typename View>
View without_last_axis(View view) {
  --view.rank;
  return view;
}

/// Owns its memory, all of it 0xFF (NaN) at first; axes are [B, H, T, X].
template <typename T>
struct Tensor {
  Shape shape{}, stride{};
  std::int64_t first = 0;
  std::vector<T> memory;

  Tensor() = default;
  explicit Tensor(const Shape& s, Layout layout = Layout::bhtd) : shape(s) {
    const Placement p = place(s, layout);
    stride = p.stride;
    first = p.first;
    memory.resize(static_cast<std::size_t>(p.span));
    if (!memory.empty()) std::memset(memory.data(), 0xFF, memory.size() * sizeof(T));
  }

  [[nodiscard]] std::size_t index(std::int64_t b, std::int64_t h, std::int64_t i,
                                  std::int64_t x) const {
    return static_cast<std::size_t>(first + b * stride[0] + h * stride[1] + i * stride[2] +
                                    x * stride[3]);
  }
  T& at(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t x) {
    return memory[index(b, h, i, x)];
  }
  const T& at(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t x) const {
    return memory[index(b, h, i, x)];
  }
  [[nodiscard]] bool present() const { return shape != Shape{}; }
  [[nodiscard]] std::int64_t count() const { return shape[0] * shape[1] * shape[2] * shape[3]; }

  /// f(b, h, i, x) for every element, in the order of their axes.
  template <typename F>
  void each(F f) const {
    for (std::int64_t b = 0; b < shape[0]; ++b)
      for (std::int64_t h = 0; h < shape[1]; ++h)
        for (std::int64_t i = 0; i < shape[2]; ++i)
          for (std::int64_t x = 0; x < shape[3]; ++x) f(b, h, i, x);
  }

  [[nodiscard]] heed::ConstTensorView view(int rank = 4) const {
    return shown(memory.data() + first, heed::detail::dtype_of<T>(), shape, stride, rank);
  }
  heed::TensorView out(int rank = 4) {
    const heed::ConstTensorView v = view(rank);
    return {memory.data() + first, v.dtype, v.rank, v.shape, v.stride};
  }
  /// For the oracle; axes of length 1 broadcast.
  [[nodiscard]] oracle::View<T> plain() const {
    oracle::View<T> v{memory.data() + first, stride};
    for (std::size_t a = 0; a < 4; ++a)
      if (shape[a] == 1) v.stride[a] = 0;
    return v;
  }
};

/// The same elements in another layout.
template <typename T>
Tensor<T> laid_out(const Tensor<T>& from, Layout layout) {
  Tensor<T> to(from.shape, layout);
  from.each([&](auto b, auto h, auto i, auto x) { to.at(b, h, i, x) = from.at(b, h, i, x); });
  return to;
}

template <typename T>
void fill_normal(Tensor<T>& tensor, Random& random, double factor = 1) {
  tensor.each([&](auto b, auto h, auto i, auto x) {
    tensor.at(b, h, i, x) = static_cast<T>(factor * random.normal());
  });
}

}  // namespace heed_test

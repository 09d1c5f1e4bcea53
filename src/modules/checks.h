// What modules ask of the views that they are given, and of memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "attention/checker.h"
#include "heed/error.h"
#include "heed/modules.h"
#include "modules/rows.h"

namespace heed {

/// The rules of initialise(), also in the name of a module that draws its weights.
inline void check_initialisation(const Checker& check, const Initialisation& initialisation) {
  const auto draw = static_cast<int>(initialisation.draw);
  check.require(draw <= static_cast<int>(Draw::constant_deviation), "draw is ", draw,
                ", which is no Draw");
  const double deviation = initialisation.deviation;
  constexpr double kMost = 5.67e37;  // six of it, the largest number drawn, are a float
  check.require(deviation >= 0 && deviation <= kMost, "deviation is ", deviation,
                "; expected 0 .. 5.67e+37");
}

/// A float32 view of rank `least` to `most` whose rows have `size` elements.
inline Rows check_rows(const Checker& check, const char* name, const ConstTensorView& view,
                       std::int64_t size, int least, int most) {
  check.require(view.present(), name, " is absent; expected a view to read from");
  check.memory(name, view, true);
  check.require(view.dtype == DType::f32, name, " is ", view.dtype, "; expected float32");
  check.require(view.rank >= least && view.rank <= most, name, " has rank ", view.rank,
                "; expected ", least, " .. ", most);
  const std::int64_t last = view.shape[static_cast<std::size_t>(view.rank - 1)];
  check.require(last == size, name, " has shape ", List{view.shape, view.rank},
                "; expected rows of ", size);
  return rows_of(view);
}

/// Memory of a module, as what is read or written beside the views of a call.
inline NamedView held(const char* name, std::span<const float> memory) {
  if (memory.empty()) return {name, ConstTensorView{}};
  return {name, view(memory.data(), {static_cast<std::int64_t>(memory.size())})};
}

/// The parameters of multi-head attention.
inline std::array<NamedView, 9> held(const Linear& q, const Linear& k, const Linear& v,
                                     const Linear& o, std::span<const float> temperature) {
  return {held("W_q", q.weight()), held("W_k", k.weight()), held("W_v", v.weight()),
          held("W_o", o.weight()), held("b_q", q.bias()),   held("b_k", k.bias()),
          held("b_v", v.bias()),   held("b_o", o.bias()),   held("temperature", temperature)};
}

inline std::array<NamedView, 5> held(const SavedAttention& saved) {
  return {held("saved.q", saved.q), held("saved.k", saved.k), held("saved.v", saved.v),
          held("saved.attended", saved.attended), held("saved.lse", saved.lse)};
}

/// The shape of `like` with rows of another size.
inline Sizes resized(const ConstTensorView& like, std::int64_t size) {
  Sizes sizes = like.shape;
  sizes[static_cast<std::size_t>(like.rank - 1)] = size;
  return sizes;
}

/// A float32 view of the shape of `like`, but rows of `size`.
inline Rows check_rows_like(const Checker& check, const char* name, const ConstTensorView& view,
                            const ConstTensorView& like, std::int64_t size) {
  const Rows rows = check_rows(check, name, view, size, 2, 4);
  const Sizes sizes = resized(like, size);
  const auto rank = static_cast<std::ptrdiff_t>(view.rank);
  const bool same = view.rank == like.rank &&
                    std::equal(view.shape.begin(), view.shape.begin() + rank, sizes.begin());
  check.require(same, name, " has shape ", List{view.shape, view.rank}, "; expected ",
                List{sizes, like.rank});
  return rows;
}

/// The same for a view to write to.
inline Rows check_written(const Checker& check, const char* name, const TensorView& view,
                          const ConstTensorView& like, std::int64_t size) {
  const Rows rows = check_rows_like(check, name, view, like, size);
  check.require(!may_overlap_itself(view), name, " has shape ", List{view.shape, view.rank},
                " and strides ", List{view.stride, view.rank},
                "; no two of its elements may share memory");
  return rows;
}

/// Makes the vector have a x b elements.
inline void resize(const char* function, std::vector<float>& vector, std::int64_t a,
                   std::int64_t b) {
  std::int64_t count = 0;
  try {
    if (__builtin_mul_overflow(a, b, &count)) throw std::length_error("");
    vector.resize(static_cast<std::size_t>(count));
    return;
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  throw Error(ErrorKind::memory, std::string(function) + ": no memory for " + std::to_string(a) +
                                     " x " + std::to_string(b) + " numbers, 4 bytes each");
}

/// A bias, or null for none.
inline const float* or_null(std::span<const float> numbers) {
  return numbers.empty() ? nullptr : numbers.data();
}
inline float* or_null(std::span<float> numbers) {
  return numbers.empty() ? nullptr : numbers.data();
}

}  // namespace heed

// Do views share memory?
#include "attention/overlap.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <span>

namespace heed {
namespace {

struct Axis {
  std::int64_t size;
  std::int64_t step;  // bytes, positive
};

/// A view as the lowest byte that it touches and its axes of more than one element, by step.
struct Footprint {
  std::intptr_t first = 0;
  std::int64_t element = 0;
  bool empty = false;

  explicit Footprint(const ConstTensorView& view)
      : first(reinterpret_cast<std::intptr_t>(view.data)),
        element(static_cast<std::int64_t>(size_of(view.dtype))) {
    const auto* const shape = view.shape.data();
    empty = std::any_of(shape, shape + view.rank, [](std::int64_t size) { return size == 0; });
    if (empty) return;  // its strides may be any numbers
    for (int axis = 0; axis < view.rank; ++axis) {
      const auto a = static_cast<std::size_t>(axis);
      if (view.shape[a] <= 1) continue;
      const std::int64_t step = view.stride[a] * element;
      if (step < 0) first += step * (view.shape[a] - 1);
      insert({view.shape[a], step < 0 ? -step : step});
    }
  }

  [[nodiscard]] std::span<const Axis> axes() const { return {axes_.data(), count_}; }

  /// Bytes from the first to the end of the last, over the axes whose step is below `limit`.
  [[nodiscard]] std::int64_t span_below(std::int64_t limit) const {
    std::int64_t span = element;
    for (const Axis axis : axes()) {
      if (axis.step < limit) span += (axis.size - 1) * axis.step;
    }
    return span;
  }

 private:
  void insert(Axis axis) {  // keeps them sorted by step
    std::size_t at = count_++;
    for (; at > 0 && axes_[at - 1].step > axis.step; --at) axes_[at] = axes_[at - 1];
    axes_[at] = axis;
  }

  std::array<Axis, kMaxRank> axes_{};
  std::size_t count_ = 0;
};

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

/// True if, modulo some pitch that all long steps share, the two stay in disjoint columns.
bool in_disjoint_columns(const Footprint& a, const Footprint& b) {
  const auto disjoint_with = [&](std::int64_t limit) {  // steps from `limit` on are long
    std::int64_t pitch = 0;
    for (const Footprint* f : {&a, &b}) {
      for (const Axis axis : f->axes()) {
        if (axis.step >= limit) pitch = std::gcd(pitch, axis.step);
      }
    }
    if (pitch == 0) return false;
    const std::int64_t apart = ((b.first - a.first) % pitch + pitch) % pitch;
    return a.span_below(limit) <= apart && apart + b.span_below(limit) <= pitch;
  };
  for (const Footprint* f : {&a, &b}) {
    for (const Axis axis : f->axes()) {
      if (disjoint_with(axis.step)) return true;
    }
  }
  return false;
}

}  // namespace

bool may_overlap_itself(const ConstTensorView& view) {
  const Footprint f(view);
  if (f.empty) return false;
  std::int64_t span = f.element;
  for (const Axis axis : f.axes()) {
    if (axis.step < span) return true;
    span += (axis.size - 1) * axis.step;
  }
  return false;
}

bool may_overlap(const ConstTensorView& a, const ConstTensorView& b) {
  const Footprint f(a);
  const Footprint g(b);
  if (f.empty || g.empty) return false;
  const bool apart =
      f.first + f.span_below(kNoLimit) <= g.first || g.first + g.span_below(kNoLimit) <= f.first;
  return !apart && !in_disjoint_columns(f, g);
}

}  // namespace heed

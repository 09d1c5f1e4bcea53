// Calls as no program should make them: views moved between unreadable pages, one thing of a call
// changed, and what must hold all the same.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "forward/guarded.h"
#include "problem.h"

namespace heed_fuzz {

/// The elements that a view reaches, before and from its first one on; false if they are too many.
inline bool reach(const heed::ConstTensorView& view, std::int64_t& below, std::int64_t& above) {
  below = above = 0;
  if (view.rank < 0 || view.rank > heed::kMaxRank) return true;
  for (int a = 0; a < view.rank; ++a) {
    const auto axis = static_cast<std::size_t>(a);
    if (view.shape[axis] <= 0) return true;
  }
  for (int a = 0; a < view.rank; ++a) {
    const auto axis = static_cast<std::size_t>(a);
    const auto last = static_cast<__int128>(view.shape[axis] - 1) * view.stride[axis];
    if (last > 1 << 16 || last < -(1 << 16)) return false;
    (last < 0 ? below : above) += static_cast<std::int64_t>(last);
  }
  return true;
}

/// The views of a call, moved to guarded memory.
class Placed {
 public:
  explicit Placed(bool at_end) : at_end_(at_end) {}

  /// A copy of what the view shows; `view` then shows the copy.
  void copy(heed::ConstTensorView& view) {
    std::int64_t below = 0, above = 0;
    if (!view.present() || view.data == nullptr || !reach(view, below, above)) return;
    const auto size = static_cast<std::int64_t>(heed::size_of(view.dtype));
    const bool empty = std::ranges::any_of(view.shape.begin(), view.shape.begin() + view.rank,
                                           [](auto n) { return n == 0; });
    const auto bytes = empty ? 0 : static_cast<std::size_t>((above - below + 1) * size);
    memory_.emplace_back(bytes, at_end_);
    if (bytes > 0)
      std::memcpy(memory_.back().data(), static_cast<const std::byte*>(view.data) + below * size,
                  bytes);
    view.data = memory_.back().data() - below * size;
  }
  /// Memory for what the view shows, filled; for a view that does not show what it did. Where that
  /// is too much, none at all that may be touched.
  bool fill(heed::ConstTensorView& view, int with) {
    std::int64_t below = 0, above = 0;
    if (!reach(view, below, above)) {
      memory_.emplace_back(0, true);
      view.data = memory_.back().data() + 4096;
      return false;
    }
    const auto size = static_cast<std::int64_t>(heed::size_of(view.dtype));
    const auto bytes = static_cast<std::size_t>((above - below + 1) * size);
    memory_.emplace_back(bytes, at_end_);
    std::memset(memory_.back().data(), with, bytes);
    if (view.data != nullptr) view.data = memory_.back().data() - below * size;
    return true;
  }

 private:
  std::vector<heed_test::Guarded> memory_;
  bool at_end_;
};

/// The elements of guarded memory, back to where the tensor's owner looks for them.
template <typename T>
void copy_back(const heed::ConstTensorView& from, heed_test::Tensor<T>& to) {
  if (!to.present() || to.count() == 0 || from.data == nullptr) return;
  std::int64_t below = 0, above = 0;
  reach(from, below, above);
  const auto size = static_cast<std::int64_t>(sizeof(T));
  auto* start = reinterpret_cast<std::byte*>(to.memory.data() + to.first) + below * size;
  std::memcpy(start, static_cast<const std::byte*>(from.data) + below * size,
              static_cast<std::size_t>((above - below + 1) * size));
}

/// What is changed of a view. Returns false if it stays as it was.
inline bool change(heed::ConstTensorView& view, Bytes& bytes) {
  const heed::ConstTensorView before = view;
  const auto axis = static_cast<std::size_t>(bytes.below(heed::kMaxRank));
  const std::int64_t size = view.shape[axis], stride = view.stride[axis];
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  switch (bytes.below(5)) {
    case 0:
      view.data = nullptr;
      break;
    case 1:
      view.rank = static_cast<int>(bytes.pick<std::int64_t>({0, 1, 2, 3, 4, 5, -1, 1 << 30}));
      break;
    case 2:
      view.shape[axis] = bytes.pick<std::int64_t>({0, 1, size - 1, size + 1, 2 * size, -1, -size,
                                                   kMost, -kMost - 1, std::int64_t{1} << 62});
      break;
    case 3:
      view.stride[axis] =
          bytes.pick<std::int64_t>({0, 1, 2, -1, -stride, stride + 1, 2 * stride, size, kMost,
                                    -kMost - 1, std::int64_t{1} << 61, std::int64_t{1} << 32});
      break;
    default:
      view.dtype = static_cast<heed::DType>(bytes.below(13));
  }
  return view.data != before.data || view.rank != before.rank || view.shape != before.shape ||
         view.stride != before.stride || view.dtype != before.dtype;
}

/// A tensor [B, H, T, 1] without its last axis.
template <typename T>
heed::TensorView rows(heed_test::Tensor<T>& t, int rank) {
  heed::TensorView view = t.present() ? t.out(rank) : heed::TensorView{};
  if (t.present()) --view.rank;
  return view;
}

/// The memory that a view reaches; none where that is too much, or nothing is there.
inline std::span<std::byte> region(const heed::ConstTensorView& view) {
  std::int64_t below = 0, above = 0;
  if (!view.present() || view.data == nullptr) return {};
  if (view.rank < 0 || view.rank > heed::kMaxRank || !reach(view, below, above)) return {};
  if (std::any_of(view.shape.begin(), view.shape.begin() + view.rank,
                  [](auto n) { return n <= 0; }))
    return {};
  const auto size = static_cast<std::int64_t>(heed::size_of(view.dtype));
  auto* from = static_cast<std::byte*>(const_cast<void*>(view.data)) + below * size;
  return {from, static_cast<std::size_t>((above - below + 1) * size)};
}

/// Whether the bytes at x are a NaN of the type.
inline bool is_nan(const std::byte* x, heed::DType dtype) {
  const auto as = [x](auto number) {
    std::memcpy(&number, x, sizeof number);
    return number;
  };
  switch (dtype) {
    case heed::DType::f64:
      return std::isnan(as(double{}));
    case heed::DType::f32:
      return std::isnan(as(float{}));
    case heed::DType::f16:
      return (as(std::uint16_t{}) & 0x7FFFU) > 0x7C00U;
    case heed::DType::bf16:
      return (as(std::uint16_t{}) & 0x7FFFU) > 0x7F80U;
    default:
      return false;
  }
}

/// The same elements, bit for bit, and any NaN for a NaN.
inline bool same(std::span<const std::byte> a, std::span<const std::byte> b, heed::DType dtype) {
  if (a.size() != b.size()) return false;
  const std::size_t size = heed::size_of(dtype);
  for (std::size_t at = 0; at < a.size(); at += size) {
    const std::byte *x = a.data() + at, *y = b.data() + at;
    if (std::memcmp(x, y, size) != 0 && !(is_nan(x, dtype) && is_nan(y, dtype))) return false;
  }
  return true;
}

/// All that calls of the type can have here; where HEED_MAX_ISA is set, as under valgrind, the one
/// it means.
inline std::vector<heed::Isa> instruction_sets(heed::DType dtype = heed::DType::f32) {
  static const std::vector<heed::Isa> one = std::getenv("HEED_MAX_ISA") == nullptr
                                                ? std::vector<heed::Isa>{}
                                                : std::vector{heed::instruction_set()};
  return one.empty() ? heed_test::isas_of(dtype) : one;
}

struct Unjudged {
  void operator()(const auto& /*arguments*/) const {}
};

/// Runs a call with something changed: refused, outputs as they were, or the same bits on all
/// instruction sets, that with dot products of bfloat16 alone excepted.
/// Arguments has views() and outputs, both bare views, call(), and change(bytes) for what is no
/// view, which may say that the call is now impossible.
/// judge(arguments) sees what was done, once for all sets of the same bits.
template <typename Arguments, typename Judge = Unjudged>
void run_changed(Arguments arguments, Bytes& bytes, bool at_end,
                 heed::DType dtype = heed::DType::f32, const Judge& judge = {}) {
  Placed placed(at_end);
  const auto views = arguments.views();
  for (auto* view : views) placed.copy(*view);
  bool changed = true;
  if (bytes.chance(64)) {
    arguments.change(bytes);
  } else {
    auto& view =
        *views[static_cast<std::size_t>(bytes.below(static_cast<std::int64_t>(views.size())))];
    const auto shape = view.shape;
    changed = change(view, bytes);
    if (changed && !placed.fill(view, 1) && view.shape == shape) return;  // may be legal: far apart
  }
  if (!changed) return;
  struct Output {
    std::span<std::byte> at;
    heed::DType dtype;
    std::vector<std::byte> before, best;
  };
  std::vector<Output> outputs;
  for (const auto& view : arguments.outputs) {
    const std::span<std::byte> at = region(view);
    if (!at.empty()) outputs.push_back({at, view.dtype, {at.begin(), at.end()}, {}});
  }
  auto isas = instruction_sets(dtype);
  std::ranges::reverse(isas);
  bool judged = false;
  std::optional<bool> refused_before;  // on the instruction sets so far
  for (const heed::Isa isa : isas) {
    heed::cap_instruction_set(isa);
    for (auto& o : outputs) std::ranges::copy(o.before, o.at.begin());
    bool refused = false;
    try {
      arguments.call();
    } catch (const heed::Error& error) {
      expect(error.kind() == heed::ErrorKind::argument, error.what());
      expect(std::string(error.what()).size() < 600, error.what());
      for (const auto& o : outputs)
        expect(std::ranges::equal(o.before, o.at),
               std::string("written in spite of: ") + error.what());
      refused = true;
    }
    expect(refused == refused_before.value_or(refused),
           "refused on one instruction set, done on another");
    refused_before = refused;
    if (refused) continue;
    if constexpr (requires { arguments.impossible; })
      expect(!arguments.impossible, "what must be refused was done");
    if (!judged) judge(arguments);
    if (isa == heed_test::kPaired) continue;
    judged = true;
    for (auto& o : outputs) {
      if (o.best.empty()) o.best.assign(o.at.begin(), o.at.end());
      expect(same(o.best, o.at, o.dtype), "other bits on another instruction set");
    }
  }
}

}  // namespace heed_fuzz

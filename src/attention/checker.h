// The rules that views and numbers of any call must keep, and how a breach is told.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "attention/element.h"
#include "attention/overlap.h"
#include "attention/problem.h"
#include "heed/error.h"
#include "kernels/order.h"

namespace heed {

// Parts of a message: only put together when it is needed.
using Sizes = std::array<std::int64_t, 4>;

/// "[2, 8, 16, 64]"
struct List {
  const Sizes& numbers;
  int count;
};
/// "mask.key_lengths" or "mask.key_lengths[3]"
struct Entry {
  const char* name;
  std::int64_t index = -1;  ///< no index where negative
};

inline void append(std::string& s, const char* part) { s += part; }
inline void append(std::string& s, std::int64_t part) { s += std::to_string(part); }
inline void append(std::string& s, int part) { s += std::to_string(part); }
inline void append(std::string& s, DType part) { s += name_of(part); }
/// Digits enough to tell the number from all others of its type, as the C locale writes them.
template <std::floating_point Number>
void append(std::string& s, Number part) {
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), part);
  s.append(buffer.data(), end.ptr);
}
inline void append(std::string& s, List part) {
  s += "[";
  for (int i = 0; i < part.count; ++i) {
    if (i > 0) s += ", ";
    s += std::to_string(part.numbers[static_cast<std::size_t>(i)]);
  }
  s += "]";
}
inline void append(std::string& s, Entry part) {
  s += part.name;
  if (part.index < 0) return;
  s += "[";
  s += std::to_string(part.index);
  s += "]";
}

/// The place of the caller's axis in [batch, head, row, column], for q of this rank.
inline std::size_t canonical_axis(int rank, int axis) {
  if (rank == 3 && axis == 0) return 0;
  return static_cast<std::size_t>(axis + 4 - rank);
}

/// A view with the name that messages call it by.
using NamedView = std::pair<const char*, ConstTensorView>;

/// Of a view with one axis, the first entries that may differ: none after the first where the
/// stride is 0, so that memory bounds their number.
inline std::int64_t differing(const ConstTensorView& view) {
  return view.stride[0] == 0 ? std::min<std::int64_t>(view.shape[0], 1) : view.shape[0];
}

/// What the type that is computed in is, said after its name.
inline const char* of_scores(const Problem& p) {
  return p.dtype == p.element ? ", the type of q" : ", the type of scores";
}

/// Checks for one function, in whose name it throws heed::Error.
class Checker {
 public:
  explicit Checker(const char* function) : function_(function) {}

  [[nodiscard]] const char* function() const { return function_; }

  /// Throws "function: parts" unless it holds.
  template <typename... Parts>
  void require(bool holds, const Parts&... parts) const {
    if (holds) [[likely]]
      return;
    std::string message = std::string(function_) + ": ";
    (append(message, parts), ...);
    throw Error(message);
  }

  /// Rank, sizes and strides that can be computed with, and memory behind them.
  void memory(const char* name, const ConstTensorView& view, bool needs_data) const {
    require(view.rank >= 0 && view.rank <= kMaxRank, name, " has rank ", view.rank,
            view.rank < 0 ? "; expected 0 or more" : "; expected at most 4");
    require(size_of(view.dtype) > 0, name, " is of element type ", static_cast<int>(view.dtype),
            ", which is no DType");
    std::int64_t elements = 1;
    std::int64_t span = 0;
    bool overflow = false;
    bool far = false;  // where elements would lie; a stride that leads to none may be any number
    bool empty = false;
    for (int axis = 0; axis < view.rank; ++axis) {
      const std::int64_t size = view.shape[static_cast<std::size_t>(axis)];
      const std::int64_t stride = view.stride[static_cast<std::size_t>(axis)];
      require(size >= 0, name, " has shape ", List{view.shape, view.rank},
              "; sizes must not be negative");
      if (size == 0) {
        empty = true;
        continue;
      }
      overflow |= __builtin_mul_overflow(elements, size, &elements);
      if (size == 1) continue;
      std::int64_t reach = 0;
      far |= stride == std::numeric_limits<std::int64_t>::min() ||
             __builtin_mul_overflow(size - 1, stride < 0 ? -stride : stride, &reach) ||
             __builtin_add_overflow(span, reach, &span);
    }
    std::int64_t bytes = 0;
    const auto element = static_cast<std::int64_t>(size_of(view.dtype));
    overflow |= __builtin_mul_overflow(elements, element, &bytes);
    far |= __builtin_mul_overflow(span, element, &bytes);
    require(!overflow && (empty || !far), name, " has shape ", List{view.shape, view.rank},
            " and strides ", List{view.stride, view.rank},
            "; its extent must fit 63 bits of bytes");
    require(!needs_data || empty || view.data != nullptr, name, " has shape ",
            List{view.shape, view.rank}, " but no data; expected a pointer that is not null");
  }

  /// A view of exactly this shape (canonical sizes, the first `last_axis` + 1 axes of them).
  template <typename View>
  View4 exact(const char* name, const View& view, int rank,
              const std::array<std::int64_t, 4>& sizes, int dropped = 0) const {
    const int expected = rank - dropped;
    std::array<std::int64_t, 4> want{};
    for (int axis = 0; axis < expected; ++axis) {
      want[static_cast<std::size_t>(axis)] = sizes[canonical_axis(rank, axis)];
    }
    bool fits = view.rank == expected;
    for (int axis = 0; fits && axis < expected; ++axis) {
      const auto a = static_cast<std::size_t>(axis);
      fits = view.shape[a] == want[a];
    }
    require(fits, name, " has shape ", List{view.shape, view.rank}, "; expected ",
            List{want, expected});
    return canonical(view, rank);
  }

  /// A view that broadcasts, right-aligned, against [batch, head, row, column].
  View4 broadcast(const char* name, const ConstTensorView& view, int rank,
                  const std::array<std::int64_t, 4>& sizes) const {
    if (!view.present()) return {};
    std::array<std::int64_t, 4> want{};
    for (int axis = 0; axis < rank; ++axis) {
      want[static_cast<std::size_t>(axis)] = sizes[canonical_axis(rank, axis)];
    }
    bool fits = view.rank <= rank;
    const bool empty = has_no_elements(view);
    View4 result{static_cast<std::byte*>(const_cast<void*>(view.data)), view.dtype, true, {}};
    for (int axis = 0; fits && axis < view.rank; ++axis) {
      const auto a = static_cast<std::size_t>(axis);
      const std::size_t at = canonical_axis(rank, axis + rank - view.rank);
      fits = view.shape[a] == 1 || view.shape[a] == sizes[at];
      result.stride[at] = view.shape[a] == 1 || empty ? 0 : view.stride[a];
    }
    require(fits, name, " has shape ", List{view.shape, view.rank},
            "; expected one that broadcasts to ", List{want, rank});
    return result;
  }

  /// A setting of `count` entries of one of two types.
  void entries(const char* name, const ConstTensorView& view, std::int64_t count, const char* per,
               DType narrow, DType wide) const {
    if (!view.present()) return;
    memory(name, view, true);
    require(view.dtype == narrow || view.dtype == wide, name, " is ", view.dtype, "; expected ",
            narrow, " or ", wide);
    require(view.rank == 1 && view.shape[0] == count, name, " has shape ",
            List{view.shape, view.rank}, "; expected [", count, "], one for each ", per);
  }

  /// One integer per batch entry b, all within [lowest, highest(b)], of which the first `limits`
  /// differ.
  template <typename Highest>
  void lengths(const char* name, const PerBatch& setting, std::int64_t batches, std::int64_t limits,
               std::int64_t lowest, const Highest& highest) const {
    if (!setting.present()) return;
    one_or_each(name, setting);
    entries(name, setting.each, batches, "batch entry", DType::i32, DType::i64);
    // No memory bounds the batch of tensors without elements. One for all has to be right even
    // where there is no entry.
    const std::int64_t differ =
        setting.one ? limits : std::min(batches, std::max(differing(setting.each), limits));
    for (std::int64_t b = 0; b < differ; ++b) {
      const std::int64_t n = entry(setting, b, 0);
      require(lowest <= n && n <= highest(b), Entry{name, setting.one ? -1 : b}, " is ", n,
              "; expected ", lowest, " .. ", highest(b));
    }
  }

  template <typename Setting>
  void one_or_each(const char* name, const Setting& setting) const {
    require(!setting.one || !setting.each.present(), name,
            " has both one and each; expected one of them");
  }

  /// A factor that stays finite in the type that computes with it, in base 2 too.
  void factor(Entry name, double number, DType dtype) const {
    const bool fits = dtype == DType::f64
                          ? std::isfinite(number * kernels::kLog2e<double>)
                          : std::isfinite(static_cast<float>(number) * kernels::kLog2e<float>);
    require(fits, name, " is ", number, "; expected a number that is finite as ", dtype,
            ", also times log2(e)");
  }

  /// An input beside q, k and v, of exactly these sizes.
  View4 input(const char* name, const ConstTensorView& view, int rank, const Sizes& sizes,
              int dropped, DType dtype, DType of_q) const {
    require(view.present(), name, " is absent; expected a view to read from");
    memory(name, view, true);
    require(view.dtype == dtype, name, " is ", view.dtype, "; expected ", dtype,
            dtype == of_q ? ", the type of q" : "");
    return exact(name, view, rank, sizes, dropped);
  }

  /// A score function that has a derivative, where there is one.
  void derivative(const ScoreMod& mod, const Problem& p) const {
    const bool missing = p.dtype == DType::f32
                             ? mod.f32 != nullptr && mod.derivative_f32 == nullptr
                             : mod.f64 != nullptr && mod.derivative_f64 == nullptr;
    require(!missing, "score_mod has no derivative for ", p.dtype, of_scores(p));
  }

  /// A view to write to, of exactly these sizes; nothing if it is absent.
  View4 output(const char* name, const TensorView& view, int rank, const Sizes& sizes, int dropped,
               DType dtype, DType of_q) const {
    if (!view.present()) return {};
    memory(name, view, true);
    require(view.dtype == dtype, name, " is ", view.dtype, "; expected ", dtype,
            dtype == of_q ? ", the type of q" : "");
    View4 result = exact(name, view, rank, sizes, dropped);
    require(!may_overlap_itself(view), name, " has shape ", List{view.shape, view.rank},
            " and strides ", List{view.stride, view.rank},
            "; no two of its elements may share memory");
    return result;
  }

  /// What is written shares no memory with what is read, nor with itself.
  template <typename Written, typename Read>
  void distinct(const Written& written, const Read& read) const {
    const auto apart = [this](const NamedView& a, const NamedView& b) {
      require(!b.second.present() || !may_overlap(a.second, b.second), a.first, " overlaps ",
              b.first, " in memory; expected memory of its own");
    };
    for (const NamedView& out : written) {
      if (!out.second.present()) continue;  // most of them, and a small call takes a microsecond
      for (const NamedView& in : read) apart(out, in);
      for (const NamedView& other : written) {
        if (out.first != other.first) apart(out, other);
      }
    }
  }

  template <typename View>
  static View4 canonical(const View& view, int rank) {
    View4 result{static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(view.data))),
                 view.dtype,
                 true,
                 {}};
    // The stride of a single element, or of a tensor without any, which may have no memory either,
    // may be any number, and is none to compute an address with.
    const bool empty = has_no_elements(view);
    for (int axis = 0; axis < view.rank; ++axis) {
      const auto a = static_cast<std::size_t>(axis);
      const std::int64_t single = canonical_axis(rank, axis) == 3 ? 1 : 0;
      result.stride[canonical_axis(rank, axis)] =
          view.shape[a] > 1 && !empty ? view.stride[a] : single;
    }
    return result;
  }

 private:
  template <typename View>
  static bool has_no_elements(const View& view) {
    return std::any_of(view.shape.begin(), view.shape.begin() + view.rank,
                       [](std::int64_t size) { return size == 0; });
  }

  const char* function_;
};

}  // namespace heed

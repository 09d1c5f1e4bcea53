// Memory between unreadable pages, where what is read or written outside faults, and memory with
// strides beyond 32 bits.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "heed/attention.h"

namespace heed_test {

/// f(place in one, place in the other) for every element of two views of one shape and type.
template <typename F>
void each_element(const heed::ConstTensorView& one, const heed::ConstTensorView& other,
                  const F& f) {
  const auto size = static_cast<std::int64_t>(heed::size_of(one.dtype));
  std::array<std::int64_t, heed::kMaxRank> at{};
  for (int a = 0; a < one.rank; ++a)
    if (one.shape[static_cast<std::size_t>(a)] == 0) return;
  for (;;) {
    std::int64_t here = 0, there = 0;
    for (std::size_t a = 0; a < at.size(); ++a) {
      here += at[a] * one.stride[a];
      there += at[a] * other.stride[a];
    }
    f(static_cast<std::byte*>(const_cast<void*>(one.data)) + here * size,
      static_cast<const std::byte*>(other.data) + there * size);
    int a = one.rank - 1;
    for (; a >= 0; --a) {
      const auto axis = static_cast<std::size_t>(a);
      if (++at[axis] < one.shape[axis]) break;
      at[axis] = 0;
    }
    if (a < 0) return;
  }
}

/// The bytes from the first element of a view to its last, and how many of them lie before
/// view.data, as strides may be negative.
struct Reach {
  std::size_t bytes = 0, before = 0;
};

inline Reach reach_of(const heed::ConstTensorView& view) {
  std::int64_t first = 0, last = 0;
  for (int a = 0; a < view.rank; ++a) {
    const auto axis = static_cast<std::size_t>(a);
    if (view.shape[axis] == 0) return {};
    (view.stride[axis] < 0 ? first : last) += (view.shape[axis] - 1) * view.stride[axis];
  }
  const std::size_t size = heed::size_of(view.dtype);
  return {static_cast<std::size_t>(last - first + 1) * size,
          static_cast<std::size_t>(-first) * size};
}

/// Memory that ends at an unreadable page, or begins right after one; no bytes lie between two.
class Guarded {
 public:
  Guarded(std::size_t bytes, bool at_end) : bytes_(bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t inner = (bytes + page - 1) / page * page;
    length_ = inner + 2 * page;
    base_ = static_cast<std::byte*>(
        mmap(nullptr, length_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED) throw std::runtime_error("mmap failed");
    data_ = base_ + page + (at_end ? inner - bytes : 0);
    allow(PROT_READ | PROT_WRITE);
  }
  ~Guarded() { munmap(base_, length_); }
  Guarded(Guarded&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        data_(other.data_),
        bytes_(other.bytes_),
        length_(std::exchange(other.length_, 0)) {}
  Guarded& operator=(Guarded&&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  void clear() const { std::memset(data_, 0xFF, bytes_); }
  /// From now on a write faults, too.
  void seal() const { allow(PROT_READ); }

 private:
  void allow(int what) const {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t inner = length_ - 2 * page;
    if (inner == 0) return;  // qemu 7.2 refuses to change nothing
    if (mprotect(base_ + page, inner, what) != 0) throw std::runtime_error("mprotect failed");
  }

  std::byte* base_;
  std::byte* data_;
  std::size_t bytes_;
  std::size_t length_;
};

/// Copies of views in guarded memory of their own; those that are to be read cannot be written, and
/// in those that are to be written all bytes are 0xFF.
class GuardedCopies {
 public:
  explicit GuardedCopies(bool at_end) : at_end_(at_end) {}

  heed::ConstTensorView of(heed::ConstTensorView view) {
    view = copied(view);
    if (view.present()) memory_.back().seal();
    return view;
  }
  heed::TensorView of(heed::TensorView view) {
    const heed::ConstTensorView moved = copied(heed::ConstTensorView(view));
    if (view.present()) memory_.back().clear();
    view.data = const_cast<void*>(moved.data);
    return view;
  }

 private:
  heed::ConstTensorView copied(heed::ConstTensorView view) {
    if (!view.present()) return view;
    const Reach reach = reach_of(view);
    memory_.emplace_back(reach.bytes, at_end_);
    std::byte* const data = memory_.back().data();
    if (reach.bytes > 0)
      std::memcpy(data, static_cast<const std::byte*>(view.data) - reach.before, reach.bytes);
    view.data = data + reach.before;
    return view;
  }

  std::vector<Guarded> memory_;
  bool at_end_;
};

/// Copies of views of three axes and more whose second axis, that of heads, has a stride beyond 32
/// bits. They lie in pages of which only those that hold elements take memory.
class FarCopies {
 public:
  explicit FarCopies(std::int64_t stride) : stride_(stride) {}
  FarCopies(FarCopies&& other) noexcept
      : stride_(other.stride_), mapped_(std::move(other.mapped_)) {
    other.mapped_.clear();
  }
  FarCopies& operator=(FarCopies&&) = delete;
  ~FarCopies() {
    for (const auto& [data, bytes] : mapped_) munmap(data, bytes);
  }

  heed::ConstTensorView of(const heed::ConstTensorView& view) {
    heed::ConstTensorView far = moved(view);
    if (view.present())
      each_element(far, view, [&](std::byte* to, const std::byte* from) {
        std::memcpy(to, from, heed::size_of(view.dtype));
      });
    return far;
  }
  heed::TensorView of(heed::TensorView view) {
    const heed::ConstTensorView far = moved(view);
    if (view.present())
      each_element(far, view, [&](std::byte* to, const std::byte*) {
        std::memset(to, 0xFF, heed::size_of(view.dtype));
      });
    view.data = const_cast<void*>(far.data);
    view.stride = far.stride;
    return view;
  }

 private:
  heed::ConstTensorView moved(heed::ConstTensorView view) {
    if (!view.present()) return view;
    if (view.rank >= 3 && view.shape[1] > 1) view.stride[1] = stride_;
    const Reach reach = reach_of(view);
    const std::size_t bytes = std::max<std::size_t>(reach.bytes, 1);  // no map is empty
    void* const base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) throw std::runtime_error("mmap failed");
    mapped_.emplace_back(base, bytes);
    view.data = static_cast<std::byte*>(base) + reach.before;
    return view;
  }

  std::int64_t stride_;
  std::vector<std::pair<void*, std::size_t>> mapped_;
};

/// Options whose views, all that there are, lie where place(view) says.
template <typename Place>
heed::AttentionOptions placed(heed::AttentionOptions options, const Place& place) {
  for (heed::ConstTensorView* view :
       {&options.scale.each, &options.alibi, &options.bias, &options.mask.query_start.each,
        &options.mask.key_lengths.each, &options.mask.query_lengths.each, &options.mask.keep,
        &options.mask.drop, &options.sinks, &options.packing.query_offsets,
        &options.packing.key_offsets})
    *view = place(*view);
  return options;
}

}  // namespace heed_test

// Memory between unreadable pages: what is read or written outside faults.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "heed/attention.h"

namespace heed_test {

/// Memory that ends at an unreadable page, or begins right after one.
class Guarded {
 public:
  Guarded(std::size_t bytes, bool at_end) : bytes_(bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t inner = (bytes + page - 1) / page * page;
    length_ = inner + 2 * page;
    base_ = static_cast<std::byte*>(
        mmap(nullptr, length_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED ||
        mprotect(base_ + page, inner == 0 ? page : inner, PROT_READ | PROT_WRITE) != 0)
      throw std::runtime_error("mmap failed");
    data_ = base_ + page + (at_end ? inner - bytes : 0);
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
  void seal() const {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    if (mprotect(base_ + page, length_ - 2 * page, PROT_READ) != 0)
      throw std::runtime_error("mprotect failed");
  }

 private:
  std::byte* base_;
  std::byte* data_;
  std::size_t bytes_;
  std::size_t length_;
};

/// Copies of views in guarded memory of their own; those that are to be read cannot be written, and in
/// those that are to be written all bytes are 0xFF.
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
    std::int64_t span = 1;
    for (int a = 0; a < view.rank; ++a) {
      const auto axis = static_cast<std::size_t>(a);
      if (view.shape[axis] == 0) span = 0;
      if (span > 0) span += (view.shape[axis] - 1) * view.stride[axis];
    }
    const std::size_t bytes = static_cast<std::size_t>(span) * heed::size_of(view.dtype);
    memory_.emplace_back(bytes, at_end_);
    if (bytes > 0) std::memcpy(memory_.back().data(), view.data, bytes);
    view.data = memory_.back().data();
    return view;
  }

  std::vector<Guarded> memory_;
  bool at_end_;
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

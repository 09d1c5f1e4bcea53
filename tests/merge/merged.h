// Merging the results of parts, in any type.
#pragma once

#include <vector>

#include "forward/draws.h"
#include "forward/half.h"
#include "forward/support.h"
#include "heed/merge.h"

namespace heed_test {

/// Parts in their type, or with outputs in one of 16 bits, which holds their numbers.
template <typename T>
class Merger {
 public:
  explicit Merger(std::vector<Result<T>> parts, heed::DType dtype = heed::detail::dtype_of<T>())
      : parts_(std::move(parts)), dtype_(dtype) {
    if constexpr (std::is_same_v<T, float>) {
      if (in_halves())
        for (const Result<T>& part : parts_) halves_.emplace_back(part.o, dtype);
    }
  }

  /// All of them, each so many times. An output of 16 bits comes back as floats.
  [[nodiscard]] Result<T> operator()(Layout layout = Layout::bhtd,
                                     const heed::Execution& execution = {}, int times = 1) const {
    std::vector<heed::AttentionPart> views;
    for (int n = 0; n < times; ++n)
      for (std::size_t p = 0; p < parts_.size(); ++p)
        views.push_back({in_halves() ? halves_[p].view(4) : parts_[p].o.view(),
                         without_last_axis(parts_[p].lse.view())});
    Result<T> all;
    all.lse = Tensor<T>(parts_[0].lse.shape, layout);
    if constexpr (std::is_same_v<T, float>) {
      if (in_halves()) {
        Halves o(parts_[0].o.shape, layout, dtype_);
        heed::merge(views, {.output = o.out(4), .lse = without_last_axis(all.lse.out())},
                    execution);
        all.o = o.written("output");
        return all;
      }
    }
    all.o = Tensor<T>(parts_[0].o.shape, layout);
    heed::merge(views, {.output = all.o.out(), .lse = without_last_axis(all.lse.out())}, execution);
    return all;
  }

 private:
  [[nodiscard]] bool in_halves() const { return dtype_ != heed::detail::dtype_of<T>(); }

  std::vector<Result<T>> parts_;
  heed::DType dtype_;
  std::vector<Halves> halves_;
};

template <typename T>
Result<T> merged(const std::vector<Result<T>>& parts) {
  return Merger<T>(parts)();
}

}  // namespace heed_test

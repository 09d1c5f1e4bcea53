// heed::RowStatistics from the arrays that heed's Python functions pass.
#pragma once

#include <array>

#include "array.h"
#include "heed/heed.h"

namespace heed::python {

/// In the order of the fields of heed.RowStatistics.
inline constexpr std::array kRowFields{
    &RowStatistics::max_score,         &RowStatistics::max_weight,
    &RowStatistics::max_weight_key,    &RowStatistics::entropy,
    &RowStatistics::visible_keys,      &RowStatistics::score_mean,
    &RowStatistics::score_variance,    &RowStatistics::sum_squared_weights,
    &RowStatistics::sum_cubed_weights, &RowStatistics::jacobian_norm};
static_assert(sizeof(RowStatistics) == kRowFields.size() * sizeof(TensorView), "all of them");

/// The arrays of heed.RowStatistics; None is one that is not wanted.
class Statistics {
 public:
  explicit Statistics(nb::handle arrays) {
    if (arrays.is_none()) return;
    for (std::size_t i = 0; i < kRowFields.size(); ++i) {
      arrays_[i] = Array::write_optional("statistics", arrays[i]);
      views_.*kRowFields[i] = arrays_[i].view();
    }
    wanted_ = true;
  }

  [[nodiscard]] const RowStatistics* get() const { return wanted_ ? &views_ : nullptr; }

 private:
  std::array<Array, kRowFields.size()> arrays_;
  RowStatistics views_;
  bool wanted_ = false;
};

}  // namespace heed::python

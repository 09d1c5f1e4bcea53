// heed::RowStatistics from the arrays that heed's Python functions pass.
#pragma once

#include <array>

#include "array.h"
#include "heed/heed.h"

namespace heed::python {

/// The ten arrays of heed.RowStatistics, in the order of its fields; None is one that is not wanted.
class Statistics {
 public:
  explicit Statistics(nb::handle arrays) {
    if (arrays.is_none()) return;
    constexpr std::array kFields{
        &RowStatistics::max_score,         &RowStatistics::max_weight,
        &RowStatistics::max_weight_key,    &RowStatistics::entropy,
        &RowStatistics::visible_keys,      &RowStatistics::score_mean,
        &RowStatistics::score_variance,    &RowStatistics::sum_squared_weights,
        &RowStatistics::sum_cubed_weights, &RowStatistics::jacobian_norm};
    for (std::size_t i = 0; i < kFields.size(); ++i) {
      arrays_[i] = Array::write_optional("statistics", arrays[i]);
      views_.*kFields[i] = arrays_[i].view();
    }
    wanted_ = true;
  }

  [[nodiscard]] const RowStatistics* get() const { return wanted_ ? &views_ : nullptr; }

 private:
  std::array<Array, 10> arrays_;
  RowStatistics views_;
  bool wanted_ = false;
};

}  // namespace heed::python

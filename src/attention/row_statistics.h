// The statistics of a row in one list: what the caller's views are called and where numbers come
// from.
#pragma once

#include <array>

#include "heed/inspect.h"
#include "kernels/kernels.h"

namespace heed {

/// One of RowStatistics: a number of the kernels, or (null) a count that the driver keeps.
struct StatisticField {
  const char* name;
  TensorView RowStatistics::*view;
  float (kernels::RowNumbers<float>::*f32)[kernels::kMaxTileRows];
  double (kernels::RowNumbers<double>::*f64)[kernels::kMaxTileRows];

  [[nodiscard]] constexpr bool is_count() const { return f32 == nullptr; }
};

#define HEED_NUMBER(name)                                                         \
  StatisticField {                                                                \
    "statistics." #name, &RowStatistics::name, &kernels::RowNumbers<float>::name, \
        &kernels::RowNumbers<double>::name                                        \
  }
inline constexpr std::array kStatisticFields{
    HEED_NUMBER(max_score),
    HEED_NUMBER(max_weight),
    HEED_NUMBER(entropy),
    HEED_NUMBER(score_mean),
    HEED_NUMBER(score_variance),
    HEED_NUMBER(sum_squared_weights),
    HEED_NUMBER(sum_cubed_weights),
    HEED_NUMBER(jacobian_norm),
    StatisticField{"statistics.max_weight_key", &RowStatistics::max_weight_key, nullptr, nullptr},
    StatisticField{"statistics.visible_keys", &RowStatistics::visible_keys, nullptr, nullptr}};
#undef HEED_NUMBER

}  // namespace heed

// How much memory an inspection takes, known before it takes any.
#include <algorithm>

#include "heed/io.h"
#include "inspect_heads.h"

namespace heed::cli {

double inspection_bytes(const Call& call, const InspectSettings& settings) {
  constexpr double kNumber = sizeof(double);
  constexpr double kTile = 64.0 * 64.0 * sizeof(float);  // an exact one, see inspect_closer.cc
  constexpr double kSums = 8 << 20;                      // of inspect_weights, with all histograms
  const auto element = static_cast<double>(size_of(call.q.dtype));
  const auto rows = static_cast<double>(call.queries());
  const auto keys = static_cast<double>(call.keys());
  const auto heads = static_cast<double>(call.layers() * call.heads());
  const double top =
      static_cast<double>(std::min(settings.top, std::max<std::int64_t>(1, call.keys())));
  const double map = static_cast<double>(std::min(settings.map, call.queries())) *
                     static_cast<double>(std::min(settings.map, call.keys()));
  const auto told = static_cast<double>(chosen_rows(call, settings).size());
  // The results of both passes; then what is kept of them: maps, stories, a tile, lists.
  const double passes = rows * (8 * element + kNumber + top * (element + kNumber)) +
                        keys * element + 2 * map * element;
  const double kept = 2 * map * sizeof(float) + told * keys * 3.25 * sizeof(float) + kTile +
                      std::min(rows * top, 60'000.0) * 3 * kNumber + 8192;
  // One head at a time: its numbers in float64, and rows of scores and weights.
  const double at_a_time = rows * (24 + 2 * top) * kNumber + keys * kNumber + 2 * map * kNumber +
                           std::max(told, 64.0) * keys * 3 * kNumber;
  return heads * (passes + kept) + at_a_time + kSums;
}

}  // namespace heed::cli

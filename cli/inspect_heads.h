// The analysis behind `heed inspect`: two passes over q and k, and a closer look at chosen rows.
#pragma once

#include <optional>

#include "diagnosis.h"
#include "inspection.h"
#include "one_head.h"
#include "progress.h"

namespace heed::cli {

/// What the numbers are for: pictures also hold rows, tiles and the mask.
enum class Detail : std::uint8_t { numbers, pictures };

struct TilePlace {
  std::int64_t row = 0, key = 0;
};

struct InspectSettings {
  std::vector<std::int64_t> rows{};  ///< to be told in full; none: all of few, else the last
  std::int64_t top = 8;              ///< keys listed per row
  std::int64_t map = 96;             ///< cells of a map along an axis
  Thresholds thresholds{};
  std::vector<std::string> tokens{};
  Detail detail = Detail::pictures;
  std::optional<TilePlace> tile{};  ///< of exact weights; none: the last where maps are not exact
  ConstTensorView v{}, d_output{};  ///< with four axes; absent: no gradients
};

/// Everything that can be known of the heads of a call, in O(Tq + Tk) memory for each of them.
/// `source`, `settings` and `sentence` of the result are left to the caller.
[[nodiscard]] Inspection inspect_heads(const Call& call, const InspectSettings& settings,
                                       Executor& executor, StatusLine& status);

/// The rows that are told in full: those asked for, else all of few, else the last.
std::vector<std::int64_t> chosen_rows(const Call& call, const InspectSettings& settings);

/// Chosen rows, exact tiles and the mask, into an inspection that has the rest.
void look_closer(const Call& call, const ConstTensorView& lse, const InspectSettings& settings,
                 Executor& executor, Inspection& inspection);

}  // namespace heed::cli

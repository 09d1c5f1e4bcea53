// One plain sentence about a head, and what to try when something is off.
#pragma once

#include <optional>
#include <vector>

#include "inspection.h"

namespace heed::cli {

/// From where on a number is worth a remark.
struct Thresholds {
  double saturation = 0.99;  ///< largest weight of a saturated row
  double saturated = 0.3;    ///< share of rows
  double peaked = 0.1;       ///< entropy share of a peaked row
  double uniform = 0.98;     ///< entropy share of a uniform row
  double range = 3;          ///< scores in -range .. range
  double in_range = 0.9;     ///< share of scores
  double sink = 0.3;         ///< share of all weight on one key
  double vanishing = 1e-3;   ///< of what uniform weights would pass on, below which a row vanishes
  double vanished = 0.5;     ///< share of rows
  double comparable = 100;   ///< between |dQ| of a head and that of the median head

  /// Throws UsageError, with the flag's name, if one of them means nothing.
  void check() const;
};

/// What is known of a head beside its numbers.
struct HeadFacts {
  double scale = 0;         ///< that was used
  bool normalized = false;  ///< queries and keys had length 1
  bool scale_alone = true;  ///< no cap, slope or bias acts on the scaled scores
  bool capped = false;      ///< by --softcap
  bool masked = false;      ///< by keep, drop or bias
  std::string look_at{};    ///< what to look at where rows see too few keys
  bool has_bias = false;    ///< something is added to them that may be NaN or infinite
  std::int64_t rows = 0;    ///< query rows
  std::int64_t keys = 0;    ///< that are no padding
  std::int64_t padded_rows = 0;
  std::int64_t head_size = 0;
  std::int64_t lone_rows = 0;           ///< rows that see one key only
  std::int64_t weightless_rows = 0;     ///< rows that see keys, all with the score -infinity
  std::int64_t weightless_choices = 0;  ///< those of them that see two keys or more
  std::int64_t zero_keys = 0;           ///< keys that are all zeros, as padding is
  double zero_key_share = 0;            ///< their share of all weight
  double future_share = 0;              ///< share of weight on keys after the query's position
  double previous_share = 0;            ///< share of weight one position back
  bool has_past = false;                ///< some query has a key at or before its position
  bool sees_no_earlier = false;  ///< a mask of the user's hides every key before a query's position
  bool equal_keys = false;       ///< all keys are the same
  bool zero_queries = false;     ///< all queries are zeros
  bool sums_known = true;        ///< no NaN row is part of the sums over rows
  bool steep = false;            ///< the slope makes scores infinite; known where some are
  bool finite_products = false;  ///< of q and k alone; known where scores are infinite or NaN
  double even_share = 0;         ///< of weight on a key that every row sees, of even weights
  double key_share = 1;          ///< share of a row's weight that is on keys, the rest on the sink
  double usual_gradient = 0;     ///< |dQ| of the median head of several; 0: not known
  std::optional<double> sink{};  ///< its score; none where that is -infinity
  std::optional<double> slope{};         ///< of ALiBi
  std::optional<double> masking_bias{};  ///< a finite number by which the bias hides keys
};

/// The number of a remark, with so many digits behind the point; three in all of 10^15 and more, of
/// which the last would tell nothing.
[[nodiscard]] std::string amount_text(double amount, int digits);

/// Remarks on a head, warnings first; at least one.
[[nodiscard]] std::vector<Remark> diagnose(const HeadInspection& head, const HeadFacts& facts,
                                           const Thresholds& thresholds,
                                           const std::string& sink_name);

}  // namespace heed::cli

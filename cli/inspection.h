// What an inspection found, layer by layer and head by head: the one source of the table, of JSON
// and of every picture.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/inspect.h"

namespace heed::cli {

/// Numbers over the cells of a grid, row by row.
struct CellMap {
  int rows = 0, columns = 0;
  std::vector<float> cells{};

  [[nodiscard]] float at(int row, int column) const {
    return cells[static_cast<std::size_t>(row) * static_cast<std::size_t>(columns) +
                 static_cast<std::size_t>(column)];
  }
};

/// The largest weights of one row, largest first, and what they add up to.
struct TopKeys {
  std::int64_t row = 0;
  std::vector<std::int64_t>
      keys{};  ///< as many as there are weights above 0, at most the K asked for
  std::vector<float> weights{};
  float mass = 0;
  std::int64_t visible = 0;  ///< keys that the row may see
  double entropy_share = 0;  ///< NaN of a NaN row

  /// Whether its numbers tell anything: it sees a key, and nothing in it is NaN.
  [[nodiscard]] bool counts() const { return visible > 0 && std::isfinite(entropy_share); }
};

/// One row, step by step: q . k, the final score, what the mask left, the weight. One entry per
/// key.
struct RowStory {
  std::int64_t row = 0;
  std::vector<float> products{};  ///< q . k
  std::vector<float> scores{};    ///< scaled, with all options but the mask; NaN where not known
  std::vector<bool> visible{};
  std::vector<float> weights{};  ///< 0 where hidden
};

/// Exact weights of some rows and keys.
struct ExactTile {
  std::int64_t first_row = 0, first_key = 0;
  CellMap weights{};
  std::vector<std::int64_t> visible{};  ///< keys that each of its rows may see, in the tile or not
};

enum class Severity : std::uint8_t { note, warning };

/// One plain sentence of diagnosis and, where something is off, what to try.
struct Remark {
  Severity severity = Severity::note;
  std::string sentence;
  std::string suggestion{};
  // Remarks that differ in one number are told together.
  std::string form{};  ///< the sentence with "{}" for its number; empty: it has none
  double amount = 0;   ///< that number
  int digits = 0;      ///< of it, behind the point
};

/// What a backward pass gives a head. Rows are those that see two keys or more.
struct HeadGradients {
  double dq = 0, dk = 0, dv = 0;  ///< |dQ|, |dK|, |dV|, Frobenius; the last two of its KV head
  Summary ds{};          ///< |dS_i| of the rows that count: where dO_i is not 0 and nothing NaN
  Summary passed_on{};   ///< of the same rows: |dS_i| over what uniform weights would pass on
  double vanishing = 0;  ///< share of these rows where that is below the threshold; NaN: no rows
  std::int64_t rows = 0;
  std::int64_t silent_rows = 0;  ///< dO_i is 0
  std::int64_t nan_rows = 0;     ///< dS_i is NaN, though the scores are not
  bool same_values = false;      ///< v_j is the same for all keys, so that no row counts
};

/// One layer (entry of the batch) and query head.
struct HeadInspection {
  std::int64_t layer = 0, head = 0;

  // Over its rows that see a key.
  Summary max_score{}, score_mean{}, score_deviation{};  ///< natural units
  Summary entropy{}, entropy_share{}, effective_keys{}, max_weight{}, jacobian_norm{};
  // Shares of the rows that see two keys or more: one that sees one key has no choice.
  double saturated = 0;  ///< share of rows with a largest weight above the threshold
  double peaked = 0;     ///< share of rows with entropy share below its threshold
  double uniform = 0;    ///< share of rows with entropy share above its threshold
  std::int64_t empty_rows = 0, nan_rows = 0;
  std::int64_t first_nan_row = -1;  ///< -1: none
  /// 1 % and 99 % quantile of all scores, by the histogram; infinite where they lie beyond its
  /// bins.
  double score_low = 0, score_high = 0;
  double in_range = 0;         ///< share of scores in -range .. range; NaN: there are none
  std::int64_t sink_key = -1;  ///< the key that is attended to most; -1: none
  double sink_share = 0;       ///< its share of all weight

  std::vector<std::int64_t>
      histogram{};                     ///< Inspection::bins + 2, see WeightViews::score_histogram
  std::vector<float> distance_mass{};  ///< by distance -(N-1)/2 .. (N-1)/2, mean over rows
  CellMap lift{};                      ///< log2 of visible keys * p; NaN where nothing is visible
  CellMap mean{};                      ///< mean weight over all pairs of a cell
  // Margins of the maps.
  std::vector<float> row_entropy_share{};  ///< one per map row: mean over its rows
  std::vector<float> row_max_weight{};     ///< likewise
  std::vector<float> column_mass{};        ///< one per map column: its share of all weight
  std::vector<TopKeys> top{};              ///< of each row, or of some if there are many
  std::vector<RowStory> stories{};         ///< of chosen rows
  std::vector<ExactTile> tiles{};          ///< chosen

  std::optional<HeadGradients> gradients{};  ///< where d_output was given

  std::vector<Remark> remarks{};  ///< at least one
};

/// What the mask lets be seen: of the first layer and head.
struct MaskPicture {
  CellMap visible{};  ///< share of visible pairs in a cell
  int tile_rows = 0;  ///< a tile of the computation, in query rows and keys
  int tile_keys = 0;
  CellMap computed{};  ///< one cell per tile: 1 computed, 0 skipped; empty if there are too many
  std::int64_t tiles_computed = 0, tiles_skipped = 0;  ///< of all layers and heads
};

/// Characters of a token in a table or a sentence; more are cut, since a token may be a whole page.
constexpr std::size_t kShownToken = 24;

struct Inspection {
  std::string source;                         ///< the file
  std::string settings;                       ///< options that flags set, as flags
  std::vector<std::string> option_tensors{};  ///< names of those that are tensors of the file
  std::string sentence{};                     ///< the metadata's, or nothing
  std::vector<std::string> tokens{};          ///< one per key, or none
  std::int64_t layers = 0, heads = 0, queries = 0, keys = 0, head_size = 0;
  double bin_low = 0, bin_high = 0;  ///< of the histograms
  int bins = 0;
  double saturation_threshold = 0.99, peaked_threshold = 0, uniform_threshold = 0;
  std::vector<HeadInspection> found{};  ///< layers x heads, heads of a layer side by side
  MaskPicture mask{};
  std::vector<std::int64_t> rows_asked{};  ///< to be told in full; none: nobody asked
  std::vector<std::pair<std::int64_t, std::int64_t>>
      heads_asked{};  ///< layer and head, to be drawn alone; none: the interesting ones

  [[nodiscard]] const HeadInspection& at(std::int64_t layer, std::int64_t head) const {
    return found[static_cast<std::size_t>(layer * heads + head)];
  }
  [[nodiscard]] bool has_gradients() const {
    return !found.empty() && found[0].gradients.has_value();
  }
  /// All that acts on a score: the flags, and what is a tensor of the file.
  [[nodiscard]] std::string options() const {
    if (option_tensors.empty()) return settings;
    std::string text = settings.empty() ? "tensors" : settings + ", tensors";
    for (const std::string& name : option_tensors) text += " " + name;
    return text;
  }
  /// The token of a key, or its number.
  [[nodiscard]] std::string label(std::int64_t key) const {
    const auto i = static_cast<std::size_t>(key);
    return i < tokens.size() ? tokens[i] : std::to_string(key);
  }
};

}  // namespace heed::cli

// Chosen rows, exact tiles and the mask of an inspection: weights one head at a time.
#include <algorithm>
#include <cmath>

#include "heed/heed.h"
#include "inspect_heads.h"

namespace heed::cli {
namespace {

constexpr std::int64_t kTile = 64;        ///< rows and keys of an exact tile
constexpr std::int64_t kFewRows = 32;     ///< so many are told in full without being chosen
constexpr std::int64_t kMostTiles = 400;  ///< numbers of an exact tile for each head, in thousands
constexpr std::int64_t kMaskCells = 96;
constexpr std::int64_t kMostPairs = std::int64_t{1} << 26;  ///< of a mask that is looked at
constexpr std::int64_t kTileRows = 64;  ///< of the picture of skipped tiles: AVX-512's
constexpr std::int64_t kTileKeys = 96;
constexpr std::int64_t kMostMaskTiles = 4096;

/// Scores and weights of some rows of one head.
struct Rows {
  std::vector<double> scores, weights;  ///< [rows][keys]
};

Rows rows_of(const Call& head, const ConstTensorView& lse, const std::vector<std::int64_t>& rows,
             Executor& executor) {
  const auto count = static_cast<std::int64_t>(rows.size());
  const auto size = static_cast<std::size_t>(count * head.keys());
  Rows result{std::vector<double>(size), std::vector<double>(size)};
  const auto look = [&](auto* scores, auto* weights) {
    inspect_weights({.q = head.q, .k = head.k, .lse = lse},
                    {.rows = view(rows.data(), {count}),
                     .row_weights = view(weights, {1, 1, count, head.keys()}),
                     .row_scores = view(scores, {1, 1, count, head.keys()})},
                    head.options, {.executor = &executor});
  };
  if (head.q.dtype == DType::f64) {
    look(result.scores.data(), result.weights.data());
    return result;
  }
  std::vector<float> scores(size);
  std::vector<float> weights(size);
  look(scores.data(), weights.data());
  std::copy(scores.begin(), scores.end(), result.scores.begin());
  std::copy(weights.begin(), weights.end(), result.weights.begin());
  return result;
}

RowStory story_of(const Call& head, const Rows& rows, std::size_t n, std::int64_t row) {
  RowStory story{.row = row};
  for (std::int64_t j = 0; j < head.keys(); ++j) {
    const std::size_t at = n * static_cast<std::size_t>(head.keys()) + static_cast<std::size_t>(j);
    double product = 0;
    for (std::int64_t x = 0; x < head.head_size(); ++x) {
      product += element(head.q, 0, 0, row, x) * element(head.k, 0, 0, j, x);
    }
    const double score = rows.scores[at];
    const bool visible = score != -INFINITY;
    story.products.push_back(static_cast<float>(product));
    story.scores.push_back(visible ? static_cast<float>(score) : NAN);
    story.visible.push_back(visible);
    story.weights.push_back(static_cast<float>(rows.weights[at]));
  }
  return story;
}

/// The tile where the last row lies, with the keys before it.
ExactTile last_tile(const Call& head, const ConstTensorView& lse, Executor& executor) {
  ExactTile tile{.first_row = std::max<std::int64_t>(head.queries() - kTile, 0),
                 .first_key = std::max<std::int64_t>(head.keys() - kTile, 0)};
  std::vector<std::int64_t> rows;
  for (std::int64_t row = tile.first_row; row < head.queries(); ++row) rows.push_back(row);
  const Rows exact = rows_of(head, lse, rows, executor);
  tile.weights.rows = static_cast<int>(rows.size());
  tile.weights.columns = static_cast<int>(head.keys() - tile.first_key);
  for (std::size_t n = 0; n < rows.size(); ++n) {
    for (std::int64_t j = tile.first_key; j < head.keys(); ++j) {
      const auto at = n * static_cast<std::size_t>(head.keys()) + static_cast<std::size_t>(j);
      tile.weights.cells.push_back(static_cast<float>(exact.weights[at]));
    }
  }
  return tile;
}

std::int64_t blocks_of(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

/// What the first head may see, row by row: as shares of cells, and as tiles.
void look_at_mask(const Call& head, const ConstTensorView& lse, Executor& executor,
                  MaskPicture& mask) {
  const std::int64_t queries = head.queries();
  const std::int64_t keys = head.keys();
  if (queries * keys == 0 || queries > kMostPairs / keys) return;
  mask.visible.rows = static_cast<int>(std::min(queries, kMaskCells));
  mask.visible.columns = static_cast<int>(std::min(keys, kMaskCells));
  const auto columns = static_cast<std::size_t>(mask.visible.columns);
  std::vector<double> seen(static_cast<std::size_t>(mask.visible.rows) * columns);
  std::vector<double> pairs(seen.size());
  const std::int64_t tile_rows = blocks_of(queries, kTileRows);
  const std::int64_t tile_columns = blocks_of(keys, kTileKeys);
  mask.tile_rows = kTileRows;
  mask.tile_keys = kTileKeys;
  if (tile_rows * tile_columns <= kMostMaskTiles) {
    mask.computed = {static_cast<int>(tile_rows), static_cast<int>(tile_columns), {}};
    mask.computed.cells.resize(static_cast<std::size_t>(tile_rows * tile_columns));
  }
  for (std::int64_t first = 0; first < queries; first += kTileRows) {
    std::vector<std::int64_t> some;
    for (std::int64_t i = first; i < std::min(first + kTileRows, queries); ++i) some.push_back(i);
    const Rows rows = rows_of(head, lse, some, executor);
    for (std::size_t n = 0; n < some.size(); ++n) {
      for (std::int64_t j = 0; j < keys; ++j) {
        const std::size_t at = n * static_cast<std::size_t>(keys) + static_cast<std::size_t>(j);
        const bool visible = rows.scores[at] != -INFINITY;
        const auto cell =
            static_cast<std::size_t>(some[n] * mask.visible.rows / queries) * columns +
            static_cast<std::size_t>(j * mask.visible.columns / keys);
        pairs[cell] += 1;
        if (!visible) continue;
        seen[cell] += 1;
        const std::int64_t tile = first / kTileRows * tile_columns + j / kTileKeys;
        if (!mask.computed.cells.empty()) mask.computed.cells[static_cast<std::size_t>(tile)] = 1;
      }
    }
  }
  for (std::size_t i = 0; i < seen.size(); ++i) {
    mask.visible.cells.push_back(static_cast<float>(seen[i] / pairs[i]));
  }
}

}  // namespace

std::vector<std::int64_t> chosen_rows(const Call& call, const InspectSettings& settings) {
  if (!settings.rows.empty()) return settings.rows;
  std::vector<std::int64_t> rows;
  const bool few = call.queries() <= kFewRows && call.keys() <= 2 * kFewRows;
  for (std::int64_t i = few ? 0 : std::max<std::int64_t>(call.queries() - 1, 0); i < call.queries();
       ++i) {
    rows.push_back(i);
  }
  return rows;
}

void look_closer(const Call& call, const ConstTensorView& lse, const InspectSettings& settings,
                 Executor& executor, Inspection& inspection) {
  // A row of a result that lacks the last axis.
  ConstTensorView rows = lse;
  rows.rank = 3;
  const std::vector<std::int64_t> chosen = chosen_rows(call, settings);
  const bool exact = call.queries() > settings.map || call.keys() > settings.map;
  const bool tiles = exact && call.layers() * call.heads() * kTile * kTile <= kMostTiles * 1000;
  for (HeadInspection& found : inspection.found) {
    const Call head = one_head(call, found.layer, found.head);
    const ConstTensorView of_head = entry_of(rows, found.layer, found.head);
    if (!chosen.empty() && call.keys() > 0) {
      const Rows told = rows_of(head, of_head, chosen, executor);
      for (std::size_t n = 0; n < chosen.size(); ++n) {
        found.stories.push_back(story_of(head, told, n, chosen[n]));
      }
    }
    if (tiles) found.tiles.push_back(last_tile(head, of_head, executor));
  }
  if (inspection.found.empty()) return;
  look_at_mask(one_head(call, 0, 0), entry_of(rows, 0, 0), executor, inspection.mask);
  // Keys stand in for values: without any there is nothing to compute, and no tile.
  const Explanation told = explain(call.q, call.k, call.k, call.options);
  inspection.mask.tiles_computed = told.tiles_computed;
  inspection.mask.tiles_skipped = told.tiles_skipped;
}

}  // namespace heed::cli

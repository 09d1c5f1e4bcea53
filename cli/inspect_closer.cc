// Chosen rows, exact tiles and the mask of an inspection: weights one head at a time.
#include <algorithm>
#include <cmath>

#include "heed/heed.h"
#include "inspect_heads.h"
#include "report_data.h"

namespace heed::cli {
namespace {

constexpr std::int64_t kFewRows = 32;  ///< so many are told in full without being chosen
constexpr std::int64_t kMaskCells = 96;
constexpr std::int64_t kMostPairs = std::int64_t{1} << 26;  ///< of a mask that is looked at
constexpr std::int64_t kMostMaskTiles = 4096;
constexpr std::int64_t kAtOnce = std::int64_t{1} << 20;  ///< scores that are held at a time

/// Scores and weights of some rows of one head.
struct Rows {
  std::vector<double> scores, weights;  ///< [rows][keys]; -inf and 0 where hidden
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

/// Rows in pieces that are not large: `use` gets a piece and the rows it has.
template <typename Use>
void each_piece(const Call& head, const std::vector<std::int64_t>& rows, const Use& use) {
  const auto piece = static_cast<std::size_t>(
      std::max<std::int64_t>(kAtOnce / std::max<std::int64_t>(head.keys(), 1), 1));
  for (std::size_t first = 0; first < rows.size(); first += piece) {
    const std::size_t end = std::min(first + piece, rows.size());
    use(std::vector<std::int64_t>(rows.begin() + static_cast<std::ptrdiff_t>(first),
                                  rows.begin() + static_cast<std::ptrdiff_t>(end)));
  }
}

/// The rows from one to before another.
std::vector<std::int64_t> run_of(std::int64_t first, std::int64_t end) {
  std::vector<std::int64_t> rows;
  for (std::int64_t row = first; row < end; ++row) rows.push_back(row);
  return rows;
}

/// The head as if nothing were masked. ALiBi still counts from the position of the first query.
Call without_mask(const Call& head) {
  Call open = head;
  open.options.mask = {.query_start = head.options.mask.query_start};
  return open;
}

/// [rows][keys]: what some rows may see. A score that the data make -inf is hidden by no mask.
std::vector<bool> visible_in(const Call& head, const ConstTensorView& lse,
                             const std::vector<std::int64_t>& rows, Executor& executor) {
  const Rows mask = rows_of(mask_alone(head), lse, rows, executor);
  std::vector<bool> visible;
  for (const double score : mask.scores) visible.push_back(score != -INFINITY);
  return visible;
}

RowStory story_of(const Call& head, const Rows& masked, const Rows& open,
                  const std::vector<bool>& visible, std::size_t n, std::int64_t row) {
  RowStory story{.row = row};
  for (std::int64_t j = 0; j < head.keys(); ++j) {
    const std::size_t at = n * static_cast<std::size_t>(head.keys()) + static_cast<std::size_t>(j);
    double product = 0;
    for (std::int64_t x = 0; x < head.head_size(); ++x) {
      product += element(head.q, 0, 0, row, x) * element(head.k, 0, 0, j, x);
    }
    story.products.push_back(static_cast<float>(product));
    story.scores.push_back(static_cast<float>(open.scores[at]));
    story.visible.push_back(visible[at]);
    story.weights.push_back(static_cast<float>(masked.weights[at]));
  }
  return story;
}

void tell_rows(const Call& head, const ConstTensorView& lse, const std::vector<std::int64_t>& rows,
               Executor& executor, std::vector<RowStory>& stories) {
  each_piece(head, rows, [&](const std::vector<std::int64_t>& some) {
    const std::vector<bool> visible = visible_in(head, lse, some, executor);
    const Rows masked = rows_of(head, lse, some, executor);
    const Rows open = rows_of(without_mask(head), lse, some, executor);
    for (std::size_t n = 0; n < some.size(); ++n) {
      stories.push_back(story_of(head, masked, open, visible, n, some[n]));
    }
  });
}

/// Exact weights from a row and a key on, as far as they go.
ExactTile tile_of(const Call& head, const ConstTensorView& lse, const TilePlace& place,
                  std::int64_t side, Executor& executor) {
  ExactTile tile{.first_row = place.row, .first_key = place.key};
  const std::int64_t end_row = std::min(place.row + side, head.queries());
  const std::int64_t end_key = std::min(place.key + side, head.keys());
  tile.weights.rows = static_cast<int>(end_row - place.row);
  tile.weights.columns = static_cast<int>(end_key - place.key);
  each_piece(head, run_of(place.row, end_row), [&](const std::vector<std::int64_t>& some) {
    const std::vector<bool> visible = visible_in(head, lse, some, executor);
    const Rows exact = rows_of(head, lse, some, executor);
    for (std::size_t n = 0; n < some.size(); ++n) {
      const auto row = static_cast<std::ptrdiff_t>(n) * head.keys();
      const auto seen = visible.begin() + row;
      const auto weights = exact.weights.begin() + row;
      tile.visible.push_back(std::count(seen, seen + head.keys(), true));
      tile.weights.cells.insert(tile.weights.cells.end(), weights + place.key, weights + end_key);
    }
  });
  return tile;
}

std::int64_t blocks_of(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

/// What the first head may see, row by row: as shares of cells, and as tiles.
void look_at_mask(const Call& first_head, const ConstTensorView& lse, Executor& executor,
                  MaskPicture& mask) {
  const Call head = mask_alone(first_head);
  const std::int64_t queries = head.queries();
  const std::int64_t keys = head.keys();
  if (queries * keys == 0 || queries > kMostPairs / keys) return;
  mask.visible.rows = static_cast<int>(std::min(queries, kMaskCells));
  mask.visible.columns = static_cast<int>(std::min(keys, kMaskCells));
  const auto columns = static_cast<std::size_t>(mask.visible.columns);
  std::vector<double> seen(static_cast<std::size_t>(mask.visible.rows) * columns);
  std::vector<double> pairs(seen.size());
  const std::int64_t tile_rows = blocks_of(queries, mask.tile_rows);
  const std::int64_t tile_columns = blocks_of(keys, mask.tile_keys);
  if (tile_rows * tile_columns <= kMostMaskTiles) {
    mask.computed = {static_cast<int>(tile_rows), static_cast<int>(tile_columns), {}};
    mask.computed.cells.resize(static_cast<std::size_t>(tile_rows * tile_columns));
  }
  each_piece(head, run_of(0, queries), [&](const std::vector<std::int64_t>& some) {
    const Rows rows = rows_of(head, lse, some, executor);
    for (std::size_t n = 0; n < some.size(); ++n) {
      for (std::int64_t j = 0; j < keys; ++j) {
        const std::size_t at = n * static_cast<std::size_t>(keys) + static_cast<std::size_t>(j);
        const auto cell =
            static_cast<std::size_t>(some[n] * mask.visible.rows / queries) * columns +
            static_cast<std::size_t>(j * mask.visible.columns / keys);
        pairs[cell] += 1;
        if (rows.scores[at] == -INFINITY) continue;
        seen[cell] += 1;
        const std::int64_t tile = some[n] / mask.tile_rows * tile_columns + j / mask.tile_keys;
        if (!mask.computed.cells.empty()) mask.computed.cells[static_cast<std::size_t>(tile)] = 1;
      }
    }
  });
  for (std::size_t i = 0; i < seen.size(); ++i) {
    mask.visible.cells.push_back(static_cast<float>(seen[i] / pairs[i]));
  }
}

/// The tile that was asked for, or that of the last rows and keys where the maps are not exact.
std::optional<TilePlace> place_of(const Call& call, const InspectSettings& settings,
                                  std::int64_t side) {
  if (settings.tile) return settings.tile;
  if (call.queries() <= settings.map && call.keys() <= settings.map) return {};
  return TilePlace{std::max<std::int64_t>(call.queries() - side, 0),
                   std::max<std::int64_t>(call.keys() - side, 0)};
}

}  // namespace

std::vector<std::int64_t> chosen_rows(const Call& call, const InspectSettings& settings) {
  if (!settings.rows.empty()) return settings.rows;
  const bool few = call.queries() <= kFewRows && call.keys() <= 2 * kFewRows;
  return run_of(few ? 0 : std::max<std::int64_t>(call.queries() - 1, 0), call.queries());
}

void look_closer(const Call& call, const ConstTensorView& lse, const InspectSettings& settings,
                 Executor& executor, Inspection& inspection) {
  if (inspection.found.empty()) return;
  // Keys stand in for values: without any there is nothing to compute, and no tile.
  const Explanation told = explain(call.q, call.k, call.k, call.options);
  inspection.mask.tiles_computed = told.tiles_computed;
  inspection.mask.tiles_skipped = told.tiles_skipped;
  inspection.mask.tile_rows = told.tile_queries;
  inspection.mask.tile_keys = told.tile_keys;
  const bool drawn = settings.detail == Detail::pictures;
  if (!drawn && settings.rows.empty()) return;
  // A row of a result that lacks the last axis.
  ConstTensorView rows = lse;
  rows.rank = 3;
  const std::vector<std::int64_t> chosen = chosen_rows(call, settings);
  const std::int64_t side = tile_side(call.layers() * call.heads());
  const std::optional<TilePlace> place = place_of(call, settings, side);
  for (HeadInspection& found : inspection.found) {
    if (call.keys() == 0) break;
    const Call head = one_head(call, found.layer, found.head);
    const ConstTensorView of_head = entry_of(rows, found.layer, found.head);
    tell_rows(head, of_head, chosen, executor, found.stories);
    if (drawn && place && side > 0) {
      found.tiles.push_back(tile_of(head, of_head, *place, side, executor));
    }
  }
  if (drawn) look_at_mask(one_head(call, 0, 0), entry_of(rows, 0, 0), executor, inspection.mask);
}

}  // namespace heed::cli

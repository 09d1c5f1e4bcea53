// How a product over rows is cut into tasks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/kernels.h"
#include "modules/products.h"

namespace heed {

/// Columns of a result that are computed at a time: as many as the kernels have keys in a block.
inline constexpr std::int64_t kUnitColumns = kernels::kBlockKeys;

/// Tasks are groups of tiles of rows x parts of the units of columns. Nothing of it changes a bit.
struct Cut {
  const kernels::Kernels<float>* kernels = nullptr;
  int width = 0;                ///< rows of a tile
  int tiles = 1;                ///< of a task
  std::int64_t row_groups = 0;  ///< tasks in one direction
  std::int64_t part_units = 0;  ///< units of a part
  std::int64_t parts = 0;       ///< tasks in the other
  int workers = 1;
  Executor* own = nullptr;

  [[nodiscard]] std::int64_t tasks() const { return row_groups * parts; }
  [[nodiscard]] int areas(const Workers& all) const { return own == nullptr ? workers : all.count; }
};

/// Work that is not worth a second worker, as in attention; and what one more is worth.
inline constexpr double kFlopsOfWorker = 1e6;

inline std::int64_t ceil_div(std::int64_t count, std::int64_t size) {
  return (count + size - 1) / size;
}

/// Sets workers and executor by the work there is.
inline void crew_for(const Workers& all, double flops, Cut* cut) {
  const bool small = flops < 2 * kFlopsOfWorker;
  cut->own = small ? nullptr : all.executor;
  const double worth = std::clamp(flops / kFlopsOfWorker, 1.0, static_cast<double>(all.count));
  cut->workers = small ? 1 : static_cast<int>(worth);
}

/// `row_bytes`: what a row keeps in cache while its task runs.
inline Cut make_cut(const Hands& hands, std::int64_t rows, std::int64_t units, double flops,
                    std::int64_t row_bytes) {
  constexpr std::int64_t kTaskBytes = 524288;  // half of a common second-level cache
  constexpr int kMostTiles = 4;                // share a block of weights
  constexpr std::int64_t kTasksPerWorker = 4;
  Cut cut;
  cut.kernels = kernels::kernels_for<float>(static_cast<int>(instruction_set()));
  cut.width = cut.kernels->lanes * cut.kernels->highest_vectors;
  crew_for(hands.workers, flops, &cut);
  const std::int64_t wanted = cut.workers > 1 ? std::int64_t{cut.workers} * kTasksPerWorker : 1;
  cut.tiles = static_cast<int>(
      std::clamp<std::int64_t>(kTaskBytes / (row_bytes * cut.width), 1, kMostTiles));
  const auto groups = [&](int tiles) { return ceil_div(rows, std::int64_t{tiles} * cut.width); };
  while (cut.tiles > 1 && groups(cut.tiles) < wanted) cut.tiles /= 2;
  cut.row_groups = groups(cut.tiles);
  const std::int64_t parts = std::clamp<std::int64_t>(
      ceil_div(wanted, std::max<std::int64_t>(cut.row_groups, 1)), 1, units);
  cut.part_units = ceil_div(units, parts);
  cut.parts = ceil_div(units, cut.part_units);
  cut.workers = static_cast<int>(std::clamp<std::int64_t>(cut.tasks(), 1, cut.workers));
  return cut;
}

/// One tile's rows.
struct TileSpan {
  std::int64_t first;
  int count;
  int vectors;
};

/// The tile of a task, count 0 past the last row.
inline TileSpan tile_of(const Cut& cut, std::int64_t group, int tile, std::int64_t rows) {
  const std::int64_t first = (group * cut.tiles + tile) * cut.width;
  const auto count = static_cast<int>(std::clamp<std::int64_t>(rows - first, 0, cut.width));
  return {first, count, (count + cut.kernels->lanes - 1) / cut.kernels->lanes};
}

/// The same number for each row of a tile.
struct Ones {
  Ones() { std::fill_n(of, kernels::kMaxTileRows, 1.0f); }
  float of[kernels::kMaxTileRows];
};

}  // namespace heed

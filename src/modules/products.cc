// y = x W' + b and dx = dy W, tile by tile.
#include "modules/products.h"

#include <algorithm>

#include "attention/carver.h"
#include "modules/cut.h"

namespace heed {
namespace {

using kernels::KeysSeen;
using kernels::kMaxTileRows;

/// Rows this far apart collide in a first-level cache, as attention's plan has it.
bool collides(std::int64_t stride) {
  return stride * static_cast<std::int64_t>(sizeof(float)) % kCollidingStride == 0;
}

/// Hands out the rows of a tile of results: where they belong, or a copy that goes there at last.
class Written {
 public:
  Written(const Rows& rows, float* copies)
      : rows_(rows), copies_(copies), in_place_(usable_in_place<float>(rows.view)) {}

  float* const* begin(const TileSpan& tile, std::int64_t column) {
    tile_ = tile;
    column_ = column;
    for (int r = 0; r < tile.count; ++r) {
      row_[r] = in_place_ ? reinterpret_cast<float*>(rows_.at(tile.first + r, column))
                          : copies_ + r * kUnitColumns;
    }
    return row_;
  }
  void end(std::int64_t size) const {
    for (int r = 0; !in_place_ && r < tile_.count; ++r) {
      scatter_row(row_[r], size, rows_.at(tile_.first + r, column_), rows_.view.stride[3]);
    }
  }

 private:
  const Rows& rows_;
  float* copies_;
  bool in_place_;
  TileSpan tile_{};
  std::int64_t column_ = 0;
  float* row_[kMaxTileRows] = {};
};

void add_bias(const float* bias, std::int64_t size, int count, float* const* rows) {
  if (bias == nullptr) return;
  for (int r = 0; r < count; ++r) {
    for (std::int64_t o = 0; o < size; ++o) rows[r][o] += bias[o];
  }
}

struct ForwardScratch {
  float* packed;  ///< [tiles][inputs][width]
  float* s;       ///< [kUnitColumns][width]
  float* x_rows;  ///< [width][inputs], where x is not in place
  float* y_rows;  ///< [width][kUnitColumns], where a y is not
  std::size_t bytes;
};

ForwardScratch carve(const Hands& hands, const Cut& cut, const Rows& x, std::byte* base) {
  Carver carver(hands.function, base);
  ForwardScratch scratch{};
  scratch.packed = carver.take<float>(x.size, std::int64_t{cut.tiles} * cut.width);
  scratch.s = carver.take<float>(kUnitColumns, cut.width);
  scratch.x_rows = carver.take<float>(usable_in_place<float>(x.view) ? 0 : x.size, cut.width);
  scratch.y_rows = carver.take<float>(kUnitColumns, cut.width);
  scratch.bytes = carver.used();
  return scratch;
}

/// The units [begin, end) of all maps, for the tiles of one group.
void project_task(const Cut& cut, std::int64_t group, std::int64_t begin, std::int64_t end,
                  const Rows& x, std::span<const Projection> maps, const ForwardScratch& scratch) {
  const Ones one;
  const std::int64_t tile_size = x.size * cut.width;
  for (int t = 0; t < cut.tiles; ++t) {
    const TileSpan tile = tile_of(cut, group, t, x.count);
    if (tile.count == 0) break;
    RowPointers rows(scratch.x_rows, x.size);
    cut.kernels->pack(rows.read(x, tile.first, tile.count, 0, x.size), tile.count, x.size,
                      tile.vectors, scratch.packed + t * tile_size);
  }
  std::int64_t unit = 0;
  for (const Projection& map : maps) {
    Written written(map.y, scratch.y_rows);
    for (std::int64_t o = 0; o < map.y.size; o += kUnitColumns, ++unit) {
      if (unit < begin || unit >= end) continue;
      const auto outputs = static_cast<int>(std::min(kUnitColumns, map.y.size - o));
      KeysSeen all;
      std::fill_n(all, kernels::kMostVectors, outputs);
      for (int t = 0; t < cut.tiles; ++t) {
        const TileSpan tile = tile_of(cut, group, t, x.count);
        if (tile.count == 0) break;
        float highest[kMaxTileRows];
        cut.kernels->scores(map.weight + o * x.size, x.size, outputs, all,
                            scratch.packed + t * tile_size, x.size, tile.vectors, one.of, scratch.s,
                            highest, {});
        float* const* const rows = written.begin(tile, o);
        cut.kernels->unpack(scratch.s, one.of, tile.count, outputs, tile.vectors, rows);
        add_bias(map.bias == nullptr ? nullptr : map.bias + o, outputs, tile.count, rows);
        written.end(outputs);
      }
    }
  }
}

struct BackwardScratch {
  float* sums;     ///< [tiles][columns of a part][width]
  float* packed;   ///< dy of a chunk of outputs, [kProductChain][width]
  float* weights;  ///< such rows of W, apart, where they collide
  float* dy_rows;  ///< [width][kProductChain], where a dy is not in place
  float* dx_rows;  ///< [width][kUnitColumns]
  std::size_t bytes;
};

/// Padding of copied rows: the stride is no multiple of kCollidingStride.
constexpr std::int64_t kApart = 16;

BackwardScratch carve_back(const Hands& hands, const Cut& cut, std::int64_t columns,
                           std::byte* base) {
  Carver carver(hands.function, base);
  BackwardScratch scratch{};
  scratch.sums = carver.take<float>(columns, std::int64_t{cut.tiles} * cut.width);
  scratch.packed = carver.take<float>(kProductChain, cut.width);
  scratch.weights = carver.take<float>(columns + kApart, kProductChain);
  scratch.dy_rows = carver.take<float>(kProductChain, cut.width);
  scratch.dx_rows = carver.take<float>(kUnitColumns, cut.width);
  scratch.bytes = carver.used();
  return scratch;
}

/// The columns [first, first + columns) of dx, for the tiles of one group.
void project_back_task(const Cut& cut, std::int64_t group, std::int64_t first, std::int64_t columns,
                       std::span<const BackProjection> maps, const Rows& dx,
                       const BackwardScratch& scratch) {
  const Ones one;
  const std::int64_t tile_size = columns * cut.width;
  bool begun = false;
  for (const BackProjection& map : maps) {
    for (std::int64_t o = 0; o < map.dy.size; o += kProductChain) {
      const auto outputs = static_cast<int>(std::min<std::int64_t>(kProductChain, map.dy.size - o));
      const float* weights = map.weight + o * dx.size + first;
      std::int64_t stride = dx.size;
      if (collides(stride) && cut.tiles > 1) {
        stride = columns + (collides(columns) ? kApart : 0);
        for (int j = 0; j < outputs; ++j) {
          std::copy_n(weights + j * dx.size, columns, scratch.weights + j * stride);
        }
        weights = scratch.weights;
      }
      KeysSeen all;
      std::fill_n(all, kernels::kMostVectors, outputs);
      for (int t = 0; t < cut.tiles; ++t) {
        const TileSpan tile = tile_of(cut, group, t, dx.count);
        if (tile.count == 0) break;
        RowPointers rows(scratch.dy_rows, kProductChain);
        cut.kernels->pack(rows.read(map.dy, tile.first, tile.count, o, outputs), tile.count,
                          outputs, tile.vectors, scratch.packed);
        cut.kernels->values(weights, stride, all, scratch.packed, columns, tile.vectors,
                            begun ? one.of : nullptr, scratch.sums + t * tile_size);
      }
      begun = true;
    }
  }
  Written written(dx, scratch.dx_rows);
  for (int t = 0; t < cut.tiles; ++t) {
    const TileSpan tile = tile_of(cut, group, t, dx.count);
    if (tile.count == 0) break;
    for (std::int64_t x = 0; x < columns; x += kUnitColumns) {
      const std::int64_t size = std::min(kUnitColumns, columns - x);
      const float* const sums =
          scratch.sums + t * tile_size + x * tile.vectors * cut.kernels->lanes;
      float* const* const to = written.begin(tile, first + x);
      cut.kernels->unpack(sums, one.of, tile.count, size, tile.vectors, to);
      written.end(size);
    }
  }
}

}  // namespace

void project(const Hands& hands, const Rows& x, std::span<const Projection> maps) {
  std::int64_t units = 0;
  double outputs = 0;
  for (const Projection& map : maps) {
    units += ceil_div(map.y.size, kUnitColumns);
    outputs += static_cast<double>(map.y.size);
  }
  if (x.count == 0 || units == 0) return;
  const double flops =
      2 * static_cast<double>(x.count) * static_cast<double>(x.size) * std::max(outputs, 1.0);
  const Cut cut =
      make_cut(hands, x.count, units, flops, x.size * static_cast<std::int64_t>(sizeof(float)));
  Crew crew(hands.function, cut.own, cut.areas(hands.workers), carve(hands, cut, x, nullptr).bytes);
  crew.run(cut.tasks(), [&](std::int64_t task, std::byte* memory) {
    const std::int64_t begin = task % cut.parts * cut.part_units;
    project_task(cut, task / cut.parts, begin, begin + cut.part_units, x, maps,
                 carve(hands, cut, x, memory));
  });
}

void project_back(const Hands& hands, std::span<const BackProjection> maps, const Rows& dx) {
  double outputs = 0;
  for (const BackProjection& map : maps) outputs += static_cast<double>(map.dy.size);
  if (dx.count == 0 || dx.size == 0) return;
  const double flops =
      2 * static_cast<double>(dx.count) * static_cast<double>(dx.size) * std::max(outputs, 1.0);
  const Cut cut = make_cut(hands, dx.count, ceil_div(dx.size, kUnitColumns), flops,
                           dx.size * static_cast<std::int64_t>(sizeof(float)));
  const std::int64_t columns = std::min(cut.part_units * kUnitColumns, dx.size);
  Crew crew(hands.function, cut.own, cut.areas(hands.workers),
            carve_back(hands, cut, columns, nullptr).bytes);
  crew.run(cut.tasks(), [&](std::int64_t task, std::byte* memory) {
    const std::int64_t first = task % cut.parts * cut.part_units * kUnitColumns;
    project_back_task(cut, task / cut.parts, first, std::min(columns, dx.size - first), maps, dx,
                      carve_back(hands, cut, columns, memory));
  });
}

}  // namespace heed

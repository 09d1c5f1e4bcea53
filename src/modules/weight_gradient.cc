// dW += dy' x: each task owns a block of dW and walks over all rows.
#include <algorithm>

#include "attention/carver.h"
#include "modules/cut.h"
#include "modules/products.h"

namespace heed {
namespace {

using kernels::WeightedRows;

/// A block of dW is in the second-level cache with its rows of x and dy: 192 x 384 floats are 288
/// KB, 128 rows of both another 288 KB.
constexpr std::int64_t kMostOutputs = 192;
constexpr std::int64_t kMostInputs = 384;
constexpr std::int64_t kLeastColumns = 48;

struct Blocks {
  std::int64_t outputs, inputs;  ///< of a task
  std::int64_t output_blocks, input_blocks;
  std::int64_t padded;    ///< inputs, whole vectors
  std::int64_t x_stride;  ///< of copied rows of x
};

Blocks make_blocks(const Cut& cut, std::int64_t outputs, std::int64_t inputs) {
  Blocks b{};
  b.outputs = std::min(kMostOutputs, outputs);
  b.inputs = std::min(kMostInputs, inputs);
  const auto count = [&] {
    b.output_blocks = ceil_div(outputs, b.outputs);
    b.input_blocks = ceil_div(inputs, b.inputs);
    return b.output_blocks * b.input_blocks;
  };
  const std::int64_t wanted = cut.workers > 1 ? 4 * std::int64_t{cut.workers} : 1;
  while (count() < wanted && std::max(b.outputs, b.inputs) > kLeastColumns) {
    std::int64_t& larger = b.outputs > b.inputs ? b.outputs : b.inputs;
    larger = ceil_div(larger / 2, kLeastColumns) * kLeastColumns;
  }
  b.padded = ceil_div(b.inputs, cut.kernels->lanes) * cut.kernels->lanes;
  const bool collide = b.padded * static_cast<std::int64_t>(sizeof(float)) % kCollidingStride == 0;
  b.x_stride = b.padded + (collide ? 16 : 0);
  return b;
}

struct BlockScratch {
  float* sums;    ///< [outputs][padded]
  float* packed;  ///< dy of a chunk of rows, tile by tile: [outputs][width]
  float* x;       ///< rows of x, where they cannot be read in place
  float* dy;      ///< rows of dy, likewise
  double* db;     ///< [outputs]
  std::size_t bytes;
};

BlockScratch carve(const Hands& hands, const Blocks& b, std::byte* base) {
  Carver carver(hands.function, base);
  BlockScratch scratch{};
  // Tiles of a chunk may be filled up with lanes that hold no row.
  const std::int64_t rows = kProductChain + kernels::kMaxTileRows;
  scratch.sums = carver.take<float>(b.outputs, b.padded);
  scratch.packed = carver.take<float>(b.outputs, rows);
  scratch.x = carver.take<float>(b.x_stride, kProductChain);
  scratch.dy = carver.take<float>(b.outputs, kernels::kMaxTileRows);
  scratch.db = carver.take<double>(b.outputs);
  scratch.bytes = carver.used();
  return scratch;
}

/// One block of dW and, where it is the first of its outputs, of db.
class Block {
 public:
  Block(const Cut& cut, const Blocks& blocks, const Rows& dy, const Rows& x, RowRange chosen,
        std::int64_t task, const BlockScratch& scratch)
      : cut_(cut), blocks_(blocks), dy_(dy), x_(x), chosen_(chosen), scratch_(scratch) {
    first_output_ = task / blocks.input_blocks * blocks.outputs;
    first_input_ = task % blocks.input_blocks * blocks.inputs;
    outputs_ = std::min(blocks.outputs, dy.size - first_output_);
    inputs_ = std::min(blocks.inputs, x.size - first_input_);
    padded_ = ceil_div(inputs_, cut.kernels->lanes) * cut.kernels->lanes;
    const auto step = x.step();
    in_place_ = usable_in_place<float>(x.view) && padded_ == inputs_ && step.has_value() &&
                *step * static_cast<std::int64_t>(sizeof(float)) % kCollidingStride != 0;
  }

  void run(float* dw, float* db) {
    std::fill_n(scratch_.sums, outputs_ * padded_, 0.0f);
    std::fill_n(scratch_.db, outputs_, 0.0);
    with_bias_ = db != nullptr && first_input_ == 0;
    add_to_bias(0, chosen_.begin);
    for (std::int64_t row = chosen_.begin; row < chosen_.end; row += kProductChain) add_chunk(row);
    add_to_bias(chosen_.end, dy_.count);
    for (std::int64_t o = 0; o < outputs_; ++o) {
      float* const to = dw + (first_output_ + o) * x_.size + first_input_;
      const float* const from = scratch_.sums + o * padded_;
      for (std::int64_t i = 0; i < inputs_; ++i) to[i] += from[i];
    }
    for (std::int64_t o = 0; with_bias_ && o < outputs_; ++o) {
      db[first_output_ + o] += static_cast<float>(scratch_.db[o]);
    }
  }

 private:
  void add_chunk(std::int64_t row) {
    const auto count = static_cast<int>(std::min<std::int64_t>(kProductChain, chosen_.end - row));
    std::int64_t stride = 0;
    const float* const x = rows_of_x(row, count, &stride);
    WeightedRows<float> tiles[kProductChain];
    int used = 0;
    float* packed = scratch_.packed;
    for (int r = 0; r < count; r += cut_.width) {
      const int rows = std::min(cut_.width, count - r);
      const int vectors = (rows + cut_.kernels->lanes - 1) / cut_.kernels->lanes;
      RowPointers pointers(scratch_.dy, blocks_.outputs);
      const float* const* const dy = pointers.read(dy_, row + r, rows, first_output_, outputs_);
      cut_.kernels->pack(dy, rows, outputs_, vectors, packed);
      if (with_bias_) add_rows(dy, rows);
      tiles[used++] = {packed, x + r * stride, nullptr, vectors * cut_.kernels->lanes, rows};
      packed += outputs_ * vectors * cut_.kernels->lanes;
    }
    cut_.kernels->add_outer(tiles, used, static_cast<int>(outputs_), stride, padded_,
                            scratch_.sums);
  }

  const float* rows_of_x(std::int64_t row, int count, std::int64_t* stride) const {
    if (in_place_) {
      *stride = *x_.step();
      return reinterpret_cast<const float*>(x_.at(row, first_input_));
    }
    *stride = blocks_.x_stride;
    for (int r = 0; r < count; ++r) {
      float* const to = scratch_.x + r * blocks_.x_stride;
      gather_row(x_.at(row + r, first_input_), x_.view.stride[3], inputs_, to);
      std::fill(to + inputs_, to + padded_, 0.0f);
    }
    return scratch_.x;
  }

  /// Rows [begin, end), which dW takes nothing from.
  void add_to_bias(std::int64_t begin, std::int64_t end) const {
    RowPointers pointers(scratch_.dy, blocks_.outputs);
    for (std::int64_t row = begin; with_bias_ && row < end; ++row) {
      add_rows(pointers.read(dy_, row, 1, first_output_, outputs_), 1);
    }
  }

  /// In double, row by row: as floats, 128 rows at a time, db erred twice as much as PyTorch's.
  void add_rows(const float* const* dy, int rows) const {
    for (int r = 0; r < rows; ++r) {
      for (std::int64_t o = 0; o < outputs_; ++o) scratch_.db[o] += static_cast<double>(dy[r][o]);
    }
  }

  const Cut& cut_;
  const Blocks& blocks_;
  const Rows& dy_;
  const Rows& x_;
  RowRange chosen_;
  const BlockScratch& scratch_;
  std::int64_t first_output_ = 0, first_input_ = 0, outputs_ = 0, inputs_ = 0, padded_ = 0;
  bool in_place_ = false;
  bool with_bias_ = false;
};

}  // namespace

void add_weight_gradient(const Hands& hands, const Rows& dy, const Rows& x, RowRange chosen,
                         float* dw, float* db) {
  if (dy.count == 0 || dy.size == 0 || x.size == 0) return;
  Cut cut;
  cut.kernels = kernels::kernels_for<float>(static_cast<int>(instruction_set()));
  cut.width = cut.kernels->lanes * cut.kernels->highest_vectors;
  const double flops = 2 * static_cast<double>(chosen.end - chosen.begin) *
                       static_cast<double>(dy.size) * static_cast<double>(x.size);
  crew_for(hands.workers, flops, &cut);
  const Blocks blocks = make_blocks(cut, dy.size, x.size);
  const std::int64_t tasks = blocks.output_blocks * blocks.input_blocks;
  cut.workers = static_cast<int>(std::clamp<std::int64_t>(tasks, 1, cut.workers));
  Crew crew(hands.function, cut.own, cut.areas(hands.workers), carve(hands, blocks, nullptr).bytes);
  crew.run(tasks, [&](std::int64_t task, std::byte* memory) {
    const BlockScratch scratch = carve(hands, blocks, memory);
    Block(cut, blocks, dy, x, chosen, task, scratch).run(dw, db);
  });
}

}  // namespace heed

// A benchmark's cell, with the values of a study's seed.
#pragma once

#include <span>

#include "bench_cell.h"
#include "normals.h"

namespace heed::cli {

/// q, then k, then v of normal values; masks as the benchmark has them. Float32 cells only.
[[nodiscard]] CellData draw_cell(const Cell& cell, Normals normals);

/// The elements of a float32 tensor.
[[nodiscard]] std::span<float> floats_of(Tensor& tensor);

/// Attention of the cell into data.output, and data.weights if it has any.
void compute(const Cell& cell, CellData& data, Executor& executor);

}  // namespace heed::cli

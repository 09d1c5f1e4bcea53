// Drawing and computing cells.
#include "study_cell.h"

namespace heed::cli {

std::span<float> floats_of(Tensor& tensor) {
  return {reinterpret_cast<float*>(tensor.data.data()), tensor.data.size() / sizeof(float)};
}

CellData draw_cell(const Cell& cell, Normals normals) {
  CellData data(cell);
  for (Tensor* tensor : {&data.q, &data.k, &data.v}) {
    for (float& value : floats_of(*tensor)) value = static_cast<float>(normals.next());
  }
  return data;
}

void compute(const Cell& cell, CellData& data, Executor& executor) {
  attention_forward(operand_of(cell, data.q), operand_of(cell, data.k), operand_of(cell, data.v),
                    outputs_of(cell, data), options_of(cell, data), {.executor = &executor});
}

}  // namespace heed::cli

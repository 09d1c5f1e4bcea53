// Values, views and hashes of a benchmark's cell.
#include <array>
#include <cstring>
#include <utility>

#include "bench_cell.h"
#include "normals.h"

namespace heed::cli {
namespace {

// In the order of the view's axes, wherever the elements lie.
template <typename Real>
void fill(const TensorView& view, OwnNormals values) {
  const auto& [n0, n1, n2, n3] = view.shape;
  const auto& [s0, s1, s2, s3] = view.stride;
  for (std::int64_t a = 0; a < n0; ++a) {
    for (std::int64_t b = 0; b < n1; ++b) {
      for (std::int64_t c = 0; c < n2; ++c) {
        Real* row = static_cast<Real*>(view.data) + a * s0 + b * s1 + c * s2;
        for (std::int64_t x = 0; x < n3; ++x) row[x * s3] = static_cast<Real>(values.next());
      }
    }
  }
}

void fill_normal(const TensorView& view, std::uint64_t seed) {
  view.dtype == DType::f64 ? fill<double>(view, OwnNormals(seed))
                           : fill<float>(view, OwnNormals(seed));
}

Tensor rounded(const Cell& cell, Tensor tensor) {
  return tensor.dtype == cell.dtype ? std::move(tensor) : convert(tensor, cell.dtype);
}

Tensor make_operand(const Cell& cell, DType dtype, std::int64_t heads, std::int64_t rows,
                    std::int64_t size) {
  if (cell.layout == Layout::bthd) return make_tensor(dtype, {cell.batch, rows, heads, size});
  return make_tensor(dtype, {cell.batch, heads, rows, size});
}

Tensor make_values(const Cell& cell, std::int64_t heads, std::int64_t rows, std::int64_t size,
                   std::uint64_t seed) {
  Tensor tensor = make_operand(cell, wide_of(cell.dtype), heads, rows, size);
  fill_normal(operand_of(cell, tensor), seed);
  return rounded(cell, std::move(tensor));
}

Tensor make_keep(const Cell& cell) {
  Tensor tensor = make_tensor(DType::boolean, {cell.queries, cell.keys});
  OwnNormals values(4);
  for (std::int64_t row = 0; row < cell.queries; ++row) {
    std::byte* keep = tensor.data.data() + row * cell.keys;
    bool any = false;
    for (std::int64_t key = 0; key < cell.keys; ++key) {
      const bool seen = values.next_bit();
      keep[key] = seen ? std::byte{1} : std::byte{0};
      any = any || seen;
    }
    if (!any) keep[row % cell.keys] = std::byte{1};
  }
  return tensor;
}

Tensor make_bias(const Cell& cell) {
  Tensor tensor = make_tensor(wide_of(cell.dtype), {1, 1, cell.queries, cell.keys});
  fill_normal(view_of(tensor), 5);
  return rounded(cell, std::move(tensor));
}

template <typename View>
View in_order(const Cell& cell, const View& view) {
  return cell.layout == Layout::bthd ? swap_axes(view, 1, 2) : view;
}

}  // namespace

CellData::CellData(const Cell& cell)
    : q(make_values(cell, cell.heads, cell.queries, cell.d, 1)),
      k(make_values(cell, cell.kv_heads, cell.keys, cell.d, 2)),
      v(make_values(cell, cell.kv_heads, cell.keys, cell.d_v, 3)),
      output(make_operand(cell, cell.dtype, cell.heads, cell.queries, cell.d_v)) {
  if (cell.mask.kind == MaskKind::keep) keep = make_keep(cell);
  if (cell.mask.kind == MaskKind::bias) bias = make_bias(cell);
  if (cell.weights) {
    weights = make_tensor(wide_of(cell.dtype), {cell.batch, cell.heads, cell.queries, cell.keys});
  }
  if (cell.statistics) {
    std::size_t next = 0;
    const auto make = [&](TensorView& view, DType dtype) {
      rows.at(next) = make_tensor(dtype, {cell.batch, cell.heads, cell.queries});
      view = view_of(rows.at(next++));
    };
    for (TensorView* view :
         {&statistics.max_score, &statistics.max_weight, &statistics.entropy,
          &statistics.score_mean, &statistics.score_variance, &statistics.sum_squared_weights,
          &statistics.sum_cubed_weights, &statistics.jacobian_norm}) {
      make(*view, wide_of(cell.dtype));
    }
    make(statistics.max_weight_key, DType::i64);
    make(statistics.visible_keys, DType::i64);
  }
}

ConstTensorView operand_of(const Cell& cell, const Tensor& tensor) {
  return in_order(cell, view_of(tensor));
}
TensorView operand_of(const Cell& cell, Tensor& tensor) { return in_order(cell, view_of(tensor)); }

AttentionOptions options_of(const Cell& cell, const CellData& data) {
  AttentionOptions options;
  const MaskKind kind = cell.mask.kind;
  if (kind == MaskKind::bias) options.bias = view_of(data.bias);
  options.mask.causal = kind == MaskKind::causal || kind == MaskKind::causal_window;
  options.mask.window = cell.mask.window;
  if (kind == MaskKind::padded) options.mask.key_lengths = keys_of(cell, 0).end;
  if (kind == MaskKind::keep) options.mask.keep = view_of(data.keep);
  return options;
}

ForwardOutputs outputs_of(const Cell& cell, CellData& data) {
  ForwardOutputs outputs{.output = operand_of(cell, data.output)};
  if (cell.weights) outputs.weights = view_of(data.weights);
  if (cell.statistics) outputs.statistics = &data.statistics;
  return outputs;
}

double visible_pairs(const Cell& cell, const CellData& data) {
  double pairs = 0;
  if (cell.mask.kind == MaskKind::keep) {
    for (const std::byte seen : data.keep.data) pairs += std::to_integer<int>(seen);
  } else {
    for (std::int64_t row = 0; row < cell.queries; ++row) {
      const auto range = keys_of(cell, row);
      pairs += static_cast<double>(range.end - range.begin);
    }
  }
  return pairs * static_cast<double>(cell.batch * cell.heads);
}

double real_at(const ConstTensorView& tensor, std::int64_t offset) {
  if (tensor.dtype == DType::f64) return static_cast<const double*>(tensor.data)[offset];
  return static_cast<double>(static_cast<const float*>(tensor.data)[offset]);
}

std::uint64_t hash_of(const Cell& cell, const Tensor& output) {
  const ConstTensorView view = operand_of(cell, output);
  const auto row_bytes = static_cast<std::size_t>(cell.d_v) * size_of(cell.dtype);
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (std::int64_t batch = 0; batch < cell.batch; ++batch) {
    for (std::int64_t head = 0; head < cell.heads; ++head) {
      for (std::int64_t row = 0; row < cell.queries; ++row) {
        const auto offset = static_cast<std::size_t>(batch * view.stride[0] +
                                                     head * view.stride[1] + row * view.stride[2]);
        const std::byte* bytes = output.data.data() + offset * size_of(cell.dtype);
        for (std::size_t i = 0; i < row_bytes; ++i) {
          hash = (hash ^ static_cast<std::uint64_t>(bytes[i])) * 0x100000001b3U;
        }
      }
    }
  }
  return hash;
}

}  // namespace heed::cli

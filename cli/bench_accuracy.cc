// Attention again, in a wider type, and the greatest difference.
#include "bench_accuracy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace heed::cli {
namespace {

// Work of a comparison, in multiply-adds: a few seconds of scalar arithmetic at most.
constexpr double kMaxChecked = 2.5e9;
constexpr double kMaxCheckedLong = 5e7;
constexpr std::int64_t kMaxCheckedRows = 4096;

// `rows` query rows from `first` on, of all heads: [batch, heads, rows, d_v].
using Block = std::vector<double>;

// The same view from row `first` of an axis on.
ConstTensorView rows_of(ConstTensorView view, std::size_t axis, std::int64_t first,
                        std::int64_t rows) {
  const std::int64_t bytes =
      first * view.stride[axis] * static_cast<std::int64_t>(size_of(view.dtype));
  view.data = static_cast<const std::byte*>(view.data) + bytes;
  view.shape[axis] = rows;
  return view;
}

struct Wide {
  Tensor q, k, v, output;
};

Block float64_block(const Cell& cell, const CellData& data, const Wide& wide, std::int64_t first,
                    std::int64_t rows, Executor& executor) {
  Block block(static_cast<std::size_t>(cell.batch * cell.heads * rows * cell.d_v));
  AttentionOptions options = options_of(cell, data);
  options.mask.query_start = first;
  if (options.mask.keep.present()) {
    options.mask.keep = rows_of(options.mask.keep, 0, first, rows);
  }
  if (options.bias.present()) options.bias = rows_of(options.bias, 2, first, rows);
  attention_forward(rows_of(operand_of(cell, wide.q), 2, first, rows), operand_of(cell, wide.k),
                    operand_of(cell, wide.v),
                    {.output = view(block.data(), {cell.batch, cell.heads, rows, cell.d_v})},
                    options, {.executor = &executor});
  return block;
}

// The definition, row by row, in the widest type there is.
class LongDouble {
 public:
  LongDouble(const Cell& cell, const CellData& data)
      : cell_(&cell),
        data_(&data),
        q_(operand_of(cell, data.q)),
        k_(operand_of(cell, data.k)),
        v_(operand_of(cell, data.v)) {}

  [[nodiscard]] Block block(std::int64_t first, std::int64_t rows) {
    Block block;
    for (std::int64_t batch = 0; batch < cell_->batch; ++batch) {
      for (std::int64_t head = 0; head < cell_->heads; ++head) {
        for (std::int64_t row = first; row < first + rows; ++row) add_row(batch, head, row, block);
      }
    }
    return block;
  }

 private:
  static std::int64_t offset(const ConstTensorView& view, std::int64_t batch, std::int64_t head,
                             std::int64_t row) {
    return batch * view.stride[0] + head * view.stride[1] + row * view.stride[2];
  }

  [[nodiscard]] std::vector<std::int64_t> visible_keys(std::int64_t row) const {
    std::vector<std::int64_t> keys;
    const auto range = keys_of(*cell_, row);
    const auto& keep = data_->keep.data;
    for (std::int64_t key = range.begin; key < range.end; ++key) {
      const auto index = static_cast<std::size_t>(row * cell_->keys + key);
      if (keep.empty() || keep[index] != std::byte{0}) keys.push_back(key);
    }
    return keys;
  }

  [[nodiscard]] long double score(std::int64_t query, std::int64_t key, std::int64_t index) const {
    long double dot = 0;
    for (std::int64_t x = 0; x < cell_->d; ++x) {
      dot += static_cast<long double>(real_at(q_, query + x)) *
             static_cast<long double>(real_at(k_, key + x));
    }
    dot /= std::sqrt(static_cast<long double>(cell_->d));
    if (!data_->bias.data.empty()) dot += real_at(view_of(data_->bias), index);
    return dot;
  }

  void add_row(std::int64_t batch, std::int64_t head, std::int64_t row, Block& block) const {
    const std::int64_t kv = head / (cell_->heads / cell_->kv_heads);
    const auto keys = visible_keys(row);
    std::vector<long double> scores;
    for (const std::int64_t key : keys) {
      scores.push_back(
          score(offset(q_, batch, head, row), offset(k_, batch, kv, key), row * cell_->keys + key));
    }
    const long double most = scores.empty() ? 0 : *std::max_element(scores.begin(), scores.end());
    long double sum = 0;
    std::vector<long double> output(static_cast<std::size_t>(cell_->d_v));
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const long double weight = std::exp(scores[i] - most);
      const std::int64_t value = offset(v_, batch, kv, keys[i]);
      sum += weight;
      for (std::int64_t x = 0; x < cell_->d_v; ++x) {
        output[static_cast<std::size_t>(x)] += weight * real_at(v_, value + x);
      }
    }
    for (const long double element : output) {
      block.push_back(keys.empty() ? 0.0 : static_cast<double>(element / sum));
    }
  }

  const Cell* cell_;
  const CellData* data_;
  ConstTensorView q_, k_, v_;
};

double difference(const Cell& cell, const Tensor& output, const Block& block, std::int64_t first,
                  std::int64_t rows) {
  const ConstTensorView view = operand_of(cell, output);
  double most = 0;
  auto expected = block.begin();
  for (std::int64_t head = 0; head < cell.batch * cell.heads; ++head) {
    for (std::int64_t row = first; row < first + rows; ++row) {
      const std::int64_t offset = head / cell.heads * view.stride[0] +
                                  head % cell.heads * view.stride[1] + row * view.stride[2];
      for (std::int64_t x = 0; x < cell.d_v; ++x) {
        const double error = std::abs(real_at(view, offset + x) - *expected++);
        // A NaN on either side is an infinite error, not one that comparisons pass over.
        most = std::max(most, std::isnan(error) ? std::numeric_limits<double>::infinity() : error);
      }
    }
  }
  return most;
}

// Rows that a comparison with this much work may take, in three blocks unless it takes all.
std::int64_t rows_to_check(const Cell& cell, double max_work) {
  const auto per_row = static_cast<double>(cell.batch * cell.heads * cell.keys) *
                       static_cast<double>(cell.d + cell.d_v);
  const double affordable = std::max(3.0, max_work / per_row);
  std::int64_t rows = cell.queries > kMaxCheckedRows ? 384 : cell.queries;
  if (affordable < static_cast<double>(rows)) rows = static_cast<std::int64_t>(affordable) / 3 * 3;
  return std::min(rows, cell.queries);
}

}  // namespace

Accuracy accuracy_of(const Cell& cell, const CellData& data, Executor& executor) {
  const bool is_long = cell.dtype == DType::f64;
  Accuracy accuracy{0, rows_to_check(cell, is_long ? kMaxCheckedLong : kMaxChecked),
                    is_long ? "long double" : "float64"};
  const bool all = accuracy.rows == cell.queries;
  const std::int64_t rows = all ? cell.queries : accuracy.rows / 3;
  std::vector<std::int64_t> starts{0};
  if (!all) starts = {0, (cell.queries - rows) / 2, cell.queries - rows};

  Wide wide;
  if (!is_long) {
    wide = {convert(data.q, DType::f64), convert(data.k, DType::f64), convert(data.v, DType::f64),
            convert(data.output, DType::f64)};
  }
  for (const std::int64_t first : starts) {
    const Block block = is_long ? LongDouble(cell, data).block(first, rows)
                                : float64_block(cell, data, wide, first, rows, executor);
    accuracy.max_error =
        std::max(accuracy.max_error,
                 difference(cell, is_long ? data.output : wide.output, block, first, rows));
  }
  return accuracy;
}

}  // namespace heed::cli

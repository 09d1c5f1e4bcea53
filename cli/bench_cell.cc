// Values, timing and accuracy of a benchmark's cell.
#include "bench_cell.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "terminal.h"

namespace heed::cli {
namespace {

// Work of a comparison, in multiply-adds: a few seconds of scalar arithmetic at most.
constexpr double kMaxChecked = 2.5e9;
constexpr double kMaxCheckedLong = 5e7;
constexpr std::int64_t kMaxCheckedRows = 4096;

struct KeyRange {
  std::int64_t begin, end;
};

// Keys that the query at this position sees.
KeyRange keys_of(const Cell& cell, std::int64_t position) {
  const auto& [left, right] = cell.window;
  KeyRange range{0, cell.keys};
  if (cell.causal) range.end = std::min(range.end, position + 1);
  if (left < position) range.begin = position - left;
  if (right < cell.keys) range.end = std::min(range.end, position + right + 1);
  range.begin = std::min(range.begin, std::max<std::int64_t>(range.end, 0));
  return range;
}

// SplitMix64 (Steele, Lea, Flood 2014), a sum of twelve uniform numbers: mean 0, variance 1, and no
// function of a mathematics library that might differ.
class Values {
 public:
  explicit Values(std::uint64_t seed) : state_(seed) {}

  double next() {
    double sum = -6.0;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(bits() >> 40U) * 0x1p-24;
    return sum;
  }

 private:
  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  std::uint64_t state_;
};

template <typename Real>
void fill(Tensor& tensor, Values& values) {
  for (std::size_t i = 0; i < tensor.data.size(); i += sizeof(Real)) {
    const auto value = static_cast<Real>(values.next());
    std::memcpy(tensor.data.data() + i, &value, sizeof value);
  }
}

Tensor random_tensor(const Cell& cell, std::vector<std::int64_t> shape, std::uint64_t seed) {
  Tensor tensor = make_tensor(cell.dtype, std::move(shape));
  Values values(seed);
  cell.dtype == DType::f64 ? fill<double>(tensor, values) : fill<float>(tensor, values);
  return tensor;
}

double real_at(const Tensor& tensor, std::size_t index) {
  if (tensor.dtype == DType::f64) {
    double value;
    std::memcpy(&value, tensor.data.data() + index * sizeof value, sizeof value);
    return value;
  }
  float value;
  std::memcpy(&value, tensor.data.data() + index * sizeof value, sizeof value);
  return static_cast<double>(value);
}

// `rows` query rows from `first` on, of all heads: [batch, heads, rows, d_v].
using Block = std::vector<double>;

Block float64_block(const Cell& cell, const Tensor& q, const Tensor& k, const Tensor& v,
                    std::int64_t first, std::int64_t rows, Executor& executor) {
  Block block(static_cast<std::size_t>(cell.batch * cell.heads * rows * cell.d_v));
  ConstTensorView queries = view_of(q);
  queries.data = static_cast<const double*>(queries.data) + first * cell.d;
  queries.shape[2] = rows;
  AttentionOptions options = options_of(cell);
  options.mask.query_start = first;
  attention_forward(queries, view_of(k), view_of(v),
                    {.output = view(block.data(), {cell.batch, cell.heads, rows, cell.d_v})},
                    options, {.executor = &executor});
  return block;
}

// The definition, row by row, in the widest type there is.
void long_double_row(const Cell& cell, const CellData& data, std::int64_t head_index,
                     std::int64_t position, double* row) {
  const std::int64_t group = cell.heads / cell.kv_heads;
  const std::int64_t kv = head_index / cell.heads * cell.kv_heads + head_index % cell.heads / group;
  const auto range = keys_of(cell, position);
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(range.end - range.begin, 0));
  std::vector<long double> scores(count);
  long double most = -std::numeric_limits<long double>::infinity();
  const auto at = [](const Tensor& tensor, std::int64_t index) {
    return static_cast<long double>(real_at(tensor, static_cast<std::size_t>(index)));
  };
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t key = kv * cell.keys + range.begin + static_cast<std::int64_t>(i);
    const std::int64_t query = head_index * cell.queries + position;
    long double dot = 0;
    for (std::int64_t x = 0; x < cell.d; ++x) {
      dot += at(data.q, query * cell.d + x) * at(data.k, key * cell.d + x);
    }
    scores[i] = dot / std::sqrt(static_cast<long double>(cell.d));
    most = std::max(most, scores[i]);
  }
  long double sum = 0;
  std::vector<long double> output(static_cast<std::size_t>(cell.d_v));
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t key = kv * cell.keys + range.begin + static_cast<std::int64_t>(i);
    const long double weight = std::exp(scores[i] - most);
    sum += weight;
    for (std::int64_t x = 0; x < cell.d_v; ++x) {
      output[static_cast<std::size_t>(x)] += weight * at(data.v, key * cell.d_v + x);
    }
  }
  for (std::size_t x = 0; x < output.size(); ++x) {
    row[x] = count == 0 ? 0.0 : static_cast<double>(output[x] / sum);
  }
}

Block long_double_block(const Cell& cell, const CellData& data, std::int64_t first,
                        std::int64_t rows) {
  Block block(static_cast<std::size_t>(cell.batch * cell.heads * rows * cell.d_v));
  for (std::int64_t head = 0; head < cell.batch * cell.heads; ++head) {
    for (std::int64_t row = 0; row < rows; ++row) {
      long_double_row(cell, data, head, first + row, block.data() + (head * rows + row) * cell.d_v);
    }
  }
  return block;
}

double difference(const Cell& cell, const Tensor& output, const Block& block, std::int64_t first,
                  std::int64_t rows) {
  double most = 0;
  for (std::int64_t head = 0; head < cell.batch * cell.heads; ++head) {
    for (std::int64_t i = 0; i < rows * cell.d_v; ++i) {
      const auto in_output = (head * cell.queries + first) * cell.d_v + i;
      const auto in_block = head * rows * cell.d_v + i;
      const double error = std::abs(real_at(output, static_cast<std::size_t>(in_output)) -
                                    block[static_cast<std::size_t>(in_block)]);
      // A NaN on either side is an infinite error, not one that comparisons pass over.
      most = std::max(most, std::isnan(error) ? std::numeric_limits<double>::infinity() : error);
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

std::string describe(const Cell& cell) {
  const auto pair = [](std::int64_t a, std::int64_t b, const char* between) {
    return std::to_string(a) + (a == b ? "" : between + std::to_string(b));
  };
  std::string text = std::string(name_of(cell.dtype)) + ", batch " + std::to_string(cell.batch) +
                     ", heads " + pair(cell.heads, cell.kv_heads, "/") + ", n " +
                     pair(cell.queries, cell.keys, "x") + ", d " + pair(cell.d, cell.d_v, "x");
  if (cell.causal) text += ", causal";
  const auto side = [](std::int64_t keys) {
    return keys == kUnlimited ? std::string("inf") : std::to_string(keys);
  };
  if (cell.window.left != kUnlimited || cell.window.right != kUnlimited) {
    text += ", window " + side(cell.window.left) + "," + side(cell.window.right);
  }
  return text;
}

AttentionOptions options_of(const Cell& cell) {
  return {.mask = {.causal = cell.causal, .window = cell.window}};
}

double visible_pairs(const Cell& cell) {
  double pairs = 0;
  for (std::int64_t row = 0; row < cell.queries; ++row) {
    const auto range = keys_of(cell, row);
    pairs += static_cast<double>(std::max<std::int64_t>(range.end - range.begin, 0));
  }
  return pairs * static_cast<double>(cell.batch * cell.heads);
}

double flops_of(const Cell& cell) {
  return 2.0 * static_cast<double>(cell.d + cell.d_v) * visible_pairs(cell);
}

CellData::CellData(const Cell& cell)
    : q(random_tensor(cell, {cell.batch, cell.heads, cell.queries, cell.d}, 1)),
      k(random_tensor(cell, {cell.batch, cell.kv_heads, cell.keys, cell.d}, 2)),
      v(random_tensor(cell, {cell.batch, cell.kv_heads, cell.keys, cell.d_v}, 3)),
      output(make_tensor(cell.dtype, {cell.batch, cell.heads, cell.queries, cell.d_v})) {}

std::vector<double> time_cell(const Cell& cell, CellData& data, double seconds,
                              Executor& executor) {
  constexpr double kShortest = 1e-3;
  constexpr std::size_t kFewest = 3;
  const AttentionOptions options = options_of(cell);
  const auto time_calls = [&](std::int64_t calls) {
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t call = 0; call < calls; ++call) {
      attention_forward(view_of(data.q), view_of(data.k), view_of(data.v),
                        {.output = view_of(data.output)}, options, {.executor = &executor});
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  time_calls(1);  // warms caches, pages and threads
  std::int64_t calls = 1;
  while (time_calls(calls) < kShortest) calls *= 2;
  std::vector<double> samples;
  double total = 0;
  while (total < seconds || samples.size() < kFewest) {
    const double elapsed = time_calls(calls);
    total += elapsed;
    samples.push_back(elapsed / static_cast<double>(calls));
  }
  return samples;
}

Accuracy accuracy_of(const Cell& cell, const CellData& data, Executor& executor) {
  const bool is_long = cell.dtype == DType::f64;
  Accuracy accuracy{0, rows_to_check(cell, is_long ? kMaxCheckedLong : kMaxChecked),
                    is_long ? "long double" : "float64"};
  const bool all = accuracy.rows == cell.queries;
  const std::int64_t rows = all ? cell.queries : accuracy.rows / 3;
  std::vector<std::int64_t> starts{0};
  if (!all) starts = {0, (cell.queries - rows) / 2, cell.queries - rows};

  Tensor q, k, v;
  if (!is_long) {
    q = convert(data.q, DType::f64);
    k = convert(data.k, DType::f64);
    v = convert(data.v, DType::f64);
  }
  for (const std::int64_t first : starts) {
    const Block block = is_long ? long_double_block(cell, data, first, rows)
                                : float64_block(cell, q, k, v, first, rows, executor);
    accuracy.max_error =
        std::max(accuracy.max_error, difference(cell, data.output, block, first, rows));
  }
  return accuracy;
}

std::uint64_t hash_of(const Tensor& tensor) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const std::byte byte : tensor.data) {
    hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3U;
  }
  return hash;
}

}  // namespace heed::cli

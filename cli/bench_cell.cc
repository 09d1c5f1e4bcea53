// Names, masks, work and sizes of a benchmark's cell.
#include "bench_cell.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace heed::cli {
namespace {

// The words that stand alone; the two windows carry numbers.
constexpr std::array<std::pair<std::string_view, MaskKind>, 5> kPlain{
    {{"none", MaskKind::none},
     {"causal", MaskKind::causal},
     {"keep", MaskKind::keep},
     {"bias", MaskKind::bias},
     {"padded", MaskKind::padded}}};
constexpr std::string_view kWindow = "window=";
constexpr std::string_view kCausalWindow = "causal-window=";

bool read_side(const std::string& word, std::int64_t& side) {
  if (word == "inf") {
    side = kUnlimited;
    return true;
  }
  try {
    parse(word, side);
  } catch (const std::invalid_argument&) {
    return false;
  }
  return side >= 0;
}

std::string side_text(std::int64_t side) {
  return side == kUnlimited ? "inf" : std::to_string(side);
}

bool read_mask(const std::string& word, CellMask& mask) {
  mask = {};
  for (const auto& [name, kind] : kPlain) {
    if (word != name) continue;
    mask.kind = kind;
    return true;
  }
  if (word.starts_with(kCausalWindow)) {
    mask.kind = MaskKind::causal_window;
    return read_side(word.substr(kCausalWindow.size()), mask.window.left);
  }
  const auto colon = word.find(':');
  if (!word.starts_with(kWindow) || colon == std::string::npos) return false;
  mask.kind = MaskKind::window;
  return read_side(word.substr(kWindow.size(), colon - kWindow.size()), mask.window.left) &&
         read_side(word.substr(colon + 1), mask.window.right);
}

}  // namespace

void parse(const std::string& word, CellMask& value) {
  if (read_mask(word, value)) return;
  throw std::invalid_argument(
      "expected none, causal, window=L:R, causal-window=L, keep, bias or padded, with L and R "
      "counts "
      "of keys or inf, got '" +
      word + "'");
}

std::string name_of(const CellMask& mask) {
  const auto& [left, right] = mask.window;
  if (mask.kind == MaskKind::window) {
    return std::string(kWindow) + side_text(left) + ":" + side_text(right);
  }
  if (mask.kind == MaskKind::causal_window) return std::string(kCausalWindow) + side_text(left);
  for (const auto& [name, kind] : kPlain) {
    if (mask.kind == kind) return std::string(name);
  }
  return "";
}

std::string pair_text(std::int64_t a, std::int64_t b, char between) {
  return std::to_string(a) + (a == b ? "" : between + std::to_string(b));
}

std::string describe(const Cell& cell) {
  std::string text = std::string(name_of(cell.dtype)) + ", batch " + std::to_string(cell.batch) +
                     ", heads " + pair_text(cell.heads, cell.kv_heads, '/') + ", n " +
                     pair_text(cell.queries, cell.keys, 'x') + ", d " +
                     pair_text(cell.d, cell.d_v, 'x');
  if (cell.mask.kind != MaskKind::none) text += ", " + name_of(cell.mask);
  if (cell.layout == Layout::bthd) text += ", bthd";
  if (cell.decode_order == DecodeOrder::key_by_key) text += ", key by key";
  if (cell.weights) text += ", weights";
  if (cell.statistics) text += ", statistics";
  if (cell.threads != 1) text += ", threads " + std::to_string(cell.threads);
  return text;
}

KeyRange keys_of(const Cell& cell, std::int64_t row) {
  const auto& [kind, window] = cell.mask;
  KeyRange range{0, cell.keys};
  // Rounded up, so that a single key stays.
  if (kind == MaskKind::padded) range.end = cell.keys - cell.keys / 2;
  if (kind == MaskKind::causal || kind == MaskKind::causal_window) {
    range.end = std::min(range.end, row + 1);
  }
  if (window.left < row) range.begin = row - window.left;
  if (window.right < cell.keys) range.end = std::min(range.end, row + window.right + 1);
  range.begin = std::min(range.begin, range.end);
  return range;
}

double traffic_of(const Cell& cell) {
  // Neither end of the range moves back from one row to the next.
  const std::int64_t last = std::max(keys_of(cell, 0).end, keys_of(cell, cell.queries - 1).end);
  const auto sizes = static_cast<double>(cell.d + cell.d_v);
  const auto rows = static_cast<double>(cell.heads * cell.queries);
  const auto keys = static_cast<double>(cell.kv_heads * last);
  return static_cast<double>(cell.batch) * (rows + keys) * sizes *
         static_cast<double>(size_of(cell.dtype));
}

double memory_of(const Cell& cell) {
  const auto real = [](std::int64_t number) { return static_cast<double>(number); };
  const double size = real(static_cast<std::int64_t>(size_of(cell.dtype)));
  // Checking converts q, k and v, and takes a part of the output, in float64.
  const double each = cell.dtype == DType::f64 ? size : size + sizeof(double);
  const double map = real(cell.queries) * real(cell.keys);
  const double heads = real(cell.batch) * real(cell.heads);
  const double kv_heads = real(cell.batch) * real(cell.kv_heads);
  double bytes = each * (real(cell.d) + real(cell.d_v)) *
                 (heads * real(cell.queries) + kv_heads * real(cell.keys));
  if (cell.mask.kind == MaskKind::keep) bytes += map;
  // Of 16 bits the drawn float32 numbers are there, too.
  if (cell.mask.kind == MaskKind::bias) bytes += map * (size < 4 ? size + 4 : size);
  const double wide = real(static_cast<std::int64_t>(size_of(wide_of(cell.dtype))));
  if (cell.weights) bytes += heads * map * wide;
  // Of each row what CellData makes room for: eight such numbers, a key and a count.
  if (cell.statistics) bytes += heads * real(cell.queries) * (8 * wide + 2 * sizeof(std::int64_t));
  return bytes;
}

}  // namespace heed::cli

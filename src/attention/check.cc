// The one gate: a call that passes can be computed, whatever its arguments.
#include "attention/check.h"

#include <cmath>
#include <cstdio>
#include <string>
#include <utility>

#include "attention/element.h"
#include "attention/overlap.h"
#include "heed/error.h"
#include "kernels/order.h"

namespace heed {
namespace {

// Parts of a message: only put together when it is needed.
using Sizes = std::array<std::int64_t, 4>;

/// "[2, 8, 16, 64]"
struct List {
  const Sizes& numbers;
  int count;
};
/// "mask.key_lengths" or "mask.key_lengths[3]"
struct Entry {
  const char* name;
  std::int64_t index = -1;  ///< no index where negative
};

void append(std::string& s, const char* part) { s += part; }
void append(std::string& s, std::int64_t part) { s += std::to_string(part); }
void append(std::string& s, int part) { s += std::to_string(part); }
void append(std::string& s, DType part) { s += name_of(part); }
void append(std::string& s, double part) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%g", part);
  s += buffer;
}
void append(std::string& s, List part) {
  s += "[";
  for (int i = 0; i < part.count; ++i) {
    if (i > 0) s += ", ";
    s += std::to_string(part.numbers[static_cast<std::size_t>(i)]);
  }
  s += "]";
}
void append(std::string& s, Entry part) {
  s += part.name;
  if (part.index < 0) return;
  s += "[";
  s += std::to_string(part.index);
  s += "]";
}

/// The place of the caller's axis in [batch, head, row, column], for q of this rank.
std::size_t canonical_axis(int rank, int axis) {
  if (rank == 3 && axis == 0) return 0;
  return static_cast<std::size_t>(axis + 4 - rank);
}

class Checker {
 public:
  explicit Checker(const char* function) : function_(function) {}

  /// Throws "function: parts" unless it holds.
  template <typename... Parts>
  void require(bool holds, const Parts&... parts) const {
    if (holds) [[likely]]
      return;
    std::string message = std::string(function_) + ": ";
    (append(message, parts), ...);
    throw Error(message);
  }

  /// Rank, sizes and strides that can be computed with, and memory behind them.
  void memory(const char* name, const ConstTensorView& view, bool needs_data) const {
    require(view.rank >= 0 && view.rank <= kMaxRank, name, " has rank ", view.rank,
            "; expected at most 4");
    std::int64_t elements = 1;
    std::int64_t span = 0;
    bool overflow = false;
    bool empty = false;
    for (int axis = 0; axis < view.rank; ++axis) {
      const std::int64_t size = view.shape[static_cast<std::size_t>(axis)];
      const std::int64_t stride = view.stride[static_cast<std::size_t>(axis)];
      require(size >= 0, name, " has shape ", List{view.shape, view.rank},
              "; sizes must not be negative");
      if (size == 0) {
        empty = true;
        continue;
      }
      std::int64_t reach = 0;
      overflow |= stride == std::numeric_limits<std::int64_t>::min();
      if (overflow) break;
      overflow |= __builtin_mul_overflow(elements, size, &elements);
      overflow |= __builtin_mul_overflow(size - 1, stride < 0 ? -stride : stride, &reach);
      overflow |= __builtin_add_overflow(span, reach, &span);
    }
    std::int64_t bytes = 0;
    const auto element = static_cast<std::int64_t>(size_of(view.dtype));
    overflow |= __builtin_mul_overflow(elements, element, &bytes);
    overflow |= __builtin_mul_overflow(span, element, &bytes);
    require(!overflow, name, " has shape ", List{view.shape, view.rank}, " and strides ",
            List{view.stride, view.rank}, "; its extent must fit 63 bits of bytes");
    require(!needs_data || empty || view.data != nullptr, name, " has shape ",
            List{view.shape, view.rank}, " but no data; expected a pointer that is not null");
  }

  /// A view of exactly this shape (canonical sizes, the first `last_axis` + 1 axes of them).
  template <typename View>
  View4 exact(const char* name, const View& view, int rank,
              const std::array<std::int64_t, 4>& sizes, int dropped = 0) const {
    const int expected = rank - dropped;
    std::array<std::int64_t, 4> want{};
    for (int axis = 0; axis < expected; ++axis) {
      want[static_cast<std::size_t>(axis)] = sizes[canonical_axis(rank, axis)];
    }
    bool fits = view.rank == expected;
    for (int axis = 0; fits && axis < expected; ++axis) {
      const auto a = static_cast<std::size_t>(axis);
      fits = view.shape[a] == want[a];
    }
    require(fits, name, " has shape ", List{view.shape, view.rank}, "; expected ",
            List{want, expected});
    return canonical(view, rank);
  }

  /// A view that broadcasts, right-aligned, against [batch, head, row, column].
  View4 broadcast(const char* name, const ConstTensorView& view, int rank,
                  const std::array<std::int64_t, 4>& sizes) const {
    if (!view.present()) return {};
    std::array<std::int64_t, 4> want{};
    for (int axis = 0; axis < rank; ++axis) {
      want[static_cast<std::size_t>(axis)] = sizes[canonical_axis(rank, axis)];
    }
    bool fits = view.rank <= rank;
    View4 result{static_cast<std::byte*>(const_cast<void*>(view.data)), view.dtype, true, {}};
    for (int axis = 0; fits && axis < view.rank; ++axis) {
      const auto a = static_cast<std::size_t>(axis);
      const std::size_t at = canonical_axis(rank, axis + rank - view.rank);
      fits = view.shape[a] == 1 || view.shape[a] == sizes[at];
      result.stride[at] = view.shape[a] == 1 ? 0 : view.stride[a];
    }
    require(fits, name, " has shape ", List{view.shape, view.rank},
            "; expected one that broadcasts to ", List{want, rank});
    return result;
  }

  /// A setting of `count` entries of one of two types.
  void entries(const char* name, const ConstTensorView& view, std::int64_t count, const char* per,
               DType narrow, DType wide) const {
    if (!view.present()) return;
    memory(name, view, true);
    require(view.dtype == narrow || view.dtype == wide, name, " is ", view.dtype, "; expected ",
            narrow, " or ", wide);
    require(view.rank == 1 && view.shape[0] == count, name, " has shape ",
            List{view.shape, view.rank}, "; expected [", count, "], one for each ", per);
  }

  /// One integer per batch entry, all within [lowest, highest].
  void lengths(const char* name, const PerBatch& setting, std::int64_t batches, std::int64_t lowest,
               std::int64_t highest) const {
    if (!setting.present()) return;
    entries(name, setting.each, batches, "batch entry", DType::i32, DType::i64);
    const std::int64_t count = setting.one ? 1 : batches;
    for (std::int64_t b = 0; b < count; ++b) {
      const std::int64_t n = entry(setting, b, 0);
      require(lowest <= n && n <= highest, Entry{name, setting.one ? -1 : b}, " is ", n,
              "; expected ", lowest, " .. ", highest);
    }
  }

  /// A factor that stays finite in the type that computes with it, in base 2 too.
  void factor(Entry name, double number, DType dtype) const {
    const bool fits = dtype == DType::f64
                          ? std::isfinite(number * kernels::kLog2e<double>)
                          : std::isfinite(static_cast<float>(number) * kernels::kLog2e<float>);
    require(fits, name, " is ", number, "; expected a number that is finite as ", dtype,
            ", also times log2(e)");
  }

  template <typename View>
  static View4 canonical(const View& view, int rank) {
    View4 result{static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(view.data))),
                 view.dtype,
                 true,
                 {}};
    for (int axis = 0; axis < view.rank; ++axis) {
      const auto a = static_cast<std::size_t>(axis);
      // The stride of a single element may be any number, and is none to compute with.
      const std::int64_t single = canonical_axis(rank, axis) == 3 ? 1 : 0;
      result.stride[canonical_axis(rank, axis)] = view.shape[a] > 1 ? view.stride[a] : single;
    }
    return result;
  }

 private:
  const char* function_;
};

/// Types, ranks and sizes of q, k, v.
Problem check_inputs(const Checker& check, const ConstTensorView& q, const ConstTensorView& k,
                     const ConstTensorView& v, bool needs_data) {
  for (const auto& [name, view] : {std::pair{"q", &q}, std::pair{"k", &k}, std::pair{"v", &v}}) {
    check.require(view->present(), name, " is absent; expected a view to read from");
  }
  check.memory("q", q, needs_data);
  check.memory("k", k, needs_data);
  check.memory("v", v, needs_data);
  check.require(q.dtype == DType::f32 || q.dtype == DType::f64, "q is ", q.dtype,
                "; expected float32 or float64");
  for (const auto& [name, view] : {std::pair{"k", &k}, std::pair{"v", &v}}) {
    check.require(view->dtype == q.dtype, name, " is ", view->dtype, ", q is ", q.dtype,
                  "; they must be equal");
  }
  check.require(q.rank >= 2 && q.rank <= 4, "q has rank ", q.rank,
                "; expected 2 [T, D], 3 [B, T, D] or 4 [B, H, T, D]");
  for (const auto& [name, view] : {std::pair{"k", &k}, std::pair{"v", &v}}) {
    check.require(view->rank == q.rank, "rank of ", name, " is ", view->rank, ", of q ", q.rank,
                  "; they must be equal");
  }
  const auto size = [rank = q.rank](const ConstTensorView& view, int canonical) {
    const int axis = rank == 3 && canonical == 0 ? 0 : canonical - 4 + rank;
    const bool there = axis >= 0 && !(rank == 3 && canonical == 1);
    return there ? view.shape[static_cast<std::size_t>(axis)] : 1;
  };
  const auto equal = [&](const char* what, const char* a, std::int64_t x, const char* b,
                         std::int64_t y) {
    check.require(x == y, what, " of ", a, " is ", x, ", of ", b, " ", y, "; they must be equal");
  };
  equal("batch size", "k", size(k, 0), "q", size(q, 0));
  equal("batch size", "v", size(v, 0), "q", size(q, 0));
  equal("number of heads", "v", size(v, 1), "k", size(k, 1));
  equal("number of keys", "v", size(v, 2), "k", size(k, 2));
  equal("head size", "k", size(k, 3), "q", size(q, 3));
  Problem p{};
  p.dtype = q.dtype;
  p.batches = size(q, 0);
  p.heads = size(q, 1);
  p.kv_heads = size(k, 1);
  p.queries = size(q, 2);
  p.keys = size(k, 2);
  p.head_size = size(q, 3);
  p.value_size = size(v, 3);
  check.require(p.heads == 0 || (p.kv_heads > 0 && p.heads % p.kv_heads == 0),
                "number of heads of q is ", p.heads, ", of k ", p.kv_heads,
                "; the first must be a multiple of the second");
  p.q = Checker::canonical(q, q.rank);
  p.k = Checker::canonical(k, q.rank);
  p.v = Checker::canonical(v, q.rank);
  return p;
}

void check_outputs(const Checker& check, Problem& p, const ForwardOutputs& outputs, int rank) {
  check.require(outputs.output.present(), "output is absent; expected a view to write to");
  const auto output = [&](const char* name, const TensorView& view,
                          const std::array<std::int64_t, 4>& sizes, int dropped,
                          DType dtype) -> View4 {
    if (!view.present()) return {};
    check.memory(name, view, true);
    check.require(view.dtype == dtype, name, " is ", view.dtype, "; expected ", dtype,
                  dtype == p.dtype ? ", the type of q" : "");
    View4 result = check.exact(name, view, rank, sizes, dropped);
    check.require(!may_overlap_itself(view), name, " has shape ", List{view.shape, view.rank},
                  " and strides ", List{view.stride, view.rank},
                  "; no two of its elements may share memory");
    return result;
  };
  p.output =
      output("output", outputs.output, {p.batches, p.heads, p.queries, p.value_size}, 0, p.dtype);
  // What a row has one of lacks columns: its axes are those of q but the last.
  const std::array<std::int64_t, 4> rows{p.batches, p.heads, p.queries, 0};
  p.lse = output("lse", outputs.lse, rows, 1, p.dtype);
  for (std::size_t i = 0; outputs.statistics != nullptr && i < kStatisticFields.size(); ++i) {
    const StatisticField& field = kStatisticFields[i];
    p.statistics[i] = output(field.name, outputs.statistics->*field.view, rows, 1,
                             field.is_count() ? DType::i64 : p.dtype);
    p.counting |= p.statistics[i].present;
  }
  p.weights =
      output("weights", outputs.weights, {p.batches, p.heads, p.queries, p.keys}, 0, p.dtype);
}

void check_options(const Checker& check, Problem& p, const AttentionOptions& o, int rank,
                   bool needs_data) {
  check.entries("scale", o.scale.each, p.heads, "query head", DType::f32, DType::f64);
  if (o.scale.one) check.factor({"scale"}, *o.scale.one, p.dtype);
  for (std::int64_t h = 0; o.scale.each.present() && h < p.heads; ++h) {
    check.factor({"scale", h}, entry(o.scale.each, h), p.dtype);
  }
  check.require(p.head_size > 0 || o.scale.present() || o.normalize_qk,
                "head size is 0 and scale absent; expected a scale, since 1 / sqrt(0) is none");
  check.require(!o.softcap || (*o.softcap >= 0x1p-100 && *o.softcap <= 0x1p100), "softcap is ",
                o.softcap.value_or(0), "; expected 2^-100 .. 2^100");
  check.entries("alibi", o.alibi, p.heads, "query head", DType::f32, DType::f64);
  check.entries("sinks", o.sinks, p.heads, "query head", DType::f32, DType::f64);
  const std::array<std::int64_t, 4> sizes{p.batches, p.heads, p.queries, p.keys};
  if (o.bias.present()) {
    check.memory("bias", o.bias, needs_data);
    check.require(is_floating(o.bias.dtype), "bias is ", o.bias.dtype,
                  "; expected a floating type (boolean masks go "
                  "to mask.keep or mask.drop)");
    p.bias = check.broadcast("bias", o.bias, rank, sizes);
  }
  const bool other = p.dtype == DType::f32
                         ? o.score_mod.f32 == nullptr && o.score_mod.f64 != nullptr
                         : o.score_mod.f64 == nullptr && o.score_mod.f32 != nullptr;
  check.require(!other, "score_mod has no function for ", p.dtype, ", the type of q");
  check.lengths("mask.query_start", o.mask.query_start, p.batches,
                std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());
  check.lengths("mask.key_lengths", o.mask.key_lengths, p.batches, 0, p.keys);
  check.lengths("mask.query_lengths", o.mask.query_lengths, p.batches, 0, p.queries);
  for (const auto& [name, side] : {std::pair{"mask.window.left", o.mask.window.left},
                                   std::pair{"mask.window.right", o.mask.window.right}}) {
    check.require(side >= 0, name, " is ", side, "; expected 0 or more");
  }
  const auto dense = [&](const char* name, const ConstTensorView& view) -> View4 {
    if (!view.present()) return {};
    check.memory(name, view, true);
    check.require(is_integral(view.dtype), name, " is ", view.dtype,
                  "; expected bool or an integer type (additive "
                  "masks go to bias)");
    return check.broadcast(name, view, rank, sizes);
  };
  p.keep = dense("mask.keep", o.mask.keep);
  p.drop = dense("mask.drop", o.mask.drop);
}

void check_overlap(const Checker& check, const ConstTensorView& q, const ConstTensorView& k,
                   const ConstTensorView& v, const ForwardOutputs& outputs,
                   const AttentionOptions& o) {
  std::array<std::pair<const char*, ConstTensorView>, 3 + kStatisticFields.size()> written{
      {{"output", outputs.output}, {"lse", outputs.lse}, {"weights", outputs.weights}}};
  for (std::size_t i = 0; i < kStatisticFields.size(); ++i) {
    const StatisticField& field = kStatisticFields[i];
    written[3 + i] = {field.name, outputs.statistics == nullptr ? ConstTensorView{}
                                                                : outputs.statistics->*field.view};
  }
  const std::pair<const char*, ConstTensorView> read[] = {
      {"q", q},
      {"k", k},
      {"v", v},
      {"scale", o.scale.each},
      {"alibi", o.alibi},
      {"bias", o.bias},
      {"mask.query_start", o.mask.query_start.each},
      {"mask.key_lengths", o.mask.key_lengths.each},
      {"mask.query_lengths", o.mask.query_lengths.each},
      {"mask.keep", o.mask.keep},
      {"mask.drop", o.mask.drop},
      {"sinks", o.sinks}};
  const auto distinct = [&](const auto& a, const auto& b) {
    check.require(!a.second.present() || !b.second.present() || !may_overlap(a.second, b.second),
                  a.first, " overlaps ", b.first, " in memory; expected memory of its own");
  };
  for (const auto& out : written) {
    for (const auto& in : read) distinct(out, in);
    for (const auto& other : written) {
      if (out.first != other.first) distinct(out, other);
    }
  }
}

}  // namespace

Problem check_forward(const char* function, const ConstTensorView& q, const ConstTensorView& k,
                      const ConstTensorView& v, const ForwardOutputs* outputs,
                      const AttentionOptions& options) {
  const Checker check(function);
  const bool needs_data = outputs != nullptr;
  Problem p = check_inputs(check, q, k, v, needs_data);
  check_options(check, p, options, q.rank, needs_data);
  p.function = function;
  p.options = options;
  if (outputs != nullptr) {
    check_outputs(check, p, *outputs, q.rank);
    check_overlap(check, q, k, v, *outputs, options);
  }
  return p;
}

}  // namespace heed

// A call of attention between rows: what it is made of, and its memory.
#include "modules/attending.h"

#include <cmath>
#include <string>
#include <utility>

#include "attention/element.h"
#include "heed/error.h"
#include "modules/checks.h"

namespace heed {

AttendingCall check_attending(const Checker& check, const MultiHeadAttentionOptions& o,
                              std::span<const float> temperature, const AttendingRows& rows,
                              const AttentionOptions& options) {
  AttendingCall call;
  call.x = check_rows(check, "x", rows.x, o.d_model, 2, 3);
  check.require(rows.context.present() || !rows.values.present(),
                "values is given, but not context; expected both");
  const auto source = [&](const char* name, const ConstTensorView& own, const char* other_name,
                          const ConstTensorView& other, std::int64_t size) {
    return check_rows(check, own.present() ? name : other_name, own.present() ? own : other, size,
                      rows.x.rank, rows.x.rank);
  };
  call.context = source("context", rows.context, "x", rows.x, o.d_keys);
  const char* const context_name = rows.context.present() ? "context" : "x";
  const ConstTensorView& context = rows.context.present() ? rows.context : rows.x;
  call.values = source("values", rows.values, context_name, context, o.d_values);
  call.batches = call.x.sizes[0];
  call.queries = call.x.sizes[2];
  call.keys = call.context.sizes[2];
  for (const auto& [name, other] :
       {std::pair{"context", &call.context}, std::pair{"values", &call.values}}) {
    check.require(other->sizes[0] == call.batches, "batch size of ", name, " is ", other->sizes[0],
                  ", of x ", call.batches, "; they must be equal");
  }
  check.require(call.values.sizes[2] == call.keys, "number of rows of values is ",
                call.values.sizes[2], ", of context ", call.keys, "; they must be equal");
  check.require(options.dropout.p == 0, "options.dropout.p is ", options.dropout.p,
                "; expected 0: the module's own counts");
  call.options = options;
  call.options.dropout = {};
  if (!temperature.empty()) {
    check.one_or_each("scale", options.scale);
    check.entries("scale", options.scale.each, o.heads, "query head", DType::f32, DType::f64);
    if (options.scale.one) check.factor({"scale"}, *options.scale.one, DType::f32);
    const double usual =
        options.normalize_qk ? 1.0 : 1.0 / std::sqrt(static_cast<double>(o.head_size));
    for (std::int64_t h = 0; h < o.heads; ++h) {
      const double base = options.scale.each.present() ? entry(options.scale.each, h)
                                                       : options.scale.one.value_or(usual);
      if (options.scale.each.present()) check.factor({"scale", h}, base, DType::f32);
      const auto own = static_cast<std::size_t>(temperature.size() == 1 ? 0 : h);
      const double scale = base / static_cast<double>(temperature[own]);
      check.require(std::isfinite(static_cast<float>(scale) * kernels::kLog2e<float>),
                    Entry{"temperature", static_cast<std::int64_t>(own)}, " is ", temperature[own],
                    "; expected one by which the scale ", base, " can be divided");
      call.scales.push_back(scale);
    }
    call.options.scale = view(call.scales.data(), {o.heads});
  }
  return call;
}

HeadViews views_of(const MultiHeadAttentionOptions& o, const AttendingCall& c, const Buffers& at) {
  return {view_bthd(at.q, c.batches, c.queries, o.heads, o.head_size),
          view_bthd(at.k, c.batches, c.keys, o.kv_heads, o.head_size),
          view_bthd(at.v, c.batches, c.keys, o.kv_heads, o.value_size),
          view_bthd(at.attended, c.batches, c.queries, o.heads, o.value_size),
          view(at.lse, {c.batches, o.heads, c.queries})};
}

/// Elements of each buffer.
std::array<std::int64_t, 5> sizes_of(const char* function, const MultiHeadAttentionOptions& o,
                                     const AttendingCall& c) {
  std::array<std::int64_t, 5> sizes{};
  const std::int64_t each[5] = {o.heads * o.head_size, o.kv_heads * o.head_size,
                                o.kv_heads * o.value_size, o.heads * o.value_size, o.heads};
  for (std::size_t i = 0; i < 5; ++i) {
    const std::int64_t rows = i == 1 || i == 2 ? c.keys : c.queries;
    if (__builtin_mul_overflow(c.batches * rows, each[i], &sizes[i])) {
      throw Error(ErrorKind::memory,
                  std::string(function) + ": q, k, v and results exceed the address space");
    }
  }
  return sizes;
}

Buffers carve_buffers(Carver& carver, const std::array<std::int64_t, 5>& sizes) {
  Buffers at{};
  float** const all[5] = {&at.q, &at.k, &at.v, &at.attended, &at.lse};
  for (std::size_t i = 0; i < 5; ++i) *all[i] = carver.take<float>(sizes[i]);
  return at;
}

Buffers buffers_in(SavedAttention& saved) {
  return {saved.q.data(), saved.k.data(), saved.v.data(), saved.attended.data(), saved.lse.data()};
}

std::array<std::vector<float>*, 5> vectors_of(SavedAttention& saved) {
  return {&saved.q, &saved.k, &saved.v, &saved.attended, &saved.lse};
}

}  // namespace heed

// The one gate: a call that passes can be computed, whatever its arguments.
#include "attention/check.h"

#include <cmath>
#include <limits>
#include <utility>

#include "attention/element.h"

namespace heed {
namespace {

/// Values of a draw for dropout: the rate is taken to one part in as many.
constexpr double kDraws = 65536;

/// Types, ranks and sizes of q, k, v, and what callers know k as.
Problem check_tensors(const Checker& check, const ConstTensorView& q, const ConstTensorView& k,
                      const ConstTensorView& v, const char* k_name, bool needs_data) {
  for (const auto& [name, view] : {std::pair{"q", &q}, std::pair{"k", &k}, std::pair{"v", &v}}) {
    check.require(view->present(), name, " is absent; expected a view to read from");
  }
  check.memory("q", q, needs_data);
  check.memory("k", k, needs_data);
  check.memory("v", v, needs_data);
  check.require(is_floating(q.dtype), "q is ", q.dtype,
                "; expected float16, bfloat16, float32 or float64");
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
  p.element = q.dtype;
  p.dtype = q.dtype == DType::f64 ? DType::f64 : DType::f32;
  p.batches = size(q, 0);
  p.heads = size(q, 1);
  p.kv_heads = size(k, 1);
  p.queries = size(q, 2);
  p.keys = size(k, 2);
  p.head_size = size(q, 3);
  p.value_size = size(v, 3);
  check.require(p.heads == 0 || (p.kv_heads > 0 && p.heads % p.kv_heads == 0),
                "number of heads of q is ", p.heads, ", of ", k_name, " ", p.kv_heads,
                "; the first must be a multiple of the second");
  p.q = Checker::canonical(q, q.rank);
  p.k = Checker::canonical(k, q.rank);
  p.v = Checker::canonical(v, q.rank);
  return p;
}

void check_options(const Checker& check, Problem& p, const AttentionOptions& o, int rank,
                   bool needs_data) {
  check.one_or_each("scale", o.scale);
  check.entries("scale", o.scale.each, p.heads, "query head", DType::f32, DType::f64);
  if (o.scale.one) check.factor({"scale"}, *o.scale.one, p.dtype);
  for (std::int64_t h = 0; o.scale.each.present() && h < differing(o.scale.each); ++h) {
    check.factor({"scale", h}, entry(o.scale.each, h), p.dtype);
  }
  check.require(p.head_size > 0 || o.scale.present() || o.normalize_qk,
                "head size is 0 and scale absent; expected a scale, since 1 / sqrt(0) is none");
  check.require(!o.softcap || (*o.softcap >= 0x1p-100 && *o.softcap <= 0x1p100), "softcap is ",
                o.softcap.value_or(0), "; expected 2^-100 .. 2^100");
  check.entries("alibi", o.alibi, p.heads, "query head", DType::f32, DType::f64);
  check.entries("sinks", o.sinks, p.heads, "query head", DType::f32, DType::f64);
  // Beyond, round(65536 p) would be 65536: nothing would be kept.
  check.require(o.dropout.p >= 0 && o.dropout.p < 1 - 0x1p-17, "dropout.p is ", o.dropout.p,
                "; expected 0 <= p < 1, and 1 - p above 2^-17");
  check.require(o.dropout.p == 0 || o.dropout.seed.has_value(), "dropout.p is ", o.dropout.p,
                ", but dropout.seed is absent; expected one, new for each training step");
  for (const auto& [name, first] : {std::pair{"dropout.first_query", o.dropout.first_query},
                                    {"dropout.first_key", o.dropout.first_key},
                                    {"dropout.first_batch", o.dropout.first_batch},
                                    {"dropout.first_head", o.dropout.first_head}}) {
    check.require(first >= 0, name, " is ", first, "; expected 0 or more");
  }
  p.draw_heads = o.dropout.heads == 0 ? p.heads : o.dropout.heads;
  check.require(p.draw_heads >= p.heads && o.dropout.first_head <= p.draw_heads - p.heads,
                "dropout.heads is ", o.dropout.heads, ", first_head ", o.dropout.first_head,
                "; expected at least the sum of first_head and the ", p.heads, " of the call");
  p.drop_below = static_cast<std::uint32_t>(std::lround(o.dropout.p * kDraws));
  p.keep_factor = kDraws / (kDraws - p.drop_below);
  const std::array<std::int64_t, 4> sizes{p.batches, p.heads, p.queries, p.keys};
  if (o.bias.present()) {
    check.memory("bias", o.bias, needs_data);
    check.require(is_floating(o.bias.dtype), "bias is ", o.bias.dtype,
                  "; expected a floating type (a boolean mask is a keep-mask "
                  "or a drop-mask)");
    p.bias = check.broadcast("bias", o.bias, rank, sizes);
  }
  const ScoreMod& mod = o.score_mod;
  const bool given = mod.f32 != nullptr || mod.f64 != nullptr || mod.derivative_f32 != nullptr ||
                     mod.derivative_f64 != nullptr;
  const bool has_own = p.dtype == DType::f32 ? mod.f32 != nullptr : mod.f64 != nullptr;
  check.require(!given || has_own, "score_mod has no function for ", p.dtype, of_scores(p));
  const std::int64_t entries = p.ragged == nullptr ? p.batches : p.ragged->entries();
  const auto any = [](std::int64_t) { return std::numeric_limits<std::int64_t>::max(); };
  const std::int64_t limits = p.ragged == nullptr ? 1 : entries;
  check.lengths("mask.query_start", o.mask.query_start, entries, 1,
                std::numeric_limits<std::int64_t>::min(), any);
  check.lengths("mask.key_lengths", o.mask.key_lengths, entries, limits, 0,
                [&](std::int64_t b) { return p.keys_of(b); });
  check.lengths("mask.query_lengths", o.mask.query_lengths, entries, limits, 0,
                [&](std::int64_t b) { return p.queries_of(b); });
  for (const auto& [name, side] : {std::pair{"mask.window.left", o.mask.window.left},
                                   std::pair{"mask.window.right", o.mask.window.right}}) {
    check.require(side >= 0, name, " is ", side, "; expected 0 or more");
  }
  const auto dense = [&](const char* name, const ConstTensorView& view) -> View4 {
    if (!view.present()) return {};
    check.memory(name, view, true);
    check.require(is_integral(view.dtype), name, " is ", view.dtype,
                  "; expected bool or an integer type (an additive mask is "
                  "a bias)");
    return check.broadcast(name, view, rank, sizes);
  };
  p.keep = dense("mask.keep", o.mask.keep);
  p.drop = dense("mask.drop", o.mask.drop);
}

}  // namespace

Problem check_inputs(const Checker& check, const ConstTensorView& q, const ConstTensorView& k,
                     const ConstTensorView& v, const AttentionOptions& options, Reads reads,
                     std::shared_ptr<const Ragged> ragged) {
  const bool needs_data = reads == Reads::elements;
  const char* const k_name = ragged == nullptr ? "k" : "the cache";
  Problem p = check_tensors(check, q, k, v, k_name, needs_data);
  p.ragged = ragged != nullptr ? std::move(ragged) : check_packing(check, p, options.packing);
  const std::int64_t sequences = p.ragged == nullptr ? 0 : p.ragged->entries();
  std::int64_t groups = 0;  // memory bounds those of the others
  check.require(!__builtin_mul_overflow(sequences, p.kv_heads, &groups), "number of sequences is ",
                sequences, ", of heads of ", k_name, " ", p.kv_heads,
                "; their product must fit 63 bits");
  check_options(check, p, options, q.rank, needs_data);
  p.function = check.function();
  p.options = options;
  return p;
}

std::array<NamedView, 11> option_views(const AttentionOptions& o) {
  return {{{"scale", o.scale.each},
           {"alibi", o.alibi},
           {"bias", o.bias},
           {"mask.query_start", o.mask.query_start.each},
           {"mask.key_lengths", o.mask.key_lengths.each},
           {"mask.query_lengths", o.mask.query_lengths.each},
           {"mask.keep", o.mask.keep},
           {"mask.drop", o.mask.drop},
           {"sinks", o.sinks},
           {"packing.query_offsets", o.packing.query_offsets},
           {"packing.key_offsets", o.packing.key_offsets}}};
}

void check_row_outputs(const Checker& check, Problem* p, const ForwardOutputs& outputs, int rank) {
  const auto output = [&](const char* name, const TensorView& view, const Sizes& sizes, int dropped,
                          DType dtype) {
    return check.output(name, view, rank, sizes, dropped, dtype, p->element);
  };
  // What a row has one of lacks columns: its axes are those of q but the last.
  const Sizes rows{p->batches, p->heads, p->queries, 0};
  p->lse = output("lse", outputs.lse, rows, 1, p->dtype);
  for (std::size_t i = 0; outputs.statistics != nullptr && i < kStatisticFields.size(); ++i) {
    const StatisticField& field = kStatisticFields[i];
    p->statistics[i] = output(field.name, outputs.statistics->*field.view, rows, 1,
                              field.is_count() ? DType::i64 : p->dtype);
    p->counting |= p->statistics[i].present;
  }
  check.require(!outputs.weights.present() || !p->options.packing.present(),
                "weights is given together with packing; expected one of the two (weights of a "
                "sequence come from a call on its rows alone)");
  p->weights =
      output("weights", outputs.weights, {p->batches, p->heads, p->queries, p->keys}, 0, p->dtype);
}

void check_outputs(const Checker& check, Problem* p, const ForwardOutputs& outputs, int rank,
                   std::span<const NamedView> read) {
  check.require(outputs.output.present(), "output is absent; expected a view to write to");
  const Sizes sizes{p->batches, p->heads, p->queries, p->value_size};
  p->output = check.output("output", outputs.output, rank, sizes, 0, p->element, p->element);
  check_row_outputs(check, p, outputs, rank);
  std::array<NamedView, 3 + kStatisticFields.size()> written{
      {{"output", outputs.output}, {"lse", outputs.lse}, {"weights", outputs.weights}}};
  for (std::size_t i = 0; outputs.statistics != nullptr && i < kStatisticFields.size(); ++i) {
    const StatisticField& field = kStatisticFields[i];
    written[3 + i] = {field.name, outputs.statistics->*field.view};
  }
  check.distinct(written, read);
  check.distinct(written, option_views(p->options));
}

Problem check_forward(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
                      const ForwardOutputs& outputs, const AttentionOptions& options) {
  const Checker check("attention_forward");
  Problem p = check_inputs(check, q, k, v, options, Reads::elements);
  const NamedView tensors[] = {{"q", q}, {"k", k}, {"v", v}};
  check_outputs(check, &p, outputs, q.rank, tensors);
  place_entries(&p);
  return p;
}

}  // namespace heed

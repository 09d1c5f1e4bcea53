// Projections around attention: what they are made of, and forward.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "attention/carver.h"
#include "attention/check.h"
#include "heed/modules.h"
#include "modules/attending.h"
#include "modules/checks.h"
#include "modules/products.h"
#include "modules/random.h"
#include "runtime/float_environment.h"
#include "runtime/scratch.h"

namespace heed {
namespace {

/// What the caller knows a module and its options by.
struct CalledBy {
  const char* module = "MultiHeadAttention";
  const char* head_size = "head_size";
  const char* value_size = "value_size";
};

/// Absent sizes filled in, all checked.
MultiHeadAttentionOptions resolved(MultiHeadAttentionOptions o, const CalledBy& names = {}) {
  const runtime::DefaultFloatEnvironment environment;
  const Checker check(names.module);
  const auto at_least_one = [&](const char* name, std::int64_t size) {
    check.require(size >= 1, name, " is ", size, "; expected 1 or more");
  };
  at_least_one("d_model", o.d_model);
  at_least_one("heads", o.heads);
  if (o.kv_heads == 0) o.kv_heads = o.heads;
  at_least_one("kv_heads", o.kv_heads);
  check.require(o.heads % o.kv_heads == 0, "kv_heads is ", o.kv_heads, "; expected a divisor of ",
                o.heads, ", the number of heads");
  check.require(o.head_size != 0 || o.d_model % o.heads == 0, "heads is ", o.heads,
                "; expected a divisor of ", o.d_model, ", which is d_model, or a head_size");
  if (o.head_size == 0) o.head_size = o.d_model / o.heads;
  if (o.value_size == 0) o.value_size = o.head_size;
  if (o.d_keys == 0) o.d_keys = o.d_model;
  if (o.d_values == 0) o.d_values = o.d_keys;
  at_least_one(names.head_size, o.head_size);
  at_least_one(names.value_size, o.value_size);
  at_least_one("d_keys", o.d_keys);
  at_least_one("d_values", o.d_values);
  std::int64_t columns = 0;
  check.require(!__builtin_mul_overflow(o.heads, std::max(o.head_size, o.value_size), &columns),
                "heads is ", o.heads, "; heads times their size must fit 63 bits");
  // The rule of AttentionOptions::dropout, before the first call.
  check.require(o.dropout >= 0 && o.dropout < 1 - 0x1p-17, "dropout is ", o.dropout,
                "; expected 0 <= p < 1, and 1 - p above 2^-17");
  const auto temperature = static_cast<int>(o.temperature);
  check.require(temperature <= static_cast<int>(Temperature::per_head), "temperature is ",
                temperature, ", which is no Temperature");
  check_initialisation(check, o.initialisation);
  return o;
}

LinearOptions linear(const MultiHeadAttentionOptions& o, std::int64_t inputs, std::int64_t outputs,
                     std::uint64_t index) {
  LinearOptions options{
      .inputs = inputs, .outputs = outputs, .bias = o.bias, .initialisation = o.initialisation};
  options.initialisation.seed = random_bits(o.initialisation.seed, index);
  return options;
}

Projection map_of(const Linear& map, float* y, std::int64_t count) {
  return {map.weight().data(), or_null(map.bias()), rows_of(y, count, map.outputs())};
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(const MultiHeadAttentionOptions& options)
    : options_(resolved(options)),
      w_q_(linear(options_, options_.d_model, options_.heads * options_.head_size, 0)),
      w_k_(linear(options_, options_.d_keys, options_.kv_heads * options_.head_size, 1)),
      w_v_(linear(options_, options_.d_values, options_.kv_heads * options_.value_size, 2)),
      w_o_(linear(options_, options_.heads * options_.value_size, options_.d_model, 3)) {
  if (options_.temperature == Temperature::none) return;
  const std::int64_t count = options_.temperature == Temperature::one ? 1 : options_.heads;
  resize("MultiHeadAttention", temperature_, count, 1);
  resize("MultiHeadAttention", d_temperature_, count, 1);
  std::fill(temperature_.begin(), temperature_.end(), 1.0f);
}

std::vector<Parameter> MultiHeadAttention::parameters() {
  std::vector<Parameter> all;
  const std::pair<const char*, Linear*> maps[] = {
      {"q", &w_q_}, {"k", &w_k_}, {"v", &w_v_}, {"o", &w_o_}};
  for (const auto& [letter, map] : maps) {
    for (Parameter& parameter : map->parameters()) {
      parameter.name = (parameter.name == "weight" ? "W_" : "b_") + std::string(letter);
      all.push_back(std::move(parameter));
    }
  }
  if (!temperature_.empty()) {
    all.push_back({"temperature",
                   {static_cast<std::int64_t>(temperature_.size())},
                   temperature_,
                   d_temperature_});
  }
  return all;
}

void MultiHeadAttention::zero_gradients() {
  for (Linear* map : {&w_q_, &w_k_, &w_v_, &w_o_}) map->zero_gradients();
  std::fill(d_temperature_.begin(), d_temperature_.end(), 0.0f);
}

void MultiHeadAttention::forward(const AttendingRows& rows, const MultiHeadOutputs& outputs,
                                 const AttentionOptions& options,
                                 const Execution& execution) const {
  forward_as("MultiHeadAttention::forward", rows, outputs, options, execution);
}

void MultiHeadAttention::forward_as(const char* function, const AttendingRows& rows,
                                    const MultiHeadOutputs& outputs,
                                    const AttentionOptions& options,
                                    const Execution& execution) const {
  const runtime::DefaultFloatEnvironment environment;
  const Checker check(function);
  AttendingCall call = check_attending(check, options_, temperature_, rows, options);
  check.require(mode_ == Mode::training || mode_ == Mode::evaluation, "mode is ",
                static_cast<int>(mode_), ", which is no Mode");
  if (mode_ == Mode::training && options_.dropout > 0) {
    check.require(options.dropout.seed.has_value(),
                  "options.dropout.seed is absent; while training "
                  "with dropout ",
                  options_.dropout, " expected one, new for each step");
    call.options.dropout = options.dropout;
    call.options.dropout.p = options_.dropout;
  }
  check.require(outputs.output.present(), "output is absent; expected a view to write to");
  const Rows output = check_written(check, "output", outputs.output, rows.x, options_.d_model);
  std::array<NamedView, 2 + kStatisticFields.size()> written{NamedView{"output", outputs.output},
                                                             NamedView{"weights", outputs.weights}};
  for (std::size_t n = 0; outputs.statistics != nullptr && n < kStatisticFields.size(); ++n) {
    const StatisticField& field = kStatisticFields[n];
    written[2 + n] = {field.name, outputs.statistics->*field.view};
  }
  const HeadViews shapes = views_of(options_, call, {});
  Problem p = check_inputs(check, shapes.q, shapes.k, shapes.v, call.options, Reads::sizes);
  check_row_outputs(check, &p,
                    {.output = {}, .weights = outputs.weights, .statistics = outputs.statistics},
                    shapes.q.rank);
  if (options.bias.present()) check.memory("bias", options.bias, true);
  const NamedView read[] = {{"x", rows.x}, {"context", rows.context}, {"values", rows.values}};
  check.distinct(written, read);
  check.distinct(written, held(w_q_, w_k_, w_v_, w_o_, temperature_));
  check.distinct(written, option_views(options));
  if (outputs.saved != nullptr) {  // is written, too, and may move
    const auto saved = held(*outputs.saved);
    check.distinct(written, saved);
    check.distinct(saved, read);
    check.distinct(saved, option_views(options));
  }
  const Hands hands{function, choose_workers(function, execution)};
  AskedBefore executor(hands.workers);

  const auto sizes = sizes_of(function, options_, call);
  std::optional<runtime::ScratchLease> lease;
  Buffers at{};
  if (outputs.saved != nullptr) {
    outputs.saved->batches = 0;
    const auto vectors = vectors_of(*outputs.saved);
    for (std::size_t i = 0; i < 5; ++i) resize(function, *vectors[i], sizes[i], 1);
    at = buffers_in(*outputs.saved);
  } else {
    Carver size(function, nullptr);
    static_cast<void>(carve_buffers(size, sizes));
    lease.emplace(size.used());
    Carver carver(function, lease->data());
    at = carve_buffers(carver, sizes);
  }
  // q, k and v of the same rows are computed together, from one packed copy.
  const Projection maps[] = {map_of(w_q_, at.q, call.x.count),
                             map_of(w_k_, at.k, call.context.count),
                             map_of(w_v_, at.v, call.values.count)};
  const std::span<const Projection> all = maps;
  if (!rows.context.present()) {
    project(hands, call.x, all);
  } else {
    project(hands, call.x, all.subspan(0, 1));
    project(hands, call.context, all.subspan(1, rows.values.present() ? 1 : 2));
    if (rows.values.present()) project(hands, call.values, all.subspan(2, 1));
  }
  if (call.options.packing.present()) {  // which writes no row that is of no sequence
    std::fill_n(at.attended, sizes[3], 0.0f);
    std::fill_n(at.lse, sizes[4], -std::numeric_limits<float>::infinity());
  }
  const HeadViews heads = views_of(options_, call, at);
  attention_forward(heads.q, heads.k, heads.v,
                    {.output = heads.attended,
                     .lse = outputs.saved == nullptr ? TensorView{} : heads.lse,
                     .weights = outputs.weights,
                     .statistics = outputs.statistics},
                    call.options, executor.inside(execution));
  const Projection last{w_o_.weight().data(), or_null(w_o_.bias()), output};
  project(hands, rows_of(at.attended, call.x.count, w_o_.inputs()), {&last, 1});
  if (outputs.saved == nullptr) return;
  outputs.saved->batches = call.batches;
  outputs.saved->queries = call.queries;
  outputs.saved->keys = call.keys;
  outputs.saved->dropout = call.options.dropout;
}

SelfAttention::SelfAttention(const SelfAttentionOptions& options)
    : attention_(resolved({.d_model = options.d_model,
                           .heads = 1,
                           .head_size = options.d_k,
                           .value_size = options.d_v,
                           .bias = options.bias,
                           .dropout = options.dropout,
                           .temperature = options.temperature,
                           .initialisation = options.initialisation},
                          {"SelfAttention", "d_k", "d_v"})) {}

void SelfAttention::forward(const ConstTensorView& x, const MultiHeadOutputs& outputs,
                            const AttentionOptions& options, const Execution& execution) const {
  attention_.forward_as("SelfAttention::forward", {.x = x}, outputs, options, execution);
}

void SelfAttention::backward(const ConstTensorView& x, const SavedAttention& saved,
                             const ConstTensorView& d_output, const MultiHeadGradients& gradients,
                             const AttentionOptions& options, const Execution& execution) {
  const char* const function = "SelfAttention::backward";
  const bool of_others = gradients.dcontext.present() || gradients.dvalues.present();
  Checker(function).require(!of_others, gradients.dcontext.present() ? "dcontext" : "dvalues",
                            " is given; expected none, for keys and values are made of x");
  attention_.backward_as(function, {.x = x}, saved, d_output, gradients, options, execution);
}

}  // namespace heed

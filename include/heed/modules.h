// Layers with parameters, to train and to run: a linear map, self-attention, multi-head attention.
// float32.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heed/attention.h"
#include "heed/backward.h"
#include "heed/export.h"

namespace heed {

/// Numbers that are learnt, and where their gradient is added up: both lie in the module, dense,
/// last axis fastest, and stay where they are while it lives and is not assigned to.
struct Parameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<float> values;
  std::span<float> gradient;
};

/// The parameters with `prefix` before their names, to list those of several modules together.
[[nodiscard]] HEED_API std::vector<Parameter> prefixed(const std::string& prefix,
                                                       std::vector<Parameter> parameters);

/// How the numbers of a weight [outputs, inputs] are drawn.
enum class Draw : std::uint8_t {
  xavier_uniform,       ///< uniform within +-sqrt(6 / (inputs + outputs))
  xavier_normal,        ///< normal, variance 2 / (inputs + outputs)
  inverse_sqrt_inputs,  ///< normal, deviation 1 / sqrt(inputs): of W_q 1 / sqrt(d_model)
  constant_deviation,   ///< normal, standard deviation as given
};

/// A seed gives the same numbers on every machine: uniform number i comes from SplitMix64 at
/// counter i. Normal number i is the sum of the twelve from 12 i on, less six, so it lies within
/// six standard deviations.
struct Initialisation {
  Draw draw = Draw::xavier_uniform;
  double deviation = 0.02;  ///< for Draw::constant_deviation
  std::uint64_t seed = 0;
};

/// Fills a weight [outputs, inputs]. Throws if the span has another size, the deviation is negative
/// or above 5.67e37, six of which are the largest number drawn, or the Draw is none.
HEED_API void initialise(std::span<float> weight, std::int64_t outputs, std::int64_t inputs,
                         const Initialisation& initialisation = {});

struct LinearOptions {
  std::int64_t inputs;   ///< 1 or more
  std::int64_t outputs;  ///< 1 or more
  bool bias = false;
  Initialisation initialisation{};  ///< of the weight; a bias begins at 0
};

/// y = x W' + b, rows of x at a time.
///
///     x  [.., inputs]      W  "weight" [outputs, inputs]
///     y  [.., outputs]     b  "bias"   [outputs]
///
/// A module that was moved from, this one or another, may be assigned to or destroyed, and nothing
/// else. x and y are float32 of rank 2 to 4, of any strides. Each element of y is one order of
/// operations: the same bits for any number of threads, any executor, any other rows in the call
/// and any instruction set, forward and backward.
class HEED_API Linear {
 public:
  /// Throws if a size is less than 1 or the weight exceeds the address space.
  explicit Linear(const LinearOptions& options);

  /// Throws heed::Error before anything is written if a view does not fit.
  void forward(const ConstTensorView& x, const TensorView& y,
               const Execution& execution = {}) const;

  /// From dy, the gradient of a loss with respect to y, and the x of the forward call:
  ///
  ///     dx = dy W      dW += dy' x      db += sum of the rows of dy
  ///
  /// An absent dx costs nothing. Parameters' gradients are added to: zero_gradients() begins a new
  /// sum. After an Error of kind memory some of them may have been added, and dx is not there yet.
  void backward(const ConstTensorView& x, const ConstTensorView& dy, const TensorView& dx = {},
                const Execution& execution = {});

  /// "weight" and, with one, "bias".
  [[nodiscard]] std::vector<Parameter> parameters();
  void zero_gradients();

  [[nodiscard]] std::int64_t inputs() const noexcept { return inputs_; }
  [[nodiscard]] std::int64_t outputs() const noexcept { return outputs_; }
  [[nodiscard]] std::span<const float> weight() const noexcept { return weight_; }
  [[nodiscard]] std::span<const float> bias() const noexcept { return bias_; }  ///< empty without
  [[nodiscard]] std::span<float> weight_gradient() noexcept { return d_weight_; }
  [[nodiscard]] std::span<float> bias_gradient() noexcept { return d_bias_; }

 private:
  std::int64_t inputs_, outputs_;
  std::vector<float> weight_, d_weight_, bias_, d_bias_;
};

/// A learnable temperature, one for all heads or one for each: parameter "temperature", 1 at first.
enum class Temperature : std::uint8_t { none, one, per_head };

/// Whether dropout acts.
enum class Mode : std::uint8_t { training, evaluation };

struct MultiHeadAttentionOptions {
  std::int64_t d_model;         ///< size of the rows of x and of the output
  std::int64_t heads;           ///< query heads
  std::int64_t kv_heads = 0;    ///< heads of keys and values, a divisor of heads; 0: heads
  std::int64_t head_size = 0;   ///< of queries and keys; 0: d_model / heads, which must be whole
  std::int64_t value_size = 0;  ///< 0: head_size
  std::int64_t d_keys = 0;      ///< size of the rows that keys are made of; 0: d_model
  std::int64_t d_values = 0;    ///< size of the rows that values are made of; 0: d_keys
  bool bias = false;            ///< b_q, b_k, b_v, b_o
  double dropout = 0;           ///< of weights while training, as Dropout::p
  Temperature temperature = Temperature::none;
  Initialisation initialisation{};  ///< each weight draws from a seed of its own, made of this one
};

/// Rows that attend and rows that are attended to: [B, T, size], or all [T, size].
struct AttendingRows {
  ConstTensorView x;          ///< [B, Tq, d_model]: queries are made of them
  ConstTensorView context{};  ///< [B, Tk, d_keys]: keys; absent: x, as in self-attention
  ConstTensorView values{};   ///< [B, Tk, d_values], beside context; absent: context
};

/// What backward() needs of a forward call. Memory is used again by later calls.
struct SavedAttention {
  std::vector<float> q, k, v;   ///< [B, T, heads, size]
  std::vector<float> attended;  ///< [B, Tq, heads, value size]
  std::vector<float> lse;       ///< [B, heads, Tq]
  std::int64_t batches = 0, queries = 0, keys = 0;
  Dropout dropout{};
};

struct MultiHeadOutputs {
  TensorView output;                          ///< [B, Tq, d_model]
  SavedAttention* saved = nullptr;            ///< filled for backward(); no input may lie in it
  TensorView weights{};                       ///< [B, heads, Tq, Tk]
  const RowStatistics* statistics = nullptr;  ///< of shape [B, heads, Tq]
};

/// Where gradients of inputs and options go, the former in the shapes of AttendingRows. Absent ones
/// cost nothing.
struct MultiHeadGradients {
  TensorView dx{};  ///< includes what comes through keys and values where they were made of x
  TensorView
      dcontext{};  ///< includes what comes through values where they were made of the context
  TensorView dvalues{};
  TensorView dalibi{}, dbias{}, dsinks{};  ///< as in heed::Gradients
};

/// Multi-head attention over rows of x.
///
///     q = x W_q' + b_q     k = context W_k' + b_k     v = values W_v' + b_v
///     head h:  O_h = attention(q_h, k_h', v_h')     h' = h / (heads / kv_heads)
///     output = [O_1 .. O_H] W_o' + b_o
///
///     W_q [heads * head_size, d_model]          W_v [kv_heads * value_size, d_values]
///     W_k [kv_heads * head_size, d_keys]        W_o [d_model, heads * value_size]
///
/// The score's scale is options.scale, 1 / sqrt(head_size) where it is absent (1 with
/// normalize_qk), divided by the learnable temperature where there is one. Options of
/// attention_forward pass through, shapes as for q [B, heads, Tq, head_size] (B = 1 for x [Tq,
/// d_model]); options.dropout.p stays 0: the module's own counts, while training, with the seed and
/// places of options.dropout. With packing, rows of no sequence attend to nothing: their output is
/// b_o, and their keys and values get no gradient.
///
/// float32; the same bits for any number of threads and executors, for any batch and, in
/// evaluation, any other query rows in the call.
class HEED_API MultiHeadAttention {
 public:
  /// Throws heed::Error for sizes that do not fit each other.
  explicit MultiHeadAttention(const MultiHeadAttentionOptions& options);

  /// Throws heed::Error before any output is written if something does not fit; `saved` then holds
  /// nothing, or what it held. After an Error of kind memory weights and statistics may be there.
  void forward(const AttendingRows& rows, const MultiHeadOutputs& outputs,
               const AttentionOptions& options = {}, const Execution& execution = {}) const;

  /// From d_output, the gradient of a loss with respect to the output: gradients of inputs and
  /// options, and of parameters, which are added to those there are. rows and options are those of
  /// the forward call that filled `saved`, its parameters unchanged since; its dropout is in
  /// `saved`.
  ///
  /// Throws heed::Error before anything is written if something does not fit. Scratch memory is
  /// taken step by step: after an Error of kind memory some of the gradients may be there, and
  /// parameters' may have been added to; zero_gradients() before they are asked for again.
  void backward(const AttendingRows& rows, const SavedAttention& saved,
                const ConstTensorView& d_output, const MultiHeadGradients& gradients = {},
                const AttentionOptions& options = {}, const Execution& execution = {});

  /// "W_q", "b_q", "W_k", "b_k", "W_v", "b_v", "W_o", "b_o", "temperature": those there are.
  [[nodiscard]] std::vector<Parameter> parameters();
  void zero_gradients();

  /// Mode::training at first; without dropout both are the same.
  void set_mode(Mode mode) noexcept { mode_ = mode; }
  [[nodiscard]] Mode mode() const noexcept { return mode_; }
  /// With every size as it counts, none 0.
  [[nodiscard]] const MultiHeadAttentionOptions& options() const noexcept { return options_; }

 private:
  friend class SelfAttention;  // whose errors have its own name
  void forward_as(const char* function, const AttendingRows& rows, const MultiHeadOutputs& outputs,
                  const AttentionOptions& options, const Execution& execution) const;
  void backward_as(const char* function, const AttendingRows& rows, const SavedAttention& saved,
                   const ConstTensorView& d_output, const MultiHeadGradients& gradients,
                   const AttentionOptions& options, const Execution& execution);
  void add_temperature_gradient(std::span<const float> dscale, std::span<const double> scales);

  MultiHeadAttentionOptions options_;
  Mode mode_ = Mode::training;
  Linear w_q_, w_k_, w_v_, w_o_;
  std::vector<float> temperature_, d_temperature_;
};

struct SelfAttentionOptions {
  std::int64_t d_model;
  std::int64_t d_k = 0;  ///< 0: d_model
  std::int64_t d_v = 0;  ///< 0: d_k
  bool bias = false;
  double dropout = 0;
  Temperature temperature = Temperature::none;
  Initialisation initialisation{};
};

/// Self-attention with one head, as it is taught.
///
///     output = softmax(x W_q' (x W_k')' / sqrt(d_k)) x W_v' W_o'
///
///     attention.forward(x, {.output = y}, {.bias = bias, .mask = {.causal = true}});
class HEED_API SelfAttention {
 public:
  explicit SelfAttention(const SelfAttentionOptions& options);

  /// x and output [B, T, d_model] or [T, d_model]; all else as in MultiHeadAttention.
  void forward(const ConstTensorView& x, const MultiHeadOutputs& outputs,
               const AttentionOptions& options = {}, const Execution& execution = {}) const;
  void backward(const ConstTensorView& x, const SavedAttention& saved,
                const ConstTensorView& d_output, const MultiHeadGradients& gradients = {},
                const AttentionOptions& options = {}, const Execution& execution = {});

  [[nodiscard]] std::vector<Parameter> parameters() { return attention_.parameters(); }
  void zero_gradients() { attention_.zero_gradients(); }
  void set_mode(Mode mode) noexcept { attention_.set_mode(mode); }
  [[nodiscard]] Mode mode() const noexcept { return attention_.mode(); }

 private:
  MultiHeadAttention attention_;
};

}  // namespace heed

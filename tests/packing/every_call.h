// Every call of packed sequences, in any type, its tensors where a Memory says.
#pragma once

#include "forward/between_guards.h"
#include "heed/backward.h"
#include "jvp/support.h"
#include "packing/packed.h"

namespace heed_test {

/// Forward with all statistics, then on its results backward with all gradients and the forward
/// mode.
template <typename T>
class EveryPackedCall {
 public:
  EveryPackedCall(const Packed<T>& packed, heed::DType dtype, std::uint64_t seed)
      : c_(packed.call), d_(c_.dims()), dtype_(dtype), told_(c_), m_(draw_motion(c_, seed)) {
    told_.options.packing = packed.packing();
    Random random(seed);
    d_output_ = Tensor<T>({1, d_.heads, d_.queries, d_.value_size});
    fill_normal(d_output_, random);
  }

  void forward(Memory& at, const heed::Execution& execution = {}) {
    const heed::RowStatistics statistics = some_statistics(at, dtype_, d_);
    output_ = at.result(dtype_, {1, d_.heads, d_.queries, d_.value_size});
    lse_ = at.result(wide(dtype_), {1, d_.heads, d_.queries});
    heed::attention_forward(at.input(c_.q, dtype_), at.input(c_.k, dtype_), at.input(c_.v, dtype_),
                            {.output = output_, .lse = lse_, .statistics = &statistics},
                            at.options(told_.options), execution);
  }
  void backward(Memory& at, const heed::Execution& execution = {}) {
    const auto numbers = [&](bool there) {
      return there ? at.result(wide(dtype_), {d_.heads}) : heed::TensorView{};
    };
    const Shape& b = c_.bias.shape;
    const heed::Gradients to{.dq = at.result(dtype_, {1, d_.heads, d_.queries, d_.size}),
                             .dk = at.result(dtype_, {1, d_.kv_heads, d_.keys, d_.size}),
                             .dv = at.result(dtype_, {1, d_.kv_heads, d_.keys, d_.value_size}),
                             .dscale = numbers(true),
                             .dalibi = numbers(!c_.alibi.empty()),
                             .dbias = c_.bias.present()
                                          ? at.result(wide(dtype_), {b[0], b[1], b[2], b[3]})
                                          : heed::TensorView{},
                             .dsinks = numbers(!c_.sinks.empty()),
                             .ds_norms = at.result(wide(dtype_), {1, d_.heads, d_.queries})};
    heed::attention_backward({.q = at.input(c_.q, dtype_),
                              .k = at.input(c_.k, dtype_),
                              .v = at.input(c_.v, dtype_),
                              .output = at.input(heed::ConstTensorView(output_)),
                              .lse = at.input(heed::ConstTensorView(lse_)),
                              .d_output = at.input(d_output_, dtype_)},
                             to, at.options(told_.options), execution);
  }
  void forward_mode(Memory& at, const heed::Execution& execution = {}) {
    const heed::TensorView moved = at.result(dtype_, {1, d_.heads, d_.queries, d_.value_size}),
                           moved_lse = at.result(wide(dtype_), {1, d_.heads, d_.queries});
    heed::attention_jvp({.q = at.input(c_.q, dtype_),
                         .k = at.input(c_.k, dtype_),
                         .v = at.input(c_.v, dtype_),
                         .output = at.input(heed::ConstTensorView(output_)),
                         .lse = at.input(heed::ConstTensorView(lse_))},
                        {.q = at.input(m_.q, dtype_),
                         .k = at.input(m_.k, dtype_),
                         .v = at.input(m_.v, dtype_),
                         .bias = at.input(m_.bias.view())},
                        {.output = moved, .lse = moved_lse}, at.options(told_.options), execution);
  }

 private:
  Call<T> c_;
  Dims d_;
  heed::DType dtype_;
  Told<T> told_;
  Motion<T> m_;
  Tensor<T> d_output_;
  heed::TensorView output_, lse_;  // of forward()
};

}  // namespace heed_test

// AttentionOptions and Execution from the tuple that heed's Python functions pass.
#pragma once

#include <functional>

#include "array.h"
#include "heed/attention.h"

namespace heed::python {

/// A number, whatever Python or NumPy calls it; TypeError for what is none and for booleans,
/// ValueError for one that PyTorch differentiates or no float64 holds.
[[nodiscard]] double number(const char* name, nb::handle value);

/// The options of a call, and the arrays that they look at.
///
/// The tuple is what heed._options.pack makes: the fields of heed._options.Options, and `role` says
/// what a mask is: 0 by its type (boolean keeps, floating adds), 1 keep, 2 drop, 3 add.
///
///     scale, normalize_qk, softcap, alibi, bias, role, mask, causal, query_start, window,
///     key_lengths, query_lengths, sinks, dropout_p, seed, reproducible, packing
class Options {
 public:
  explicit Options(const nb::tuple& fields);

  [[nodiscard]] const AttentionOptions& get() const { return options_; }
  [[nodiscard]] bool reproducible() const { return reproducible_; }
  /// run_without_gil, with an error's `bias` called as the caller calls it.
  void run(const char* function, const std::function<void()>& work) const;

  [[nodiscard]] Execution run_on(Executor& executor) const {
    return {.executor = &executor, .reproducible = reproducible_};
  }

 private:
  void set_mask(nb::handle role, nb::handle mask);
  void set_window(nb::handle window);
  void set_packing(nb::handle packing);
  PerHead per_head(const char* name, nb::handle value, Array& held);
  PerBatch per_batch(const char* name, nb::handle value, Array& held);

  AttentionOptions options_;
  bool reproducible_ = false;
  const char* bias_name_ = "bias";  // "mask" where a mask adds
  Array scale_, alibi_, bias_, mask_, query_start_, key_lengths_, query_lengths_, sinks_;
  Array query_offsets_, key_offsets_;
};

}  // namespace heed::python

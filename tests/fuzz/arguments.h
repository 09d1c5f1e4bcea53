// A call of attention_forward or attention_backward as bare views and options, to be moved, changed
// and made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "changed.h"
#include "forward/seen.h"
#include "heed/backward.h"

namespace heed_fuzz {

/// One option, or the number of threads, is another one.
inline void change(heed::AttentionOptions& options, heed::Execution& execution, Bytes& bytes) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const double number =
      bytes.pick({0.0, -1.0, 1.0, 1e300, 1e-300, std::numeric_limits<double>::infinity(),
                  std::numeric_limits<double>::quiet_NaN()});
  const std::int64_t count = bytes.pick<std::int64_t>({-1, 0, 1, 7, kMost, -kMost - 1});
  const std::int64_t which = bytes.below(14);
  switch (which) {
    case 0:
      options.scale = number;
      break;
    case 1:
      options.softcap = number;
      break;
    case 2:
      options.dropout = {.p = number, .seed = 1};
      break;
    case 3:
      options.dropout = {.p = 0.5, .seed = {}};
      break;
    case 4:
      options.mask.window.left = count;
      break;
    case 5:
      options.mask.window.right = count;
      break;
    case 6:
      options.mask.query_start = count;
      break;
    case 7:
      (bytes.chance(128) ? options.mask.key_lengths : options.mask.query_lengths) = count;
      break;
    case 8:
      execution.threads = static_cast<int>(bytes.pick<std::int64_t>({-1, 2, 4096, 4097, 1 << 30}));
      break;
    default: {  // the call is a part of a larger one
      using heed::Dropout;
      constexpr std::int64_t Dropout::*kPlaces[] = {&Dropout::first_query, &Dropout::first_key,
                                                    &Dropout::first_batch, &Dropout::first_head,
                                                    &Dropout::heads};
      options.dropout = {.p = 0.5, .seed = 1};
      options.dropout.*kPlaces[which - 9] = count;
    }
  }
}

struct Arguments {
  heed::ConstTensorView q, k, v;
  std::vector<heed::ConstTensorView> outputs;  // what is written, in the order of its struct
  heed::ConstTensorView forward_output{}, lse{}, d_output{};
  heed::AttentionOptions options;
  heed::Execution execution{};
  bool backward = false;

  /// Every view that is given.
  std::vector<heed::ConstTensorView*> views() {
    std::vector<heed::ConstTensorView*> all{&q, &k, &v, &forward_output, &lse, &d_output};
    for (auto& view : outputs) all.push_back(&view);
    auto& m = options.mask;
    for (auto* view : {&options.scale.each, &options.alibi, &options.bias, &options.sinks,
                       &m.query_start.each, &m.key_lengths.each, &m.query_lengths.each, &m.keep,
                       &m.drop, &options.packing.query_offsets, &options.packing.key_offsets})
      all.push_back(view);
    std::erase_if(all, [](const auto* view) { return !view->present(); });
    return all;
  }

  /// Asks for statistics, too; output, lse and weights are in the list.
  void see(const heed::RowStatistics& statistics) {
    for (const auto which : heed_test::kStatistics) outputs.emplace_back(statistics.*which);
  }

  void change(Bytes& bytes) { heed_fuzz::change(options, execution, bytes); }

  /// The output of this number, nothing where there are fewer.
  [[nodiscard]] heed::TensorView output(std::size_t n) const {
    if (n >= outputs.size()) return {};
    const heed::ConstTensorView& view = outputs[n];
    return {const_cast<void*>(view.data), view.dtype, view.rank, view.shape, view.stride};
  }

  /// Outputs are output, lse, weights, then statistics; or the gradients.
  void call() const {
    if (backward) {
      heed::attention_backward(
          {q, k, v, forward_output, lse, d_output},
          {output(0), output(1), output(2), output(3), output(4), output(5), output(6), output(7)},
          options, execution);
      return;
    }
    heed::RowStatistics statistics;
    for (std::size_t n = 0; n < std::size(heed_test::kStatistics); ++n)
      statistics.*heed_test::kStatistics[n] = output(3 + n);
    heed::attention_forward(q, k, v, {output(0), output(1), output(2), &statistics}, options,
                            execution);
  }
};

/// A list of numbers, [1, 1, 1, n].
template <typename T>
heed::TensorView numbers(heed_test::Tensor<T>& t) {
  return t.present() ? heed::view(t.memory.data(), {t.count()}) : heed::TensorView{};
}

/// Tensors of float, shown in a type of 16 bits: memory of that type with the same strides, at odd
/// addresses if `odd`. In other types a tensor is shown as it is.
class Narrow {
 public:
  Narrow(heed::DType dtype, bool odd) : dtype_(dtype), odd_(odd ? 1 : 0) {}

  template <typename T>
  void input(heed::ConstTensorView& view, const heed_test::Tensor<T>& tensor) {
    if constexpr (std::is_same_v<T, float>)
      if (sixteen_bits(dtype_)) show(view, tensor);
  }
  template <typename T>
  void output(heed::ConstTensorView& view, heed_test::Tensor<T>& tensor) {
    input(view, tensor);
    if constexpr (std::is_same_v<T, float>)
      if (sixteen_bits(dtype_)) written_.push_back({&tensor, memory_.size() - 1});
  }

  /// What calls have written to the outputs, in the tensors.
  void read() const {
    for (const auto& [tensor, which] : written_)
      for (std::size_t n = 0; n < tensor->memory.size(); ++n) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, memory_[which].data() + odd_ + 2 * n, sizeof bits);
        if (bits == 0xFFFF) {
          std::memset(&tensor->memory[n], 0xFF, sizeof(float));
        } else {
          tensor->memory[n] = static_cast<float>(heed_test::decoded(bits, dtype_));
        }
      }
  }

 private:
  void show(heed::ConstTensorView& view, const heed_test::Tensor<float>& tensor) {
    auto& bytes = memory_.emplace_back(odd_ + 2 * tensor.memory.size());
    for (std::size_t n = 0; n < tensor.memory.size(); ++n) {
      std::uint32_t all = 0;
      std::memcpy(&all, &tensor.memory[n], sizeof all);
      const std::uint16_t bits = all == 0xFFFFFFFF  // what nobody has written stays that
                                     ? std::uint16_t{0xFFFF}
                                     : heed_test::encoded(double{tensor.memory[n]}, dtype_);
      std::memcpy(bytes.data() + odd_ + 2 * n, &bits, sizeof bits);
    }
    view.data = bytes.data() + odd_ + 2 * tensor.first;
    view.dtype = dtype_;
  }

  struct Written {
    heed_test::Tensor<float>* tensor;
    std::size_t memory;
  };
  heed::DType dtype_;
  std::size_t odd_;
  std::deque<std::vector<std::byte>> memory_;
  std::vector<Written> written_;
};

/// The call in ordinary memory; another one between unreadable pages writes the same, and nothing
/// beside it.
inline void call_both_ways(const Arguments& call, bool at_end) {
  Placed placed(at_end);
  Arguments guarded = call;
  for (auto* view : guarded.views()) placed.copy(*view);
  guarded.call();
  call.call();
  for (std::size_t n = 0; n < call.outputs.size(); ++n) {
    const heed::ConstTensorView &there = guarded.outputs[n], &here = call.outputs[n];
    expect(same(region(there), region(here), here.dtype), "other bits between unreadable pages",
           "output " + std::to_string(n));
  }
}

/// Memory for the gradients of a call, and the call that writes them, on a forward pass's output
/// and lse.
template <typename T>
struct BackwardCall {
  BackwardCall(Arguments call, heed_test::Call<T>& s, heed_test::Result<T>& r,
               const heed_test::Tensor<T>& d_output, heed_test::Layout layout, heed::DType dtype,
               bool odd = false)
      : arguments(std::move(call)), narrow(dtype, odd) {
    using heed_test::Tensor;
    const heed_test::Dims d = s.dims();
    to.dq = Tensor<T>(s.q.shape, layout);
    to.dk = Tensor<T>(s.k.shape, layout);
    to.dv = Tensor<T>(s.v.shape, layout);
    to.dscale = Tensor<T>({1, 1, 1, d.heads});
    if (!s.alibi.empty()) to.dalibi = to.dscale;
    if (!s.sinks.empty()) to.dsinks = to.dscale;
    to.ds_norms = Tensor<T>({d.batch, d.heads, d.queries, 1}, layout);
    heed::TensorView dbias;
    if (s.bias.present()) {
      to.dbias = Tensor<T>(s.bias.shape, layout);
      dbias = heed_test::without_leading_axes(to.dbias.out(s.rank), arguments.options.bias.rank);
    }
    arguments.backward = true;
    arguments.forward_output = r.o.view(s.rank);
    arguments.lse = rows(r.lse, s.rank);
    arguments.d_output = d_output.view(s.rank);
    arguments.outputs = {to.dq.out(s.rank),  to.dk.out(s.rank),        to.dv.out(s.rank),
                         numbers(to.dscale), numbers(to.dalibi),       dbias,
                         numbers(to.dsinks), rows(to.ds_norms, s.rank)};
    narrow.input(arguments.forward_output, r.o);
    narrow.input(arguments.d_output, d_output);
    narrow.output(arguments.outputs[0], to.dq);
    narrow.output(arguments.outputs[1], to.dk);
    narrow.output(arguments.outputs[2], to.dv);
  }
  BackwardCall(const BackwardCall&) = delete;
  BackwardCall& operator=(const BackwardCall&) = delete;

  void run(bool at_end) {
    call_both_ways(arguments, at_end);
    narrow.read();
  }

  Arguments arguments;
  heed_test::Gradients<T> to;
  Narrow narrow;
};

}  // namespace heed_fuzz

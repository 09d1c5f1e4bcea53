// XLA's custom calls for heed.jax, where jaxlib's headers were there to build with.
//
//     heed_attention_forward     q, k, v, options.. -> output, lse, [weights], statistics..
//     heed_attention_backward    q, k, v, options.., output, lse, d_output -> gradients..
//
// The headers are all of XLA that is needed: nothing is linked, and a process without JAX never
// comes here.
#include <xla/ffi/api/ffi.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "bindings.h"
#include "heed/heed.h"
#include "run.h"
#include "statistics.h"

namespace heed::python {

namespace nb = nanobind;

namespace {

namespace ffi = xla::ffi;

using Shape = std::vector<std::int64_t>;

[[noreturn]] void refuse(const std::string& message) { throw Error(message); }

template <typename T>
T value_of(const ffi::ErrorOr<T>& given, const std::string& name) {
  if (!given.has_value()) refuse(name + ": " + given.error().message());
  return given.value();
}

DType dtype_of(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::PRED:
      return DType::boolean;
    case ffi::DataType::U8:
      return DType::u8;
    case ffi::DataType::S8:
      return DType::i8;
    case ffi::DataType::U16:
      return DType::u16;
    case ffi::DataType::S16:
      return DType::i16;
    case ffi::DataType::U32:
      return DType::u32;
    case ffi::DataType::S32:
      return DType::i32;
    case ffi::DataType::U64:
      return DType::u64;
    case ffi::DataType::S64:
      return DType::i64;
    case ffi::DataType::F16:
      return DType::f16;
    case ffi::DataType::BF16:
      return DType::bf16;
    case ffi::DataType::F32:
      return DType::f32;
    case ffi::DataType::F64:
      return DType::f64;
    default:
      refuse("an array is of a type that heed does not read");
  }
}

/// A dense array of XLA. heed knows its last axes; those before are of jax.vmap, and have length 1
/// where the array is the same for all entries (vmap_method="expand_dims").
class Buffer {
 public:
  Buffer(const ffi::AnyBuffer& buffer, int rank)
      : data_(static_cast<char*>(buffer.untyped_data())) {
    const auto shape = buffer.dimensions();
    const auto axes = static_cast<std::size_t>(rank);
    if (shape.size() < axes) refuse("an array has too few axes");
    const auto outer = shape.size() - axes;
    mapped_.assign(shape.begin(), shape.begin() + outer);
    view_.dtype = dtype_of(buffer.element_type());
    view_.rank = rank;
    for (std::size_t axis = axes; axis-- > 0;) {
      view_.shape[axis] = shape[outer + axis];
      view_.stride[axis] = elements_;
      elements_ *= view_.shape[axis];
    }
  }

  [[nodiscard]] const Shape& mapped() const { return mapped_; }

  /// The part that belongs to an entry.
  [[nodiscard]] TensorView at(const Shape& entry) const {
    std::int64_t index = 0;
    for (std::size_t axis = 0; axis < mapped_.size(); ++axis) {
      index = index * mapped_[axis] + (mapped_[axis] == 1 ? 0 : entry[axis]);
    }
    TensorView view = view_;
    view.data = data_ + index * elements_ * static_cast<std::int64_t>(size_of(view_.dtype));
    return view;
  }

  /// Of all entries.
  void fill(double value) const {
    std::int64_t all = elements_;
    for (const std::int64_t length : mapped_) all *= length;
    if (view_.dtype == DType::f32)
      std::fill_n(reinterpret_cast<float*>(data_), all, static_cast<float>(value));
    if (view_.dtype == DType::f64) std::fill_n(reinterpret_cast<double*>(data_), all, value);
    if (view_.dtype == DType::i64)
      std::fill_n(reinterpret_cast<std::int64_t*>(data_), all, static_cast<std::int64_t>(value));
  }

 private:
  char* data_;
  std::int64_t elements_ = 1;  // of one entry
  Shape mapped_;
  TensorView view_;
};

/// Calls `work` for each entry of jax.vmap's axes, in their order.
template <typename Work>
void for_each_entry(const Shape& mapped, const Work& work) {
  std::int64_t entries = 1;
  for (const std::int64_t length : mapped) entries *= length;
  Shape entry(mapped.size());
  for (std::int64_t i = 0; i < entries; ++i) {
    std::int64_t rest = i;
    for (std::size_t axis = mapped.size(); axis-- > 0; rest /= mapped[axis]) {
      entry[axis] = rest % mapped[axis];
    }
    work(entry);
  }
}

/// Options that are arrays, in the order in which heed/_jax_calls.py passes those that are given.
enum Option : std::size_t {
  kBias,
  kMask,
  kScale,
  kAlibi,
  kSinks,
  kQueryStart,
  kKeyLengths,
  kQueryLengths,
  kSeed,
  kQueryOffsets,
  kKeyOffsets,
  kOptions
};

/// What both calls are given: q, k, v and options.
class Call {
 public:
  Call(const ffi::RemainingArgs& operands, const ffi::RemainingRets& results,
       const ffi::Dictionary& attributes)
      : operands_(operands), results_(results), attributes_(attributes) {
    for (auto& tensor : qkv_) tensor = next(4);
    const auto given = number("given");
    for (std::size_t option = 0; option < kOptions; ++option) {
      if ((given >> option & 1) != 0) options_[option] = next(option <= kMask ? 4 : 1);
    }
  }

  [[nodiscard]] std::int64_t number(const char* name) const {
    return value_of(attributes_.get<std::int64_t>(name), name);
  }
  [[nodiscard]] double real(const char* name) const {
    return value_of(attributes_.get<double>(name), name);
  }
  [[nodiscard]] bool truth(const char* name) const {
    return value_of(attributes_.get<bool>(name), name);
  }

  /// The next operand, of so many axes.
  [[nodiscard]] Buffer next(int rank) {
    return {value_of(operands_.get<ffi::AnyBuffer>(operand_++), "operands"), rank};
  }

  /// The next result.
  [[nodiscard]] Buffer next_result(int rank) {
    return {*value_of(results_.get<ffi::AnyBuffer>(result_++), "results"), rank};
  }

  /// [B, H, T, D] of an array that may be laid out [B, T, H, D].
  [[nodiscard]] TensorView tensor(const Buffer& buffer, const Shape& entry) const {
    return bthd_ ? swap_axes(buffer.at(entry), 1, 2) : buffer.at(entry);
  }
  [[nodiscard]] TensorView q(const Shape& entry) const { return tensor(*qkv_[0], entry); }
  [[nodiscard]] TensorView k(const Shape& entry) const { return tensor(*qkv_[1], entry); }
  [[nodiscard]] TensorView v(const Shape& entry) const { return tensor(*qkv_[2], entry); }

  [[nodiscard]] AttentionOptions options(const Shape& entry) const {
    const auto view = [&](Option option) {
      return options_[option] ? ConstTensorView(options_[option]->at(entry)) : ConstTensorView{};
    };
    AttentionOptions options;
    options.scale.each = view(kScale);
    if (truth("has_factor")) options.scale.one = real("factor");
    options.normalize_qk = truth("normalize_qk");
    if (truth("has_softcap")) options.softcap = real("softcap");
    options.alibi = view(kAlibi);
    options.bias = view(kBias);
    (truth("mask_drops") ? options.mask.drop : options.mask.keep) = view(kMask);
    options.mask.causal = truth("causal");
    options.mask.query_start.each = view(kQueryStart);
    if (number("window_left") >= 0) options.mask.window.left = number("window_left");
    if (number("window_right") >= 0) options.mask.window.right = number("window_right");
    options.mask.key_lengths.each = view(kKeyLengths);
    options.mask.query_lengths.each = view(kQueryLengths);
    options.sinks = view(kSinks);
    options.packing = {view(kQueryOffsets), view(kKeyOffsets)};
    options.dropout.p = real("dropout_p");
    if (options_[kSeed]) {  // its low and its high half
      const auto* halves = static_cast<const std::uint32_t*>(options_[kSeed]->at(entry).data);
      options.dropout.seed = std::uint64_t{halves[1]} << 32 | halves[0];
    }
    return options;
  }

  /// Then what belongs to no sequence is left as it is, and XLA's results are never set.
  [[nodiscard]] bool packed() const { return options_[kQueryOffsets].has_value(); }

  [[nodiscard]] Execution execution() const {
    return {.threads = static_cast<int>(number("threads"))};
  }

 private:
  ffi::RemainingArgs operands_;
  ffi::RemainingRets results_;
  ffi::Dictionary attributes_;
  std::size_t operand_ = 0;
  std::size_t result_ = 0;
  bool bthd_ = truth("bthd");
  std::array<std::optional<Buffer>, 3> qkv_;
  std::array<std::optional<Buffer>, kOptions> options_;
};

/// Runs `work`; what it throws becomes an error of XLA, with Python's names.
template <typename Work>
ffi::Error guarded(const char* function, const Work& work) {
  try {
    work();
    return ffi::Error::Success();
  } catch (const Error& error) {
    const bool memory = error.kind() == ErrorKind::memory;
    return {memory ? ffi::ErrorCode::kResourceExhausted : ffi::ErrorCode::kInvalidArgument,
            in_python_words(function, error.what())};
  } catch (const std::bad_alloc&) {
    return {ffi::ErrorCode::kResourceExhausted, std::string(function) + ": out of memory"};
  } catch (const std::exception& error) {
    return ffi::Error::Internal(std::string(function) + ": " + error.what());
  }
}

/// What rows have that see no key.
void fill_rows(const Buffer& output, const Buffer& lse,
               const std::array<std::optional<Buffer>, kRowFields.size()>& statistics) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  output.fill(0);
  lse.fill(kNone);
  for (std::size_t i = 0; i < kRowFields.size(); ++i) {
    if (!statistics[i]) continue;
    const auto field = kRowFields[i];
    statistics[i]->fill(field == &RowStatistics::max_score        ? kNone
                        : field == &RowStatistics::max_weight_key ? -1
                                                                  : 0);
  }
}

ffi::Error forward(ffi::RemainingArgs operands, ffi::RemainingRets results,
                   ffi::Dictionary attributes) {
  return guarded("attention", [&] {
    Call call(operands, results, attributes);
    const Buffer output = call.next_result(4);
    const Buffer lse = call.next_result(3);
    std::optional<Buffer> weights;
    if (call.truth("weights")) weights = call.next_result(4);
    const auto wanted = call.number("statistics");
    std::array<std::optional<Buffer>, kRowFields.size()> statistics;
    for (std::size_t i = 0; i < kRowFields.size(); ++i) {
      if ((wanted >> i & 1) != 0) statistics[i] = call.next_result(3);
    }
    if (call.packed()) fill_rows(output, lse, statistics);
    for_each_entry(output.mapped(), [&](const Shape& entry) {
      RowStatistics rows;
      for (std::size_t i = 0; i < kRowFields.size(); ++i) {
        if (statistics[i]) rows.*kRowFields[i] = statistics[i]->at(entry);
      }
      attention_forward(call.q(entry), call.k(entry), call.v(entry),
                        {.output = call.tensor(output, entry),
                         .lse = lse.at(entry),
                         .weights = weights ? weights->at(entry) : TensorView{},
                         .statistics = wanted != 0 ? &rows : nullptr},
                        call.options(entry), call.execution());
    });
  });
}

ffi::Error backward(ffi::RemainingArgs operands, ffi::RemainingRets results,
                    ffi::Dictionary attributes) {
  return guarded("attention_backward", [&] {
    Call call(operands, results, attributes);
    const Buffer output = call.next(4);
    const Buffer lse = call.next(3);
    const Buffer d_output = call.next(4);
    // dq, dk, dv, dbias, dscale, dalibi, dsinks
    const auto wanted = call.number("wanted");
    std::array<std::optional<Buffer>, 7> made;
    const Shape* mapped = nullptr;
    for (std::size_t i = 0; i < made.size(); ++i) {
      if ((wanted >> i & 1) == 0) continue;
      made[i] = call.next_result(i < 4 ? 4 : 1);
      if (call.packed()) made[i]->fill(0);
      mapped = &made[i]->mapped();
    }
    if (mapped == nullptr) return;
    for_each_entry(*mapped, [&](const Shape& entry) {
      const auto plain = [&](std::size_t i) { return made[i] ? made[i]->at(entry) : TensorView{}; };
      const auto tensor = [&](std::size_t i) {
        return made[i] ? call.tensor(*made[i], entry) : TensorView{};
      };
      attention_backward({.q = call.q(entry),
                          .k = call.k(entry),
                          .v = call.v(entry),
                          .output = call.tensor(output, entry),
                          .lse = lse.at(entry),
                          .d_output = call.tensor(d_output, entry)},
                         {.dq = tensor(0),
                          .dk = tensor(1),
                          .dv = tensor(2),
                          .dscale = plain(4),
                          .dalibi = plain(5),
                          .dbias = plain(3),
                          .dsinks = plain(6)},
                         call.options(entry), call.execution());
    });
  });
}

XLA_FFI_DEFINE_HANDLER(forward_handler, forward,
                       ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs());
XLA_FFI_DEFINE_HANDLER(backward_handler, backward,
                       ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs());

}  // namespace

void bind_jax(nb::module_& module) {
  module.def(
      "_jax_targets",
      [] {
        nb::dict targets;
        targets["heed_attention_forward"] = nb::capsule(std::bit_cast<void*>(forward_handler));
        targets["heed_attention_backward"] = nb::capsule(std::bit_cast<void*>(backward_handler));
        return targets;
      },
      "What jax.ffi.register_ffi_target takes, by name. Only in builds that had jaxlib's headers.");
}

}  // namespace heed::python

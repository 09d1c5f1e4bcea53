// Bytes as a problem of attention: small sizes, any option, layout and class of values of the case
// matrix, and combinations that the matrix has not.
#pragma once

#include <initializer_list>
#include <type_traits>
#include <utility>

#include "backward/judge.h"
#include "backward/support.h"
#include "forward/cases.h"
#include "forward/half.h"
#include "fuzz.h"

namespace heed_fuzz {

inline heed_test::Case decode_case(Bytes& bytes) {
  using heed_test::Layout;
  heed_test::Case c;
  c.seed = bytes.byte();
  c.masking = static_cast<heed_test::Masking>(bytes.below(heed_test::kMaskings));
  c.values = static_cast<heed_test::Values>(bytes.below(heed_test::kValues));
  c.scaling = static_cast<heed_test::Scaling>(bytes.below(heed_test::kScalings));
  c.dims.batch = 1 + bytes.below(2);
  c.dims.kv_heads = 1 + bytes.below(2);
  c.dims.heads = c.dims.kv_heads * (1 + bytes.below(3));
  c.dims.queries = bytes.chance(16) ? bytes.below(140) : bytes.below(10);
  c.dims.keys = bytes.chance(8) ? 90 + bytes.below(16) : bytes.below(24);
  c.dims.size = 1 + (bytes.chance(24) ? bytes.below(140) : bytes.below(20));
  c.dims.value_size = bytes.chance(24) ? bytes.below(140) : 1 + bytes.below(20);
  const auto layout = [&] { return static_cast<Layout>(bytes.below(heed_test::kLayouts)); };
  c.q = layout();
  c.k = layout();
  c.v = layout();
  c.output = layout();
  if (!heed_test::writable(c.output)) c.output = Layout::bhtd;
  c.mask_axes = static_cast<int>(bytes.below(16));
  c.mask_dtype = static_cast<heed::DType>(bytes.below(9));
  c.bias_dtype =
      bytes.pick({heed::DType::f32, heed::DType::f64, heed::DType::f16, heed::DType::bf16});
  c.dropout = bytes.pick({0.0, 0.0, 0.25, 0.5});
  // docs/numerics.md: the squares of rows so short are nothing, and so is what the oracle says of
  // them.
  using heed_test::Masking, heed_test::Values;
  const bool normalized = c.masking == Masking::normalized || c.masking == Masking::everything;
  if (normalized && (c.values == Values::tiny || c.values == Values::subnormal))
    c.values = Values::normal;
  return c;
}

/// Tells the fuzzer what is asked in the type, by numbers below 64 each.
inline void tell_of(heed::DType dtype, std::initializer_list<std::size_t> ways) {
  auto kind = static_cast<std::size_t>(dtype) - static_cast<std::size_t>(heed::DType::f16);
  for (const std::size_t way : ways) {
    tell(kind, way);
    kind += 4;  // as many types
  }
}

/// Whether the oracle's bounds of gradients are for these values.
inline bool gradients_are_bounded(const heed_test::Case& c) {
  return c.values != heed_test::Values::not_a_number && c.values != heed_test::Values::v_infinite;
}

/// f(number, type of the tensors); float16 and bfloat16 are numbers in float, rounded.
template <typename F>
void with_type(Bytes& bytes, const F& f) {
  const int type = bytes.byte();
  if (type < 64) return f(double{}, heed::DType::f64);
  if (type < 192) return f(float{}, heed::DType::f32);
  f(float{}, type % 2 == 0 ? heed::DType::f16 : heed::DType::bf16);
}

inline bool sixteen_bits(heed::DType dtype) { return heed::size_of(dtype) == 2; }

/// A call or a tensor, rounded to the type if that has 16 bits.
template <typename Numbers>
Numbers in_type(Numbers numbers, heed::DType dtype) {
  if constexpr (requires { heed_test::nearest(numbers, dtype); })
    if (sixteen_bits(dtype)) return heed_test::nearest(std::move(numbers), dtype);
  return numbers;
}

/// heed_test::run() in the type.
template <typename T>
heed_test::Result<T> run_in_type(heed::DType dtype, const heed_test::Call<T>& call,
                                 const heed_test::Ask& ask, const heed::Execution& execution) {
  if constexpr (std::is_same_v<T, float>)
    if (sixteen_bits(dtype)) return heed_test::run_half(call, dtype, ask, execution);
  return heed_test::run(call, ask, execution);
}

/// heed_test::run_backward() in the type.
template <typename T>
heed_test::Gradients<T> run_backward_in_type(heed::DType dtype, heed_test::Call<T> call,
                                             const heed_test::Result<T>& forward,
                                             const heed_test::Tensor<T>& d_output,
                                             heed_test::Layout layout) {
  if constexpr (std::is_same_v<T, float>) {
    if (sixteen_bits(dtype)) {
      call.fewer_axes = false;  // dbias has all axes there
      return heed_test::run_half_backward(call, forward, d_output, layout, dtype);
    }
  }
  return heed_test::run_backward(call, forward, d_output, {.layout = layout});
}

}  // namespace heed_fuzz

// What the views and options of a call tell, read back, so that the oracle can judge a call that
// was changed.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "arguments.h"
#include "forward/judge.h"

namespace heed_fuzz {

/// An element; of types that are for masks alone whether it is true.
template <typename Number>
Number element(const void* data, std::int64_t n, heed::DType dtype) {
  const std::size_t size = heed::size_of(dtype);
  const std::byte* at = static_cast<const std::byte*>(data) + n * static_cast<std::int64_t>(size);
  const auto as = [at](auto number) {
    std::memcpy(&number, at, sizeof number);
    return number;
  };
  switch (dtype) {
    case heed::DType::f64:
      return static_cast<Number>(as(double{}));
    case heed::DType::f32:
      return static_cast<Number>(as(float{}));
    case heed::DType::f16:
    case heed::DType::bf16:
      return static_cast<Number>(heed_test::decoded(as(std::uint16_t{}), dtype));
    default:
      break;
  }
  if constexpr (std::is_same_v<Number, std::int64_t>)
    return dtype == heed::DType::i32 ? as(std::int32_t{}) : as(std::int64_t{});
  return std::any_of(at, at + size, [](std::byte x) { return x != std::byte{0}; });
}

/// The elements of a view beside a q of the rank; axes that are left out have length 1.
template <typename Number>
heed_test::Tensor<Number> shown(const heed::ConstTensorView& view, int rank) {
  if (!view.present()) return {};
  constexpr std::array<std::size_t, 4> kAxes[] = {{2, 3}, {0, 2, 3}, {0, 1, 2, 3}};
  heed_test::Shape shape{1, 1, 1, 1}, stride{};
  for (int a = 0; a < view.rank; ++a) {
    const std::size_t axis = kAxes[rank - 2][static_cast<std::size_t>(a + rank - view.rank)];
    shape[axis] = view.shape[static_cast<std::size_t>(a)];
    stride[axis] = view.stride[static_cast<std::size_t>(a)];
  }
  heed_test::Tensor<Number> tensor(shape);
  tensor.each([&](auto b, auto h, auto i, auto x) {
    const auto n = b * stride[0] + h * stride[1] + i * stride[2] + x * stride[3];
    tensor.at(b, h, i, x) = element<Number>(view.data, n, view.dtype);
  });
  return tensor;
}

/// One number per row: of the last axis a view has none.
template <typename Number>
heed_test::Tensor<Number> shown_rows(heed::ConstTensorView view, int rank) {
  if (!view.present()) return {};
  view.shape[static_cast<std::size_t>(view.rank++)] = 1;
  return shown<Number>(view, rank);
}

template <typename Number>
std::vector<Number> listed(const heed::ConstTensorView& view) {
  std::vector<Number> all;
  for (std::int64_t n = 0; view.present() && n < view.shape[0]; ++n)
    all.push_back(element<Number>(view.data, n * view.stride[0], view.dtype));
  return all;
}
template <typename Number>
std::vector<Number> listed(const heed::OneOrEach<Number>& numbers) {
  return numbers.one ? std::vector{*numbers.one} : listed<Number>(numbers.each);
}

/// Bounds of roundings that go one way: 128 products, each rounded, where C grants 4 or more.
inline void widen(oracle::Truth& truth) {
  for (double& bound : truth.bound) bound *= 32;
}
inline oracle::Answer widened(oracle::Answer a) {
  for (oracle::Truth* truth : {&a.o, &a.lse, &a.weights}) widen(*truth);
  return a;
}
inline oracle::Gradients widened(oracle::Gradients g) {
  for (oracle::Truth* truth :
       {&g.dq, &g.dk, &g.dv, &g.dscale, &g.dalibi, &g.dbias, &g.dsinks, &g.ds_norms}) {
    widen(*truth);
  }
  return g;
}

/// What a call gave is within the oracle's bounds; they are wider where its roundings go one way.
template <typename T, typename Judge, typename Truth>
void expect_within(const Judge& judge, const Truth& truth, const heed_test::Call<T>& call,
                   const char* words = "") {
  const testing::AssertionResult good = judge(truth);
  expect(
      good || (oracle::roundings_go_one_way(heed_test::problem_of(call)) && judge(widened(truth))),
      words + std::string(good.message()) + ": " + heed_test::describe(call));
}

/// The call that a.call() makes. What no change reaches is as in `call`, which was drawn.
template <typename T>
heed_test::Call<T> told_call(const Arguments& a, heed_test::Call<T> call, heed::DType dtype) {
  const auto side = [](std::int64_t n) {
    return n == heed::kUnlimited ? std::optional<std::int64_t>{} : n;
  };
  const heed::AttentionOptions& o = a.options;
  const int rank = call.rank = a.q.rank;
  call.q = shown<T>(a.q, rank);
  call.k = shown<T>(a.k, rank);
  call.v = shown<T>(a.v, rank);
  call.dtype = dtype;
  call.scale = listed(o.scale);
  call.softcap = o.softcap;
  call.alibi = listed<double>(o.alibi);
  call.bias = shown<double>(o.bias, rank);
  call.bias_dtype = heed::DType::f64;  // which holds all numbers of the others
  call.narrow = false;
  call.query_start = listed(o.mask.query_start);
  call.left = side(o.mask.window.left);
  call.right = side(o.mask.window.right);
  call.key_lengths = listed(o.mask.key_lengths);
  call.query_lengths = listed(o.mask.query_lengths);
  call.keep = shown<std::uint8_t>(o.mask.keep, rank);
  call.drop = shown<std::uint8_t>(o.mask.drop, rank);
  call.sinks = listed<double>(o.sinks);
  const heed::Dropout& d = o.dropout;
  call.dropout = {d.p,           d.seed.value_or(0), d.first_query, d.first_key,
                  d.first_batch, d.first_head,       d.heads};
  return call;
}

/// The output and lse that a.call() has written, or was given.
template <typename T>
heed_test::Result<T> told_forward(const Arguments& a, int rank) {
  const auto& o = a.backward ? a.forward_output : a.outputs[0];
  return {shown<T>(o, rank), shown_rows<T>(a.backward ? a.lse : a.outputs[1], rank), {}};
}

/// The gradients that a.call() has written.
template <typename T>
heed_test::Gradients<T> told_gradients(const Arguments& a, int rank) {
  const auto gradient = [&](std::size_t n) { return shown<T>(a.outputs[n], rank); };
  return {gradient(0), gradient(1), gradient(2), gradient(5),
          gradient(3), gradient(4), gradient(6), shown_rows<T>(a.outputs[7], rank)};
}

/// Whether squares of the numbers stay in the type's range.
template <typename T>
bool may_be_squared(const heed_test::Tensor<T>& tensor) {
  return std::ranges::none_of(tensor.memory, [](T x) {
    return x != 0 && (std::fabs(x) < T(1e-15) || std::fabs(x) > T(1e15));
  });
}

/// Whether the oracle knows the rows that the call brings to length 1.
template <typename T>
bool lengths_are_known(const heed_test::Call<T>& s) {
  return !s.normalize_qk || (may_be_squared(s.q) && may_be_squared(s.k));
}

/// A changed forward call that was made is within the oracle's bounds. Not judged: rows brought to
/// length 1 that may be too short or too long for it, and bfloat16 without its dot products on an
/// instruction set that has them.
template <typename T>
void judge_changed(const Arguments& a, const heed_test::Call<T>& drawn, heed::DType dtype) {
  const heed_test::Call<T> s = told_call(a, drawn, dtype);
  if (!lengths_are_known(s)) return;
  if (a.execution.reproducible && heed_test::by_pairs(s)) return;
  heed_test::Result<T> r = told_forward<T>(a, s.rank);
  r.weights = shown<T>(a.outputs[2], s.rank);
  expect_within([&](const auto& truth) { return heed_test::within_bounds(r, truth); },
                heed_test::truth_of(s, r.weights.present()), s, "changed: ");
}

/// A changed backward call that was made has the bits of one on tensors of its own, and the
/// gradients of that problem are within the oracle's bounds. The output and lse that it was given
/// may belong to another problem by then, so the second goes by a forward pass of its own. Not
/// judged so: rows that may be too short or too long, and values without bounds.
template <typename T>
void judge_changed_gradients(const Arguments& a, const heed_test::Call<T>& drawn, heed::DType dtype,
                             bool bounded) {
  // Numbers of 16 bits are those of float32 that they are: gradients are computed there.
  const heed_test::Call<T> s = told_call(a, drawn, heed::detail::dtype_of<T>());
  const auto d_output = shown<T>(a.d_output, s.rank);
  const auto got = told_gradients<T>(a, s.rank);
  const heed_test::Wish wish{.one_scale = got.dscale.count() == 1};
  auto own = heed_test::run_backward(s, told_forward<T>(a, s.rank), d_output, wish);
  for (auto* t : {&own.dq, &own.dk, &own.dv}) *t = in_type(std::move(*t), dtype);
  const auto same = heed_test::same_bits(got, own);
  expect(same, std::string("changed, other gradients: ") + same.message() + ": " +
                   heed_test::describe(s));
  if (!bounded || !lengths_are_known(s)) return;
  const auto bounds = [&, g = heed_test::run_backward(s, d_output, wish)](const auto& truth) {
    return heed_test::within_bounds(s, g, truth, heed_test::Unbounded::is_finite);
  };
  expect_within(bounds, heed_test::true_gradients(s, d_output), s, "changed: ");
}

}  // namespace heed_fuzz

// F6: views and options of attention_forward and attention_backward in any type, each tensor
// between unreadable pages. A sound call has the bits, statistics among them, that it has in
// ordinary memory, and agrees with the oracle within its bounds; in float16 and bfloat16 it has the
// bits of float32, rounded once, or what dot products of bfloat16 may make of them. A call with one
// thing changed (a pointer, rank, size, stride, type or number) is either refused, outputs as they
// were, or has the same bits on all instruction sets, within the oracle's bounds; gradients have
// the bits of a call on tensors of its own. The drawn values' seed chooses what else is asked for:
// statistics, reproducible results, decoding key by key.
#include "arguments.h"
#include "forward/judge.h"
#include "told.h"

namespace {

using heed_fuzz::Arguments;
using heed_fuzz::BackwardCall;
using heed_fuzz::Bytes;
using heed_fuzz::expect;
using heed_fuzz::expect_within;
using heed_fuzz::instruction_sets;
using heed_fuzz::Narrow;
using heed_fuzz::rows;
using heed_fuzz::run_changed;
using heed_fuzz::sixteen_bits;
using heed_test::Call;
using heed_test::Result;

/// The numbers as calls of the type read them there.
template <typename T>
Call<T> rounded(Call<T> s, heed::DType dtype, heed::Isa isa) {
  if constexpr (std::is_same_v<T, float>)
    if (dtype == heed::DType::bf16 && isa == heed_test::kPaired)
      return heed_test::read_by_pairs(std::move(s));
  return heed_fuzz::in_type(std::move(s), dtype);
}

/// Within the oracle's bounds; 16 bits that are widened are what float32, within its bounds, gives,
/// rounded once.
template <typename T>
void judge(const Call<T>& s, const Result<T>& r, const Arguments& a, heed::DType dtype,
           heed_test::Layout output) {
  const auto truth = [&] { return oracle::attention(heed_test::problem_of(s), true); };
  const auto bounds_of = [](const Result<T>& result) {
    return [&result](const auto& is) { return heed_test::within_bounds(result, is); };
  };
  if constexpr (std::is_same_v<T, float>) {
    if (sixteen_bits(dtype)) {
      if (heed::explain(a.q, a.k, a.v, a.options, a.execution).isa == heed_test::kPaired)
        return expect_within(bounds_of(r), heed_test::paired_truth(s, true), s);
      auto wide = heed_test::run(s, {.weights = true, .output = output, .ones = true}, a.execution);
      expect_within(bounds_of(wide), truth(), s);
      wide.o = heed_test::nearest(std::move(wide.o), dtype);
      const auto same = heed_test::same_bits(r, wide);
      return expect(same, std::string(same.message()) + ": " + heed_test::describe(s));
    }
  }
  expect_within(bounds_of(r), truth(), s);
}

/// The same as in a call of its own; within the oracle's bounds, or, of 16 bits, the bits of
/// float32, rounded once.
template <typename T>
void judge_gradients(const Call<T>& s, const Result<T>& r, const heed_test::Tensor<T>& g,
                     const heed_test::Gradients<T>& got, heed::DType dtype,
                     heed_test::Layout layout) {
  auto wide = heed_test::run_backward(s, r, g, {.layout = layout});
  if (!sixteen_bits(dtype)) {
    const auto bounds = [&](const auto& truth) {
      return heed_test::within_bounds(s, wide, truth, heed_test::Unbounded::is_finite);
    };
    expect_within(bounds, heed_test::true_gradients(s, g), s);
  }
  for (auto* t : {&wide.dq, &wide.dk, &wide.dv}) *t = heed_fuzz::in_type(std::move(*t), dtype);
  const auto same = heed_test::same_bits(got, wide);
  expect(same, std::string("other gradients: ") + same.message() + ": " + heed_test::describe(s));
}

template <typename T>
void attempt(Bytes& bytes, heed::DType dtype) {
  const bool backward = bytes.chance(96), changed = bytes.chance(160), at_end = bytes.chance(128);
  const auto isas = instruction_sets(dtype);
  const auto which = static_cast<std::size_t>(bytes.below(static_cast<std::int64_t>(isas.size())));
  const heed::Isa isa = isas[which];
  heed_test::Case c = heed_fuzz::decode_case(bytes);
  const bool decoding = c.seed % 4 == 3;
  heed_fuzz::tell_of(
      dtype, {static_cast<std::size_t>(c.masking), static_cast<std::size_t>(c.values),
              8 * which + (backward ? 4U : 0U) + (changed ? 2U : 0U) + (decoding ? 1U : 0U)});
  if (decoding) {
    c.dims.heads = c.dims.kv_heads;
    c.dims.queries = 1;
    c.dims.size = 32 * (1 + c.dims.size % 4);
  }
  heed_test::Call<T> s = rounded(heed_test::make<T>(c, dtype), dtype, isa);
  const heed_test::Dims d = s.dims();
  const heed_test::Told<T> told(s);
  heed::cap_instruction_set(isa);

  heed_test::Result<T> r;
  r.o = heed_test::Tensor<T>({d.batch, d.heads, d.queries, d.value_size}, c.output);
  r.lse = heed_test::Tensor<T>({d.batch, d.heads, d.queries, 1}, c.output);
  if (!backward) r.weights = heed_test::Tensor<T>({d.batch, d.heads, d.queries, d.keys}, c.output);
  Arguments a{.q = s.q.view(s.rank),
              .k = s.k.view(s.rank),
              .v = s.v.view(s.rank),
              .outputs = {r.o.out(s.rank), rows(r.lse, s.rank),
                          backward ? heed::TensorView{} : r.weights.out(s.rank)},
              .options = told.options,
              .execution = {.reproducible = c.seed % 4 == 1,
                            .decode_order = decoding ? heed::DecodeOrder::key_by_key
                                                     : heed::DecodeOrder::of_prefill}};
  heed_test::Seen<T> seen(d, c.output);
  if (!backward && c.seed % 3 == 1) a.see(seen.out(s.rank));
  Narrow narrow(dtype, c.seed % 2 == 1);
  narrow.input(a.q, s.q);
  narrow.input(a.k, s.k);
  narrow.input(a.v, s.v);
  narrow.output(a.outputs[0], r.o);
  if (!backward && changed)
    return run_changed(a, bytes, at_end, dtype,
                       [&](const Arguments& made) { heed_fuzz::judge_changed(made, s, dtype); });

  heed_fuzz::call_both_ways(a, at_end);
  narrow.read();
  if (!backward) return judge(s, r, a, dtype, c.output);
  const auto g = heed_fuzz::in_type(heed_test::draw_d_output(s, c.seed ^ 77, c.output), dtype);
  BackwardCall<T> call(a, s, r, g, c.output, dtype, c.seed % 2 == 1);
  const bool bounded = heed_fuzz::gradients_are_bounded(c);
  if (changed)
    return run_changed(call.arguments, bytes, at_end, dtype, [&](const Arguments& made) {
      heed_fuzz::judge_changed_gradients(made, s, dtype, bounded);
    });
  if (!bounded) return;
  call.run(at_end);
  judge_gradients(s, r, g, call.to, dtype, c.output);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  GTEST_FLAG_SET(break_on_failure, true);  // a failed EXPECT of the tests' support is a finding
  Bytes bytes(data, size);
  heed_fuzz::with_type(bytes, [&]<typename T>(T, heed::DType dtype) { attempt<T>(bytes, dtype); });
  return 0;
}

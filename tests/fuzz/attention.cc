// F6: views and options of attention_forward and attention_backward, each tensor between unreadable
// pages. A sound call agrees with the oracle within its bounds. Of a call with one thing changed
// (a pointer, rank, size, stride, type or number) it is either refused, outputs as they were, or it
// has the same bits on the scalar path as on the best one. The drawn values' seed chooses what else is asked for:
// statistics, reproducible results, decoding key by key.
#include "arguments.h"

namespace {

using heed_fuzz::Arguments;
using heed_fuzz::BackwardCall;
using heed_fuzz::Bytes;
using heed_fuzz::copy_back;
using heed_fuzz::expect;
using heed_fuzz::instruction_sets;
using heed_fuzz::Placed;
using heed_fuzz::rows;
using heed_fuzz::run_changed;

template <typename T>
void attempt(Bytes& bytes) {
  const bool backward = bytes.chance(96), changed = bytes.chance(160), at_end = bytes.chance(128);
  const auto& isas = instruction_sets();
  const auto isa =
      isas[static_cast<std::size_t>(bytes.below(static_cast<std::int64_t>(isas.size())))];
  heed_test::Case c = heed_fuzz::decode_case(bytes);
  const bool decoding = c.seed % 4 == 3;
  if (decoding) {
    c.dims.heads = c.dims.kv_heads;
    c.dims.queries = 1;
    c.dims.size = 32 * (1 + c.dims.size % 4);
  }
  heed_test::Call<T> s = heed_test::make<T>(c);
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
  heed_test::Tensor<T> statistics[3];
  heed_test::Tensor<std::int64_t> counts[2];
  if (!backward && c.seed % 3 == 1) {
    const auto row = [&](auto& t) {
      t = std::decay_t<decltype(t)>({d.batch, d.heads, d.queries, 1});
      return rows(t, s.rank);
    };
    for (const auto& view : {row(statistics[0]), row(statistics[1]), row(counts[0]),
                             row(statistics[2]), row(counts[1])})
      a.outputs.emplace_back(view);
  }
  if (!backward && changed) return run_changed<T>(a, bytes, at_end);

  {
    Placed placed(at_end);
    Arguments plain = a;
    for (auto* view : plain.views()) placed.copy(*view);
    plain.call();
    copy_back(plain.outputs[0], r.o);
    copy_back(plain.outputs[1], r.lse);
    copy_back(plain.outputs[2], r.weights);
  }
  if (!backward) {
    const auto answer = oracle::attention(heed_test::problem_of(s), true);
    const auto good = heed_test::within_bounds(r, answer);
    expect(good, std::string(good.message()) + ": " + heed_test::describe(s));
    return;
  }
  const auto g = heed_test::draw_d_output(s, c.seed ^ 77, c.output);
  BackwardCall<T> call(a, s, r, g, c.output);
  if (changed) return run_changed<T>(call.arguments, bytes, at_end);
  if (!heed_fuzz::gradients_are_bounded(c)) return;
  const auto gradients = heed_test::run_backward(s, r, g, {.layout = c.output});
  call.run(at_end);
  const auto same = heed_test::same_bits(call.to, gradients);
  expect(same, std::string("between unreadable pages, ") + same.message() + ": " +
                   heed_test::describe(s));
  const auto good = heed_test::within_bounds(s, gradients, heed_test::true_gradients(s, g));
  expect(good, std::string(good.message()) + ": " + heed_test::describe(s));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  GTEST_FLAG_SET(break_on_failure, true);  // a failed EXPECT of the tests' support is a finding
  Bytes bytes(data, size);
  bytes.chance(64) ? attempt<double>(bytes) : attempt<float>(bytes);
  return 0;
}

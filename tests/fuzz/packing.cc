// F10: sequences end to end in one call, in any type, each tensor between unreadable pages: each
// has the bits, statistics among them, of a call on its rows alone, and nothing beside the rows is
// written. With one thing changed it is refused, outputs as they were, or has the same bits on all
// instruction sets, and each sequence those of a call on what the views tell of it. Decoding key by
// key among it.
#include "arguments.h"
#include "packing/packed.h"
#include "told.h"

namespace {

using heed_fuzz::Arguments;
using heed_fuzz::Bytes;
using heed_fuzz::expect;
using heed_test::Tensor;

template <typename T>
heed_test::Packed<T> decode_packed(Bytes& bytes, bool decoding) {
  heed_test::Random random(bytes.byte());
  heed_test::Lengths lengths;
  for (std::int64_t n = 1 + bytes.below(5); n > 0; --n) {
    lengths.queries.push_back(bytes.below(decoding ? 2 : 12));
    lengths.keys.push_back(bytes.chance(8) ? 90 + bytes.below(16) : bytes.below(24));
  }
  const std::int64_t kv_heads = 1 + bytes.below(2);
  const std::int64_t group = decoding ? 1 : 1 + bytes.below(3);
  const std::int64_t size = decoding ? 32 * (1 + bytes.below(3)) : 1 + bytes.below(36);
  auto p = heed_test::packed<T>(random, lengths,
                                {1, kv_heads * group, kv_heads, 0, 0, size, 1 + bytes.below(36)},
                                2 + bytes.below(3));
  heed_test::add_options(random, p);
  return p;
}

/// Of a tensor, or of all statistics.
template <typename Rows, typename T>
void expect_alike(const Rows& all, const std::vector<std::int64_t>& offsets, std::size_t s,
                  const Rows& alone, const char* name, const heed_test::Call<T>& one) {
  const auto same = heed_test::same_bits(heed_test::rows_of(all, offsets, s), alone);
  expect(same, std::string(name) + " of sequence " + std::to_string(s) + same.message() + ": " +
                   heed_test::describe(one));
}

template <typename Rows>
void expect_untouched(const Rows& all, const std::vector<std::int64_t>& offsets, const char* name) {
  expect(heed_test::beside_untouched(all, offsets), name, "rows of no sequence were written");
}

/// Where each sequence has a part of the bias for itself; else dbias is a sum over them.
template <typename T>
void expect_own_bias(const heed_test::Packed<T>& p, std::size_t s, const Tensor<T>& all,
                     const Tensor<T>& alone, const heed_test::Call<T>& one) {
  const bool rows_apart = all.shape[2] > 1, columns_apart = all.shape[3] > 1;
  if (!all.present() || !(rows_apart || columns_apart)) return;
  const auto keys = heed_test::range(p.key_offsets[s], p.key_offsets[s + 1]);
  const Tensor<T> rows = rows_apart ? heed_test::rows_of(all, p.query_offsets, s) : all;
  const auto same =
      heed_test::same_bits(columns_apart ? heed_test::gathered(rows, 3, keys) : rows, alone);
  expect(same, "dbias of sequence " + std::to_string(s) + same.message() + ": " +
                   heed_test::describe(one));
}

/// Sequence s alone: dropout knows it by its number.
template <typename T>
heed_test::Call<T> alone(const heed_test::Packed<T>& p, std::size_t s) {
  heed_test::Call<T> one = p.sequence(s);
  one.dropout.first_batch += static_cast<std::int64_t>(s);
  return one;
}

/// Results of a call over all sequences are those of each one alone; statistics, if there are any.
template <typename T>
void expect_each(const heed_test::Packed<T>& p, heed::DType dtype, heed::DecodeOrder order,
                 const heed_test::Result<T>& all, const heed_test::Seen<T>* seen) {
  for (std::size_t s = 0; s < p.sequences(); ++s) {
    const auto call = alone(p, s);
    heed_test::Seen<T> own(call.dims());
    const heed::RowStatistics statistics = own.out(call.rank);
    const auto one =
        heed_fuzz::run_in_type(dtype, call, {.statistics = seen != nullptr ? &statistics : nullptr},
                               {.decode_order = order});
    if (seen != nullptr) expect_alike(*seen, p.query_offsets, s, own, "statistics", call);
    if (all.o.present()) expect_alike(all.o, p.query_offsets, s, one.o, "output", call);
    if (all.lse.present()) expect_alike(all.lse, p.query_offsets, s, one.lse, "lse", call);
  }
}

/// The same of gradients, on an output and lse of somebody else.
template <typename T>
void expect_each(const heed_test::Packed<T>& p, heed::DType dtype,
                 const heed_test::Result<T>& forward, const Tensor<T>& g,
                 const heed_test::Gradients<T>& all) {
  for (std::size_t s = 0; s < p.sequences(); ++s) {
    const auto call = alone(p, s);
    const heed_test::Result<T> own{heed_test::rows_of(forward.o, p.query_offsets, s),
                                   heed_test::rows_of(forward.lse, p.query_offsets, s),
                                   {}};
    const auto one = heed_fuzz::run_backward_in_type(
        dtype, call, own, heed_test::rows_of(g, p.query_offsets, s), heed_test::Layout::bhtd);
    const auto expect_rows = [&](const Tensor<T>& rows, const std::vector<std::int64_t>& offsets,
                                 const Tensor<T>& of_one, const char* name) {
      if (rows.present()) expect_alike(rows, offsets, s, of_one, name, call);
    };
    expect_rows(all.dq, p.query_offsets, one.dq, "dq");
    expect_rows(all.dk, p.key_offsets, one.dk, "dk");
    expect_rows(all.dv, p.key_offsets, one.dv, "dv");
    expect_rows(all.ds_norms, p.query_offsets, one.ds_norms, "ds_norms");
    expect_own_bias(p, s, all.dbias, one.dbias, call);
  }
}

/// A changed call that was made: each sequence alone is what the views tell of it.
template <typename T>
void judge_changed(const Arguments& a, const heed_test::Packed<T>& drawn, heed::DType dtype) {
  using heed_fuzz::listed;
  const heed::Packing& packing = a.options.packing;
  const heed_test::Packed<T> p{heed_fuzz::told_call(a, drawn.call, heed::detail::dtype_of<T>()),
                               listed<std::int64_t>(packing.query_offsets),
                               listed<std::int64_t>(packing.key_offsets)};
  const int rank = p.call.rank;
  // Sequences of numbers that no call alone may have.
  if (p.call.dropout.first_batch == std::numeric_limits<std::int64_t>::max()) return;
  const auto forward = heed_fuzz::told_forward<T>(a, rank);
  if (!a.backward) return expect_each<T>(p, dtype, a.execution.decode_order, forward, nullptr);
  expect_each(p, dtype, forward, heed_fuzz::shown<T>(a.d_output, rank),
              heed_fuzz::told_gradients<T>(a, rank));
}

template <typename T>
void attempt(Bytes& bytes, heed::DType dtype) {
  const bool backward = bytes.chance(96), changed = bytes.chance(128), at_end = bytes.chance(128);
  const bool decoding = bytes.chance(64);
  const auto isas = heed_fuzz::instruction_sets(dtype);
  const auto which = static_cast<std::size_t>(bytes.below(static_cast<std::int64_t>(isas.size())));
  const heed::Isa isa = isas[which];
  heed_fuzz::tell_of(
      dtype, {8 * which + (backward ? 4U : 0U) + (changed ? 2U : 0U) + (decoding ? 1U : 0U)});
  auto p = decode_packed<T>(bytes, decoding);
  auto& c = p.call;
  c = heed_fuzz::in_type(std::move(c), dtype);
  const heed_test::Dims d = c.dims();
  heed_test::Told<T> told(c);
  told.options.packing = p.packing();
  heed::cap_instruction_set(isa);
  const heed::DecodeOrder order =
      decoding ? heed::DecodeOrder::key_by_key : heed::DecodeOrder::of_prefill;

  heed_test::Result<T> r;
  r.o = Tensor<T>({1, d.heads, d.queries, d.value_size});
  r.lse = Tensor<T>({1, d.heads, d.queries, 1});
  Arguments forward{.q = c.q.view(),
                    .k = c.k.view(),
                    .v = c.v.view(),
                    .outputs = {r.o.out(), heed_fuzz::rows(r.lse, 4), {}},
                    .options = told.options,
                    .execution = {.decode_order = order}};
  heed_fuzz::Narrow narrow(dtype, false);
  narrow.input(forward.q, c.q);
  narrow.input(forward.k, c.k);
  narrow.input(forward.v, c.v);
  narrow.output(forward.outputs[0], r.o);
  heed_test::Seen<T> seen(d);
  const bool seeing = !backward && d.queries % 2 == 0;
  if (seeing) forward.see(seen.out());
  const auto judge = [&](const Arguments& made) { judge_changed(made, p, dtype); };
  if (!backward && changed) return heed_fuzz::run_changed(forward, bytes, at_end, dtype, judge);
  heed_fuzz::call_both_ways(forward, at_end);
  narrow.read();
  expect_each(p, dtype, order, r, seeing ? &seen : nullptr);
  expect_untouched(r.o, p.query_offsets, "output");
  expect_untouched(r.lse, p.query_offsets, "lse");
  if (seeing) expect_untouched(seen, p.query_offsets, "statistics");
  if (!backward) return;

  const auto g = heed_fuzz::in_type(heed_test::draw_d_output(c, 77), dtype);
  heed_fuzz::BackwardCall<T> call(forward, c, r, g, heed_test::Layout::bhtd, dtype);
  if (changed) return heed_fuzz::run_changed(call.arguments, bytes, at_end, dtype, judge);
  call.run(at_end);
  const auto& all = call.to;
  expect_each(p, dtype, r, g, all);
  expect_untouched(all.dq, p.query_offsets, "dq");
  expect_untouched(all.dk, p.key_offsets, "dk");
  expect_untouched(all.dv, p.key_offsets, "dv");
  expect_untouched(all.ds_norms, p.query_offsets, "ds_norms");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  GTEST_FLAG_SET(break_on_failure, true);  // a failed EXPECT of the tests' support is a finding
  Bytes bytes(data, size);
  heed_fuzz::with_type(bytes, [&]<typename T>(T, heed::DType dtype) { attempt<T>(bytes, dtype); });
  return 0;
}

// Packed sequences have, bit for bit, the results and gradients of calls on each sequence alone,
// and what lies beside them is neither read nor written.
// Method: random lengths and options; rows of no sequence are NaN, in inputs and in results before
// the call.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backward/support.h"
#include "forward/executors.h"
#include "forward/guarded.h"
#include "forward/seen.h"
#include "jvp/support.h"
#include "packing/every_call.h"
#include "sanitized.h"

namespace heed_test {
namespace {

const heed::Execution kThreads[] = {{.executor = nullptr, .threads = 1},
                                    {.executor = nullptr, .threads = 2},
                                    {.executor = nullptr, .threads = 5}};

template <typename T>
struct PackedResult {
  Tensor<T> o, lse;
  Seen<T> seen;
};

template <typename T>
PackedResult<T> forward(const Packed<T>& p, const heed::Execution& execution) {
  const Dims d = p.call.dims();
  PackedResult<T> r{Tensor<T>({1, d.heads, d.queries, d.value_size}),
                    Tensor<T>({1, d.heads, d.queries, 1}), Seen<T>(d)};
  Told<T> told(p.call);
  told.options.packing = p.packing();
  const heed::RowStatistics statistics = r.seen.out();
  heed::attention_forward(
      p.call.q.view(), p.call.k.view(), p.call.v.view(),
      {.output = r.o.out(), .lse = without_last_axis(r.lse.out()), .statistics = &statistics},
      told.options, execution);
  return r;
}

template <typename T>
void expect_forward_of_each(const Packed<T>& p, const heed::Execution& execution) {
  const PackedResult<T> all = forward(p, execution);
  for (std::size_t s = 0; s < p.sequences(); ++s) {
    const Call<T> one = p.sequence(s);
    Seen<T> seen(one.dims());
    const heed::RowStatistics statistics = seen.out();
    const Result<T> alone =
        run(one, {.statistics = &statistics}, {.decode_order = execution.decode_order});
    EXPECT_TRUE(same_bits(rows_of(all.o, p.query_offsets, s), alone.o)) << s << describe(one);
    EXPECT_TRUE(same_bits(rows_of(all.lse, p.query_offsets, s), alone.lse)) << s << describe(one);
    EXPECT_TRUE(same_bits(rows_of(all.seen, p.query_offsets, s), seen)) << s << describe(one);
  }
  EXPECT_TRUE(beside_untouched(all.o, p.query_offsets));
  EXPECT_TRUE(beside_untouched(all.lse, p.query_offsets));
  EXPECT_TRUE(beside_untouched(all.seen, p.query_offsets));
}

template <typename T>
void expect_forward() {
  Random random(71);
  for (auto drawn = draws(30); drawn; ++drawn) {
    const Packed<T> p = random_packed<T>(random);
    const Forced forced(random_isa(random));
    for (const heed::Execution& execution : kThreads) expect_forward_of_each(p, execution);
  }
}

TEST(packing, forward_has_the_bits_of_calls_on_each_sequence_in_float32) {
  expect_forward<float>();
}
TEST(packing, forward_has_the_bits_of_calls_on_each_sequence_in_float64) {
  expect_forward<double>();
}

/// A step of tokens and prompts: each sequence has the order that it has alone.
TEST(packing, decoding_key_by_key_has_the_bits_of_calls_on_each_sequence) {
  Random random(72);
  const Packed<float> p =
      packed<float>(random, {{1, 40, 1, 0, 2}, {900, 40, 50, 7, 800}}, {1, 2, 2, 1, 1, 64, 48}, 3);
  const auto rows = [](const PackedResult<float>& r, const Packed<float>& q, std::size_t s) {
    return rows_of(r.o, q.query_offsets, s);
  };
  for (const heed::Isa isa : isas_for_races(runnable_isas())) {
    const Forced forced(isa);
    for (heed::Execution execution : kThreads) {
      const PackedResult<float> usual = forward(p, execution);
      execution.decode_order = heed::DecodeOrder::key_by_key;
      expect_forward_of_each(p, execution);
      const PackedResult<float> by_key = forward(p, execution);
      for (const std::size_t s : {0U, 2U}) {
        EXPECT_FALSE(same_bits(rows(by_key, p, s), rows(usual, p, s))) << s;
      }
      for (const std::size_t s : {1U, 4U}) {
        EXPECT_TRUE(same_bits(rows(by_key, p, s), rows(usual, p, s))) << s;
      }
    }
  }
}

template <typename T>
Gradients<T> backward(const Packed<T>& p, const PackedResult<T>& r, const Tensor<T>& d_output,
                      const heed::Execution& execution, const Wish& wish = {}) {
  const Call<T>& c = p.call;
  const Dims d = c.dims();
  Gradients<T> g;
  g.dq = Tensor<T>(c.q.shape);
  g.dk = Tensor<T>(c.k.shape);
  g.dv = Tensor<T>(c.v.shape);
  g.ds_norms = Tensor<T>({1, d.heads, d.queries, 1});
  g.dscale = g.dalibi = g.dsinks = Tensor<T>({1, 1, 1, d.heads});
  heed::Gradients to{.dq = g.dq.out(),
                     .dk = g.dk.out(),
                     .dv = g.dv.out(),
                     .dscale = heed::view(g.dscale.memory.data(), {d.heads})};
  if (!c.alibi.empty()) to.dalibi = heed::view(g.dalibi.memory.data(), {d.heads});
  if (!c.sinks.empty()) to.dsinks = heed::view(g.dsinks.memory.data(), {d.heads});
  if (c.bias.present() && wish.dbias) {
    g.dbias = Tensor<T>(c.bias.shape);
    to.dbias = g.dbias.out();
  }
  to.ds_norms = without_last_axis(g.ds_norms.out());
  Told<T> told(c);
  told.options.packing = p.packing();
  heed::ConstTensorView lse = r.lse.view();
  --lse.rank;
  heed::attention_backward({.q = c.q.view(),
                            .k = c.k.view(),
                            .v = c.v.view(),
                            .output = r.o.view(),
                            .lse = lse,
                            .d_output = d_output.view()},
                           to, told.options, execution);
  return g;
}

/// Sums over sequences: each addend and the sum are rounded once, the total here is not.
template <typename T>
void expect_sum(const Tensor<T>& sum, const std::vector<Tensor<T>>& parts, const char* name) {
  const double u = std::numeric_limits<T>::epsilon();
  for (std::int64_t h = 0; h < sum.shape[3]; ++h) {
    oracle::DoubleDouble error = static_cast<double>(sum.at(0, 0, 0, h));
    double size = 0;
    for (const Tensor<T>& part : parts) {
      error = error - static_cast<double>(part.at(0, 0, 0, h));
      size += std::fabs(static_cast<double>(part.at(0, 0, 0, h)));
    }
    EXPECT_NEAR(error.hi, 0, u * size + 1e-300) << name;
  }
}

/// Of a bias that all sequences share, with a number for each head or for all: the same of its
/// gradient.
template <typename T>
void expect_shared_dbias(const Tensor<T>& sum, const std::vector<Tensor<T>>& parts) {
  const auto of_heads = [](const Tensor<T>& t) {
    Tensor<T> line({1, 1, 1, t.shape[1]});
    line.each([&](auto, auto, auto, auto h) { line.at(0, 0, 0, h) = t.at(0, h, 0, 0); });
    return line;
  };
  std::vector<Tensor<T>> lines;
  for (const Tensor<T>& part : parts) lines.push_back(of_heads(part));
  expect_sum(of_heads(sum), lines, "dbias");
}

/// Whether a gradient of pairs is +0 where no sequence has them.
template <typename T>
bool zero_beside(const Tensor<T>& dbias, const Packed<T>& p) {
  bool zero = true;
  dbias.each([&](auto b, auto h, auto i, auto j) {
    bool inside = false;
    for (std::size_t s = 0; s < p.sequences() && !inside; ++s) {
      const auto within = [&](std::size_t axis, std::int64_t at, const auto& offsets) {
        return offsets[s] < offsets[s + 1] &&
               (dbias.shape[axis] == 1 || (at >= offsets[s] && at < offsets[s + 1]));
      };
      inside = within(2, i, p.query_offsets) && within(3, j, p.key_offsets);
    }
    const T value = dbias.at(b, h, i, j);
    zero &= inside || (value == 0 && !std::signbit(value));
  });
  return zero;
}

template <typename T>
void expect_backward_of_each(const Packed<T>& p, std::uint64_t seed) {
  const PackedResult<T> r = forward(p, {});
  Tensor<T> d_output(r.o.shape);
  Random random(seed);
  fill_normal(d_output, random);
  d_output.each([&](auto b, auto h, auto i, auto x) {
    if (i < p.query_offsets.front() || i >= p.query_offsets.back())
      d_output.at(b, h, i, x) = std::numeric_limits<T>::quiet_NaN();
  });
  const Gradients<T> one = backward(p, r, d_output, kThreads[0]);
  for (const heed::Execution& execution : {kThreads[1], kThreads[2]}) {
    const Gradients<T> many = backward(p, r, d_output, execution);
    EXPECT_TRUE(same_bits(many.dq, one.dq));
    EXPECT_TRUE(same_bits(many.dk, one.dk));
    EXPECT_TRUE(same_bits(many.dv, one.dv));
    EXPECT_TRUE(same_bits(many.ds_norms, one.ds_norms));
    EXPECT_TRUE(same_bits(many.dscale, one.dscale));
    EXPECT_TRUE(same_bits(many.dalibi, one.dalibi));
    EXPECT_TRUE(same_bits(many.dsinks, one.dsinks));
    EXPECT_TRUE(same_bits(many.dbias, one.dbias));
  }
  std::vector<Tensor<T>> dscale, dalibi, dsinks, dbias;
  for (std::size_t s = 0; s < p.sequences(); ++s) {
    const Call<T> call = p.sequence(s);
    const Result<T> alone{rows_of(r.o, p.query_offsets, s), rows_of(r.lse, p.query_offsets, s), {}};
    Wish wish;
    const bool rows_apart = p.call.bias.shape[2] > 1, columns_apart = p.call.bias.shape[3] > 1;
    wish.dbias = call.bias.present();
    const Gradients<T> g =
        run_backward(call, alone, rows_of(d_output, p.query_offsets, s), wish, kThreads[0]);
    EXPECT_TRUE(same_bits(rows_of(one.dq, p.query_offsets, s), g.dq)) << describe(call);
    EXPECT_TRUE(same_bits(rows_of(one.dk, p.key_offsets, s), g.dk)) << describe(call);
    EXPECT_TRUE(same_bits(rows_of(one.dv, p.key_offsets, s), g.dv)) << describe(call);
    EXPECT_TRUE(same_bits(rows_of(one.ds_norms, p.query_offsets, s), g.ds_norms));
    if (wish.dbias && !rows_apart && !columns_apart) dbias.push_back(g.dbias);
    if (wish.dbias && (rows_apart || columns_apart)) {
      const auto keys = range(p.key_offsets[s], p.key_offsets[s + 1]);
      const Tensor<T> rows = rows_apart ? rows_of(one.dbias, p.query_offsets, s) : one.dbias;
      EXPECT_TRUE(same_bits(columns_apart ? gathered(rows, 3, keys) : rows, g.dbias));
    }
    dscale.push_back(g.dscale);
    if (g.dalibi.present()) dalibi.push_back(g.dalibi);
    if (g.dsinks.present()) dsinks.push_back(g.dsinks);
  }
  expect_sum(one.dscale, dscale, "dscale");
  if (!dalibi.empty()) expect_sum(one.dalibi, dalibi, "dalibi");
  if (!dsinks.empty()) expect_sum(one.dsinks, dsinks, "dsinks");
  if (!dbias.empty()) expect_shared_dbias(one.dbias, dbias);
  EXPECT_TRUE(beside_untouched(one.dq, p.query_offsets));
  EXPECT_TRUE(beside_untouched(one.dk, p.key_offsets));
  EXPECT_TRUE(beside_untouched(one.dv, p.key_offsets));
  EXPECT_TRUE(beside_untouched(one.ds_norms, p.query_offsets));
  EXPECT_TRUE(zero_beside(one.dbias, p)) << describe(p.call);
}

template <typename T>
void expect_backward() {
  Random random(72);
  for (auto drawn = draws(25); drawn; ++drawn) {
    const Packed<T> p = random_packed<T>(random);
    const Forced forced(random_isa(random));
    expect_backward_of_each(p, random.bits());
  }
}

TEST(packing, backward_has_the_bits_of_calls_on_each_sequence_in_float32) {
  expect_backward<float>();
}
TEST(packing, backward_has_the_bits_of_calls_on_each_sequence_in_float64) {
  expect_backward<double>();
}

// One sequence is cut into chunks that are tasks, others stay whole: the same bits.
TEST(packing, backward_of_a_long_sequence_among_short_ones_has_the_same_bits) {
  Random random(73);
  const Lengths lengths{
      {3, 250, 0, 9, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5},
      {3, 2400, 7, 9, 0, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5}};
  Packed<float> p = packed<float>(random, lengths, {1, 4, 2, 0, 0, 16, 12}, 3);
  expect_backward_of_each(p, 1);
  p.call.bias = Tensor<double>({1, 1, 1, p.call.dims().keys});
  p.call.bias.each([&](auto b, auto h, auto i, auto j) {
    p.call.bias.at(b, h, i, j) = static_cast<double>(random.between(-64, 64)) / 64;
  });
  expect_backward_of_each(p, 2);
}

// Without sinks it would be 0.
TEST(packing, a_bias_that_all_sequences_share_has_the_gradients_of_all) {
  Random random(79);
  for (const std::int64_t heads : {1, 4}) {
    Packed<float> p = packed<float>(random, {{3, 250, 0, 9, 40}, {3, 1700, 7, 9, 60}},
                                    {1, 4, 2, 0, 0, 16, 12}, 3);
    p.call.bias = Tensor<double>({1, heads, 1, 1});
    p.call.bias.each([&](auto b, auto h, auto i, auto j) {
      p.call.bias.at(b, h, i, j) = 0.25 * static_cast<double>(h);
    });
    p.call.sinks = {1, -1, 0, 2};
    expect_backward_of_each(p, 3);
  }
}

MovedResult<float> forward_mode(const Packed<float>& p, const PackedResult<float>& r,
                                const Motion<float>& m) {
  MovedResult<float> all{Tensor<float>(r.o.shape), Tensor<float>(r.lse.shape)};
  const Call<float>& c = p.call;
  Told<float> told(c);
  told.options.packing = p.packing();
  heed::ConstTensorView lse = r.lse.view();
  --lse.rank;
  heed::attention_jvp(
      {.q = c.q.view(), .k = c.k.view(), .v = c.v.view(), .output = r.o.view(), .lse = lse},
      {.q = m.q.view(),
       .k = m.k.view(),
       .v = m.v.view(),
       .bias = m.bias.present() ? m.bias.view() : heed::ConstTensorView{}},
      {.output = all.o.out(), .lse = without_last_axis(all.lse.out())}, told.options, kThreads[1]);
  return all;
}

TEST(packing, forward_mode_has_the_bits_of_calls_on_each_sequence) {
  Random random(74);
  for (auto drawn = draws(15); drawn; ++drawn) {
    const Packed<float> p = random_packed<float>(random);
    const Call<float>& c = p.call;
    const PackedResult<float> r = forward(p, {});
    const Motion<float> m = draw_motion(c, random.bits());
    const MovedResult<float> all = forward_mode(p, r, m);
    for (std::size_t s = 0; s < p.sequences(); ++s) {
      const Call<float> call = p.sequence(s);
      Motion<float> own{
          rows_of(m.q, p.query_offsets, s), rows_of(m.k, p.key_offsets, s),
          rows_of(m.v, p.key_offsets, s),
          gathered_mask(m.bias, 2, range(p.query_offsets[s], p.query_offsets[s + 1]))};
      own.bias = gathered_mask(own.bias, 3, range(p.key_offsets[s], p.key_offsets[s + 1]));
      const Result<float> alone{
          rows_of(r.o, p.query_offsets, s), rows_of(r.lse, p.query_offsets, s), {}};
      const MovedResult<float> moved = run_jvp(call, alone, own);
      EXPECT_TRUE(same_bits(rows_of(all.o, p.query_offsets, s), moved.o)) << describe(call);
      EXPECT_TRUE(same_bits(rows_of(all.lse, p.query_offsets, s), moved.lse)) << describe(call);
    }
    EXPECT_TRUE(beside_untouched(all.o, p.query_offsets));
    EXPECT_TRUE(beside_untouched(all.lse, p.query_offsets));
  }
}

// The draws of dropout know the batch entry: sequence s drops what entry s of a padded batch drops.
// dK and dV add up in an order that padded rows change, so they are compared where all have as
// many.
void expect_bits_of_a_padded_batch(const Lengths& lengths) {
  const bool rows_alike = std::ranges::count(lengths.queries, 70) == 4;
  Random random(75);
  Packed<float> p = packed<float>(random, lengths, {1, 4, 2, 0, 0, 16, 12}, 3);
  p.call.dropout = {.p = 0.3, .seed = 11};
  p.call.mod = Mod::tilt;  // sees the number of an entry, and rows and keys from its first
  p.call.causal = true;
  p.call.query_start = {5, 60, 849, 0};
  const auto padded = [](const Tensor<float>& from, const std::vector<std::int64_t>& offsets,
                         std::int64_t length) {
    Tensor<float> to({4, from.shape[1], length, from.shape[3]});
    to.each([&](auto b, auto h, auto i, auto x) {
      const std::int64_t row = offsets[static_cast<std::size_t>(b)] + i;
      if (row < offsets[static_cast<std::size_t>(b) + 1]) to.at(b, h, i, x) = from.at(0, h, row, x);
    });
    return to;
  };
  const auto rows = [&](const Tensor<float>& from) { return padded(from, p.query_offsets, 70); };
  const auto keys = [&](const Tensor<float>& from) { return padded(from, p.key_offsets, 850); };
  Call<float> batch = p.call;
  batch.q = rows(p.call.q);
  batch.k = keys(p.call.k);
  batch.v = keys(p.call.v);
  batch.query_lengths = lengths.queries;
  batch.key_lengths = lengths.keys;
  const PackedResult<float> all = forward(p, kThreads[1]);
  const Result<float> alone = run(batch);
  const Tensor<float> g = draw_d_output(p.call, 12);
  const Gradients<float> back = backward(p, all, g, kThreads[1]);
  const Gradients<float> back_alone = run_backward(batch, alone, rows(g));
  Motion<float> m = draw_motion(p.call, 13);
  m.bias = {};
  const MovedResult<float> moved = forward_mode(p, all, m);
  const MovedResult<float> moved_alone =
      run_jvp(batch, alone, {.q = rows(m.q), .k = keys(m.k), .v = keys(m.v), .bias = {}});
  for (std::size_t s = 0; s < 4; ++s) {
    const auto expect_same = [&](const Tensor<float>& one, const std::vector<std::int64_t>& offsets,
                                 const Tensor<float>& other) {
      const auto own = range(0, offsets[s + 1] - offsets[s]);
      const auto entry = gathered(other, 0, {static_cast<std::int64_t>(s)});
      EXPECT_TRUE(same_bits(rows_of(one, offsets, s), gathered(entry, 2, own))) << s;
    };
    expect_same(all.o, p.query_offsets, alone.o);
    expect_same(moved.o, p.query_offsets, moved_alone.o);
    expect_same(back.dq, p.query_offsets, back_alone.dq);
    if (rows_alike) expect_same(back.dk, p.key_offsets, back_alone.dk);
    if (rows_alike) expect_same(back.dv, p.key_offsets, back_alone.dv);
  }
}

TEST(packing, has_the_bits_of_a_padded_batch_with_dropout) {
  expect_bits_of_a_padded_batch({{9, 40, 1, 70}, {30, 100, 850, 70}});
  expect_bits_of_a_padded_batch({{70, 70, 70, 70}, {30, 100, 850, 70}});
}

TEST(packing, takes_tensors_of_two_and_three_axes_and_offsets_of_int32_with_strides) {
  Random random(76);
  const Packed<float> p = packed<float>(random, {{4, 9}, {6, 9}}, {1, 1, 1, 0, 0, 8, 8}, 0);
  const PackedResult<float> all = forward(p, {});
  const std::int32_t q_offsets[] = {0, -1, 4, -1, 13}, k_offsets[] = {0, -1, 6, -1, 15};
  heed::AttentionOptions options{
      .packing = {heed::view(q_offsets, {3}), heed::view(k_offsets, {3})}};
  options.packing.query_offsets.stride[0] = options.packing.key_offsets.stride[0] = 2;
  for (const int rank : {2, 3}) {
    Tensor<float> o(all.o.shape);
    heed::attention_forward(p.call.q.view(rank), p.call.k.view(rank), p.call.v.view(rank),
                            {.output = o.out(rank)}, options);
    EXPECT_TRUE(same_bits(o, all.o)) << rank;
  }
}

template <typename T>
void expect_same_where_threads_share(const Packed<T>& p, heed::DType dtype) {
  SCOPED_TRACE(heed::name_of(dtype));
  EveryPackedCall<T> calls(p, dtype, 5);
  using Run = void (EveryPackedCall<T>::*)(Memory&, const heed::Execution&);
  Memory forward;  // on whose results the derivatives are taken
  calls.forward(forward, kThreads[0]);
  for (const Run run : {&EveryPackedCall<T>::backward, &EveryPackedCall<T>::forward_mode,
                        &EveryPackedCall<T>::forward}) {
    const auto result = [&](const heed::Execution& execution) {
      Memory at;
      (calls.*run)(at, execution);
      return at;
    };
    expect_same_where_64_threads_share(
        result, [](const Memory& a, const Memory& b) { return a.same_results(b); });
  }
}

template <typename T>
Packed<T> many_sequences() {
  Random random(77);
  Lengths lengths;
  for (std::int64_t s = 0; s < 40; ++s) {
    lengths.queries.push_back(s == 7 ? 0 : 20 + s);
    lengths.keys.push_back(s == 9 ? 900 : 220 - 4 * s);
  }
  auto p = packed<T>(random, lengths, {1, 4, 2, 0, 0, 8, 5}, 0);
  p.call.alibi = p.call.sinks = {0.5, 0.25, 0.125, 1};
  p.call.left = 200;
  return p;
}

TEST(packing, has_the_same_bits_where_64_threads_share) {
  expect_same_where_threads_share(many_sequences<float>(), heed::DType::f32);
  expect_same_where_threads_share(many_sequences<double>(), heed::DType::f64);
  expect_same_where_threads_share(many_sequences<float>(), heed::DType::f16);
  expect_same_where_threads_share(many_sequences<float>(), heed::DType::bf16);
}

// All types, statistics and the derivatives: placement_test.
TEST(packing, touches_nothing_beyond_a_tensor_and_writes_no_input) {
  Random random(92);
  for (const heed::Isa isa : isas_for_races(runnable_isas())) {
    const Forced forced(isa);
    for (const bool at_end : {false, true})
      for (const std::int64_t size : {1, 3, 16, 17, 64}) {
        const Lengths lengths{{1, 5, 0, 17, 3}, {2, 5, 3, 97, 771}};
        auto p = packed<float>(random, lengths, {1, 2, 1, 0, 0, size, size}, 0);
        p.call.scale = p.call.alibi = {0.5, 0.25};
        p.call.query_start = {0, 1, 2, 40, 500};
        p.call.key_lengths = {2, 4, 3, 90, 770};
        p.call.query_lengths = {1, 4, 0, 17, 3};
        p.call.narrow = size % 2 == 0;
        const auto expected = forward(p, {});
        auto r = expected;  // lends its shapes
        GuardedCopies copies(at_end);
        Told<float> told(p.call);
        told.options.packing = p.packing();
        told.options = placed(told.options, [&](auto view) { return copies.of(view); });
        const heed::TensorView o = copies.of(r.o.out()),
                               lse = copies.of(without_last_axis(r.lse.out()));
        heed::attention_forward(copies.of(p.call.q.view()), copies.of(p.call.k.view()),
                                copies.of(p.call.v.view()), {.output = o, .lse = lse},
                                told.options);
        const auto same = [](const heed::TensorView& got, const Tensor<float>& want) {
          return std::memcmp(got.data, want.memory.data(), want.memory.size() * sizeof(float)) == 0;
        };
        EXPECT_TRUE(same(o, expected.o)) << size;
        EXPECT_TRUE(same(lse, expected.lse)) << size;
      }
  }
}

}  // namespace
}  // namespace heed_test

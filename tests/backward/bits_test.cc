// The bits of gradients never depend on how a call is run, what else is asked for, or how tensors
// lie.
// Method: the same problem twice, every bit compared; NaN equals NaN, +0 is not -0.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "backward/support.h"
#include "forward/draws.h"
#include "forward/executors.h"
#include "sanitized.h"

namespace heed_test {
namespace {

/// Three chunks of keys; few and many KV heads, and biases that they share.
template <typename T>
std::vector<Call<T>> bases() {
  std::vector<Call<T>> all;
  const auto add = [&](const Dims& dims, Masking masking, int axes) {
    Case c;
    c.dims = dims;
    c.masking = masking;
    c.mask_axes = axes;
    c.seed = 700 + all.size();
    all.push_back(make<T>(c));
  };
  for (const Masking masking :
       {Masking::none, Masking::causal_at_end, Masking::window_causal, Masking::keep_half,
        Masking::key_lengths, Masking::sinks, Masking::everything})
    add({1, 2, 1, 37, 1700, 9, 5}, masking, 3);
  for (const int axes : {15, 7, 11, 3, 2, 1, 0})
    add({2, 4, 2, 20, 900, 5, 6}, Masking::bias_masking, axes);
  add({2, 6, 6, 70, 130, 8, 8}, Masking::causal, 3);
  all.push_back(all[3]);
  all.back().dropout = {0.3, 5};
  // Sizes that models have: whole vectors, and more than one chain of 128 products.
  add({1, 2, 1, 3, 900, 64, 64}, Masking::everything, 3);
  add({1, 2, 2, 1, 900, 128, 128}, Masking::none, 3);
  add({1, 1, 1, 40, 800, 192, 128}, Masking::causal_at_end, 3);
  return all;
}

/// Keys and rows enough for slots of two waves, and little to compute.
template <typename T>
Call<T> two_waves() {
  auto s = plain_call<T>({1, 1, 1, 20000, 6000, 64, 3}, 710);
  s.left = 20;
  s.causal = true;
  s.query_start = {-7000};
  return s;
}

template <typename T>
class backward_bits : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(backward_bits, Reals);

TYPED_TEST(backward_bits, no_number_of_threads_changes_one) {
  for (const auto& s : each_third(bases<TypeParam>())) {
    const auto g = draw_d_output(s, 1);
    const auto one = run_backward(s, g, {}, {.executor = nullptr, .threads = 1});
    for (const int threads : thread_counts())
      EXPECT_TRUE(same_bits(run_backward(s, g, {}, {.executor = nullptr, .threads = threads}), one))
          << threads << " threads: " << describe(s);
  }
}

// A call takes no more threads than it has work for: here each of them has a share.
TYPED_TEST(backward_bits, no_share_of_64_threads_changes_one) {
  for (const Masking masking : {Masking::none, Masking::everything}) {
    const auto s = for_many_threads<TypeParam>(masking, 60, 6200);
    const auto g = draw_d_output(s, 4);
    const auto forward = run(s);
    SCOPED_TRACE(describe(s));
    expect_same_where_64_threads_share(
        [&](const auto& execution) { return run_backward(s, forward, g, {}, execution); });
  }
}

TYPED_TEST(backward_bits, no_executor_changes_one) {
  for (const auto& s : each_third(bases<TypeParam>())) {
    const auto g = draw_d_output(s, 2);
    const auto one = run_backward(s, g, {}, {.executor = nullptr, .threads = 1});
    Backwards backwards;
    OwnThreads own(5);
    for (heed::Executor* executor :
         {static_cast<heed::Executor*>(&backwards), static_cast<heed::Executor*>(&own)})
      EXPECT_TRUE(same_bits(run_backward(s, g, {}, {.executor = executor, .threads = 0}), one))
          << describe(s);
  }
}

TYPED_TEST(backward_bits, no_number_of_waves_changes_one) {
  const auto s = two_waves<TypeParam>();
  const auto g = draw_d_output(s, 3);
  const auto forward = run(s);
  const auto one = run_backward(s, forward, g, {}, {.executor = nullptr, .threads = 1});
  EXPECT_TRUE(same_bits(run_backward(s, forward, g, {}, {.executor = nullptr, .threads = 3}), one));
}

TYPED_TEST(backward_bits, no_repetition_changes_one) {  // P20
  const auto s = bases<TypeParam>()[6];
  const auto g = draw_d_output(s, 4);
  const auto forward = run(s);
  const auto again = [&] { return run_backward(s, forward, g, {}, kRepeated); };
  const auto first = again();
  for (int n = 0; n < (sanitized() ? 50 : 250); ++n)
    ASSERT_TRUE(same_bits(again(), first)) << "run " << n;
}

TYPED_TEST(backward_bits, no_instruction_set_changes_one) {
  for (const auto& s : bases<TypeParam>()) {
    const auto g = draw_d_output(s, 5);
    const auto forward = run(s);
    std::vector<Gradients<TypeParam>> all;
    for (const heed::Isa isa : isas_for_races(runnable_isas())) {
      const Forced forced(isa);
      all.push_back(run_backward(s, forward, g));
      EXPECT_TRUE(same_bits(all.back(), all.front()))
          << heed::name_of(isa) << " against scalar: " << describe(s);
    }
  }
}

TYPED_TEST(backward_bits, asking_for_less_changes_none) {
  for (const auto& s : bases<TypeParam>()) {
    const auto g = draw_d_output(s, 6);
    const auto forward = run(s);
    const auto all = run_backward(s, forward, g);
    for (bool Wish::*one : {&Wish::dq, &Wish::dk, &Wish::dv, &Wish::dscale, &Wish::dalibi,
                            &Wish::dbias, &Wish::dsinks, &Wish::ds_norms}) {
      Wish wish = Wish::none();
      wish.*one = true;
      EXPECT_TRUE(same_bits(run_backward(s, forward, g, wish), all)) << describe(s);
    }
    (void)run_backward(s, forward, g, Wish::none());
  }
}

TYPED_TEST(backward_bits, no_place_in_a_batch_changes_one) {
  for (auto s : bases<TypeParam>()) {
    s.mod = Mod::none;  // it sees the entry's number
    s.bias = {};
    const std::int64_t last = s.q.shape[0] - 1;
    auto alone_call = with_batch(s, {last});
    const auto g = draw_d_output(s, 7);
    for (const std::size_t size : {2U, 5U}) {
      std::vector<std::int64_t> entries(size, 0);
      entries.back() = last;
      alone_call.dropout.first_batch = static_cast<std::int64_t>(size) - 1;
      const auto alone = run_backward(alone_call, gathered(g, 0, {last}));
      const auto together = run_backward(with_batch(s, entries), gathered(g, 0, entries));
      const std::vector<std::int64_t> place{static_cast<std::int64_t>(size) - 1};
      for (const auto& [one, many] :
           {std::pair{&alone.dq, &together.dq}, std::pair{&alone.dk, &together.dk},
            std::pair{&alone.dv, &together.dv}, std::pair{&alone.ds_norms, &together.ds_norms}})
        EXPECT_TRUE(same_bits(gathered(*many, 0, place), *one)) << describe(s);
    }
  }
}

/// The last KV head and the heads that share it, alone: not with options that have a number to each
/// head.
TYPED_TEST(backward_bits, no_place_among_heads_changes_one) {
  for (const Dims& dims : {Dims{2, 6, 3, 20, 900, 5, 6}, Dims{1, 4, 4, 3, 900, 64, 64},
                           Dims{2, 4, 1, 40, 130, 32, 8}}) {
    auto s = plain_call<TypeParam>(dims, 711);
    s.causal = true;
    s.query_start = {dims.keys - dims.queries};
    const auto g = draw_d_output(s, 12);
    const auto all = run_backward(s, g);
    const std::vector<std::int64_t> kv_head{dims.kv_heads - 1};
    std::vector<std::int64_t> heads;
    for (std::int64_t h = dims.heads - dims.heads / dims.kv_heads; h < dims.heads; ++h) {
      heads.push_back(h);
    }
    auto alone_call = s;
    alone_call.q = gathered(s.q, 1, heads);
    for (auto* t : {&alone_call.k, &alone_call.v}) *t = gathered(*t, 1, kv_head);
    const auto alone = run_backward(alone_call, gathered(g, 1, heads));
    EXPECT_TRUE(same_bits(gathered(all.dq, 1, heads), alone.dq)) << describe(s);
    EXPECT_TRUE(same_bits(gathered(all.dk, 1, kv_head), alone.dk)) << describe(s);
    EXPECT_TRUE(same_bits(gathered(all.dv, 1, kv_head), alone.dv)) << describe(s);
  }
}

TYPED_TEST(backward_bits, no_layout_changes_one) {
  for (const auto& base : bases<TypeParam>()) {
    const auto g = draw_d_output(base, 8);
    const auto contiguous = run_backward(base, g);
    for (int n = 0; n < kLayouts; ++n) {
      const auto layout = static_cast<Layout>(n);
      if (!writable(layout)) continue;
      Call<TypeParam> s = base;
      for (auto* t : {&s.q, &s.k, &s.v}) *t = laid_out(*t, layout);
      Result<TypeParam> forward = run(s, {.lse = true, .weights = false, .output = layout});
      EXPECT_TRUE(
          same_bits(run_backward(s, forward, laid_out(g, layout), {.layout = layout}), contiguous))
          << name_of(layout) << ": " << describe(s);
    }
  }
}

/// What sum().backward() hands over: one number for all elements, stride 0.
TYPED_TEST(backward_bits, no_expanded_d_output_changes_one) {
  for (const auto& s : bases<TypeParam>()) {
    const Dims d = s.dims();
    Tensor<TypeParam> ones({d.batch, d.heads, d.queries, d.value_size}), expanded = ones;
    ones.each([&](auto b, auto h, auto i, auto x) { ones.at(b, h, i, x) = 1; });
    expanded.stride = {0, 0, 0, 0};
    expanded.memory.assign(1, TypeParam(1));
    EXPECT_TRUE(same_bits(run_backward(s, expanded), run_backward(s, ones))) << describe(s);
  }
}

TYPED_TEST(backward_bits, dropout_of_nothing_has_the_bits_of_none) {
  for (const auto& s : bases<TypeParam>()) {
    if (s.dropout.p > 0) continue;
    const auto g = draw_d_output(s, 10);
    const auto none = run_backward(s, g);
    for (const double p : {0.0, 0x1p-18}) {  // the latter is less than half of 2^-16
      Call<TypeParam> dropped = s;
      dropped.dropout = {p, 5};
      EXPECT_TRUE(same_bits(run_backward(dropped, g), none)) << p << ": " << describe(s);
    }
  }
}

/// Of some rows, as a call that says where they stand.
TYPED_TEST(backward_bits, dropout_of_a_part_is_that_of_the_whole) {
  auto s = plain_call<TypeParam>({2, 4, 2, 70, 900, 8, 6}, 712);
  s.dropout = {.p = 0.4, .seed = 9, .first_key = 5};
  const auto g = draw_d_output(s, 11);
  const auto rows = range(21, 60);
  auto part = with_queries(with_batch(s, {1}), rows, true);
  part.query_start = {};
  part.dropout.first_batch = 1;
  const auto of_part = [&](const auto& t) { return gathered(gathered(t, 0, {1}), 2, rows); };
  EXPECT_TRUE(same_bits(run_backward(part, of_part(g)).dq, of_part(run_backward(s, g).dq)));
}

/// P22: the gradients of a shared KV head are those of its copies, added up. Each is within the
/// oracle's bound of the truth, so together they are no farther apart than those bounds.
TYPED_TEST(backward_bits, one_query_head_for_each_kv_head_is_plain_attention) {
  const auto all = bases<TypeParam>();
  int shared_heads = 0;
  for (std::size_t n = 0; n < all.size(); n += 3) {  // the oracle takes its time
    const auto& s = all[n];
    const Dims d = s.dims();
    const std::int64_t group = d.heads / d.kv_heads;
    if (group == 1) continue;
    ++shared_heads;
    SCOPED_TRACE(describe(s));
    const auto g = draw_d_output(s, 9);
    Call<TypeParam> repeated = s;
    std::vector<std::int64_t> head_of;
    for (std::int64_t h = 0; h < d.heads; ++h) head_of.push_back(h / group);
    for (auto* t : {&repeated.k, &repeated.v}) *t = gathered(*t, 1, head_of);
    const auto shared = run_backward(s, g), each = run_backward(repeated, g);
    EXPECT_TRUE(same_bits(shared.dq, each.dq));
    const auto of_shared = true_gradients(s, g), of_each = true_gradients(repeated, g);
    const auto expect_sum = [&](const auto& one, const auto& many, const oracle::Truth& of_one,
                                const oracle::Truth& of_many) {
      const auto at = [](const auto& t, auto b, auto h, auto j, auto x) {
        return static_cast<std::size_t>(((b * t.shape[1] + h) * t.shape[2] + j) * t.shape[3] + x);
      };
      one.each([&](auto b, auto h, auto j, auto x) {
        double sum = 0, bound = of_one.bound[at(one, b, h, j, x)];
        for (std::int64_t query_head = h * group; query_head < (h + 1) * group; ++query_head) {
          sum += many.at(b, query_head, j, x);
          bound += of_many.bound[at(many, b, query_head, j, x)];
        }
        // Of the sum here.
        const double rounding = static_cast<double>(group) * 0x1p-53 * std::fabs(sum);
        EXPECT_NEAR(one.at(b, h, j, x), sum, bound + rounding);
      });
    };
    expect_sum(shared.dk, each.dk, of_shared.dk, of_each.dk);
    expect_sum(shared.dv, each.dv, of_shared.dv, of_each.dv);
  }
  EXPECT_GE(shared_heads, 4);
}

}  // namespace
}  // namespace heed_test

// Where tensors of the backward pass lie: against unreadable pages, at odd addresses, on a small
// stack.
// Method: mmap; anything read or written outside faults.
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "backward/support.h"
#include "forward/between_guards.h"

namespace heed_test {
namespace {

template <typename T>
class backward_placement : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(backward_placement, Reals);

/// Every tensor of a call through `copies`; gradients have the bits that they have elsewhere.
template <typename T, typename Copies>
void expect_same_elsewhere(const Call<T>& s, Copies& copies, Layout layout = Layout::bhtd) {
  const auto g = draw_d_output(s, 1, layout);
  const auto forward = run(s, {.output = layout});
  const auto expected = run_backward(s, forward, g, {.layout = layout});
  const Told<T> told(s);
  const auto options = placed(told.options, [&](auto view) { return copies.of(view); });
  heed::ConstTensorView lse = forward.lse.view();
  --lse.rank;
  Gradients<T> r = expected;  // lends its shapes
  heed::TensorView ds_norms = r.ds_norms.out();
  --ds_norms.rank;
  heed::Gradients to{.dq = copies.of(r.dq.out()),
                     .dk = copies.of(r.dk.out()),
                     .dv = copies.of(r.dv.out()),
                     .dscale = copies.of(heed::view(r.dscale.memory.data(), {r.dscale.count()})),
                     .ds_norms = copies.of(ds_norms)};
  if (r.dbias.present()) to.dbias = copies.of(r.dbias.out());
  const auto of_heads = [&](Tensor<T>& t) {
    return t.present() ? copies.of(heed::view(t.memory.data(), {t.count()})) : heed::TensorView{};
  };
  to.dalibi = of_heads(r.dalibi);
  to.dsinks = of_heads(r.dsinks);
  heed::attention_backward({.q = copies.of(s.q.view()),
                            .k = copies.of(s.k.view()),
                            .v = copies.of(s.v.view()),
                            .output = copies.of(forward.o.view()),
                            .lse = copies.of(lse),
                            .d_output = copies.of(g.view())},
                           to, options);
  const auto same = [](const heed::TensorView& got, const Tensor<T>& want) {
    std::vector<T> numbers;  // in the order of the axes
    if (want.present())
      each_element(got, got, [&](const std::byte* at, const std::byte*) {
        std::memcpy(&numbers.emplace_back(), at, sizeof(T));
      });
    bool good = static_cast<std::int64_t>(numbers.size()) == want.count();
    std::size_t n = 0;
    want.each([&](auto b, auto h, auto i, auto x) {
      good = good && std::memcmp(&numbers[n++], &want.at(b, h, i, x), sizeof(T)) == 0;
    });
    return good;
  };
  EXPECT_TRUE(same(to.dq, expected.dq)) << describe(s);
  EXPECT_TRUE(same(to.dk, expected.dk)) << describe(s);
  EXPECT_TRUE(same(to.dv, expected.dv)) << describe(s);
  EXPECT_TRUE(same(to.dbias, expected.dbias)) << describe(s);
  EXPECT_TRUE(same(to.dscale, expected.dscale)) << describe(s);
  EXPECT_TRUE(same(to.dalibi, expected.dalibi)) << describe(s);
  EXPECT_TRUE(same(to.dsinks, expected.dsinks)) << describe(s);
  EXPECT_TRUE(same(to.ds_norms, expected.ds_norms)) << describe(s);
}

Case odd_case(const Dims& dims, Masking masking, std::size_t n = 0) {
  return in_turn({.dims = dims, .masking = masking, .seed = 71}, n);
}

template <typename T>
Call<T> call_of_four_axes(const Case& c) {
  auto s = make<T>(c);
  s.fewer_axes = false;
  s.rank = 4;
  return s;
}

TYPED_TEST(backward_placement, nothing_beyond_a_tensor_is_touched) {
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    std::size_t n = 0;
    for (const bool at_end : {false, true})
      for (const std::int64_t size : {1, 3, 5, 8, 16, 17, 33})
        for (const auto& [queries, keys] : {std::pair{1, 1}, std::pair{3, 5}, std::pair{17, 97},
                                            std::pair{65, 33}, std::pair{2, 770}})
          for (const Masking masking : {Masking::none, Masking::keep_half, Masking::bias_masking,
                                        Masking::key_lengths, Masking::everything}) {
            const Case c =
                odd_case({2, 2, 1, queries, keys, size, size == 8 ? 7 : size}, masking, n++);
            GuardedCopies copies(at_end);
            expect_same_elsewhere(call_of_four_axes<TypeParam>(c), copies, c.output);
          }
  }
}

TYPED_TEST(backward_placement, heads_may_lie_further_apart_than_32_bits) {  // A20
  constexpr std::int64_t kFar = std::int64_t{1} << 31;
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    for (const std::int64_t stride : {kFar + 1, 2 * kFar, 1 - kFar})
      for (const Masking masking : {Masking::none, Masking::everything}) {
        FarCopies copies(stride);
        expect_same_elsewhere(
            call_of_four_axes<TypeParam>(odd_case({2, 4, 2, 17, 97, 9, 7}, masking)), copies);
      }
  }
}

/// Numbers for each head and each batch entry, in both of the types that they may have.
TYPED_TEST(backward_placement, nothing_beyond_a_list_is_touched) {
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    for (const bool at_end : {false, true})
      for (const bool narrow : {false, true})
        for (const auto& [queries, keys] : {std::pair{1, 97}, std::pair{17, 33}}) {
          GuardedCopies copies(at_end);
          expect_same_elsewhere(
              with_lists(plain_call<TypeParam>({3, 3, 1, queries, keys, 16, 5}, 77), narrow),
              copies);
        }
  }
}

/// The same in 16 bits: dq, dk and dv in the type, the others in float32.
void expect_same_halves(const Call<float>& s, heed::DType dtype,
                        Elsewhere where = Elsewhere::between_guards) {
  const Dims d = s.dims();
  const Result<float> forward = run(s);
  const auto g = draw_d_output(s, 1);
  const Told<float> told(s);
  const auto backward = [&](Memory& at) {
    const auto numbers = [&](bool there) {
      return there ? at.result(wide(dtype), {d.heads}) : heed::TensorView{};
    };
    const Shape& b = s.bias.shape;
    const heed::Gradients to{.dq = at.result(dtype, {d.batch, d.heads, d.queries, d.size}),
                             .dk = at.result(dtype, {d.batch, d.kv_heads, d.keys, d.size}),
                             .dv = at.result(dtype, {d.batch, d.kv_heads, d.keys, d.value_size}),
                             .dscale = numbers(true),
                             .dalibi = numbers(!s.alibi.empty()),
                             .dbias = s.bias.present()
                                          ? at.result(wide(dtype), {b[0], b[1], b[2], b[3]})
                                          : heed::TensorView{},
                             .dsinks = numbers(!s.sinks.empty()),
                             .ds_norms = at.result(wide(dtype), {d.batch, d.heads, d.queries})};
    heed::attention_backward({.q = at.input(s.q, dtype),
                              .k = at.input(s.k, dtype),
                              .v = at.input(s.v, dtype),
                              .output = at.input(forward.o, dtype),
                              .lse = at.input(without_last_axis(forward.lse.view())),
                              .d_output = at.input(g, dtype)},
                             to, at.options(told.options));
  };
  EXPECT_TRUE(same_elsewhere(where, backward)) << describe(s);
}

class backward_placement_of_halves : public testing::TestWithParam<heed::DType> {};

TEST_P(backward_placement_of_halves, nothing_beyond_a_tensor_is_touched) {
  const heed::DType dtype = GetParam();
  for (const heed::Isa isa : isas_of(dtype)) {
    const Forced forced(isa);
    std::size_t n = 0;
    for (const std::int64_t size : {1, 3, 8, 16, 17, 33})
      for (const auto& [queries, keys] : {std::pair{1, 1}, std::pair{1, 97}, std::pair{3, 5},
                                          std::pair{17, 97}, std::pair{65, 33}, std::pair{2, 770}})
        for (const Masking masking : {Masking::none, Masking::bias_masking, Masking::everything})
          expect_same_halves(
              call_of_four_axes<float>(
                  odd_case({2, 2, 1, queries, keys, size, size == 8 ? 7 : size}, masking, n++)),
              dtype);
  }
}

TEST_P(backward_placement_of_halves, nothing_beyond_a_list_is_touched) {
  const heed::DType dtype = GetParam();
  for (const heed::Isa isa : isas_of(dtype)) {
    const Forced forced(isa);
    for (const bool narrow : {false, true})
      for (const auto& [queries, keys] : {std::pair{1, 97}, std::pair{17, 33}})
        expect_same_halves(
            with_lists(plain_call<float>({3, 3, 1, queries, keys, 16, 5}, 77), narrow), dtype);
  }
}

TEST_P(backward_placement_of_halves, heads_may_lie_further_apart_than_32_bits) {  // A20
  const heed::DType dtype = GetParam();
  for (const heed::Isa isa : isas_of(dtype)) {
    const Forced forced(isa);
    for (const Masking masking : {Masking::none, Masking::everything})
      expect_same_halves(call_of_four_axes<float>(odd_case({2, 4, 2, 17, 97, 9, 7}, masking)),
                         dtype, Elsewhere::heads_far_apart);
  }
}

INSTANTIATE_TEST_SUITE_P(types, backward_placement_of_halves,
                         testing::Values(heed::DType::bf16, heed::DType::f16),
                         [](const auto& one) { return std::string(heed::name_of(one.param)); });

/// Copies whose first byte lies some bytes after an aligned address.
class MovedCopies {
 public:
  explicit MovedCopies(std::size_t offset) : offset_(offset) {}

  template <typename View>
  View of(View view) {
    if (!view.present()) return view;
    const Reach reach = reach_of(view);
    auto& memory = memory_.emplace_back(reach.bytes + offset_);
    if constexpr (std::is_same_v<View, heed::TensorView>) {
      std::fill(memory.begin(), memory.end(), std::byte{0xFF});  // nothing is there yet
    } else {
      std::memcpy(memory.data() + offset_, static_cast<const std::byte*>(view.data) - reach.before,
                  reach.bytes);
    }
    view.data = memory.data() + offset_ + reach.before;
    return view;
  }

 private:
  std::size_t offset_;
  std::vector<std::vector<std::byte>> memory_;
};

TYPED_TEST(backward_placement, any_address_will_do) {
  for (const std::size_t offset : {1U, 2U, 3U, 5U, 7U}) {
    MovedCopies copies(offset);
    expect_same_elsewhere(
        call_of_four_axes<TypeParam>(odd_case({1, 2, 1, 19, 110, 7, 9}, Masking::bias_finite)),
        copies);
  }
}

TYPED_TEST(backward_placement, a_stack_of_64_kib_is_enough) {
  struct Work {
    const Call<TypeParam>& s;
    const Result<TypeParam>& forward;
    const Tensor<TypeParam>& g;
    Tensor<TypeParam>& dq;
    int threads;
  };
  const auto s = plain_call<TypeParam>({1, 2, 1, 130, 900, 40, 24}, 73);
  const auto g = draw_d_output(s, 74);
  // The pool's threads have stacks of their own; the caller is one of its workers.
  const auto expect_same = [&](int threads) {
    const auto forward = run(s);
    Tensor<TypeParam> dq(s.q.shape);
    Work work{s, forward, g, dq, threads};
    const auto body = [](void* argument) -> void* {
      const Work& w = *static_cast<Work*>(argument);
      heed::ConstTensorView lse = w.forward.lse.view();
      --lse.rank;
      heed::attention_backward({.q = w.s.q.view(),
                                .k = w.s.k.view(),
                                .v = w.s.v.view(),
                                .output = w.forward.o.view(),
                                .lse = lse,
                                .d_output = w.g.view()},
                               {.dq = w.dq.out()}, {}, {.executor = nullptr, .threads = w.threads});
      return nullptr;
    };
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    ASSERT_EQ(pthread_attr_setstacksize(&attributes, small_stack()), 0);  // A27
    pthread_t thread{};
    ASSERT_EQ(pthread_create(&thread, &attributes, body, &work), 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
    EXPECT_TRUE(same_bits(dq, run_backward(s, forward, g).dq)) << threads << " threads";
  };
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    SCOPED_TRACE(heed::name_of(isa));
    for (const int threads : {1, 4}) expect_same(threads);
  }
}

}  // namespace
}  // namespace heed_test

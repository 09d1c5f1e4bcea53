// Where tensors of the backward pass lie: against unreadable pages, at odd addresses, on a small stack.
// Method: mmap; anything read or written outside faults.
#include <gtest/gtest.h>
#include <pthread.h>

#include "backward/support.h"
#include "forward/guarded.h"

namespace heed_test {
namespace {

template <typename T>
class backward_placement : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(backward_placement, Reals);

/// Every tensor of a call through `copies`; gradients have the bits that they have elsewhere.
template <typename T, typename Copies>
void expect_same_elsewhere(const Call<T>& s, Copies& copies) {
  const auto g = draw_d_output(s, 1);
  const auto forward = run(s);
  const auto expected = run_backward(s, forward, g);
  const Told<T> told(s);
  heed::AttentionOptions options = told.options;
  for (heed::ConstTensorView* view :
       {&options.alibi, &options.bias, &options.mask.keep, &options.mask.drop, &options.sinks})
    *view = copies.of(*view);
  heed::ConstTensorView lse = forward.lse.view();
  --lse.rank;
  Gradients<T> r = expected;
  heed::TensorView ds_norms = r.ds_norms.out();
  --ds_norms.rank;
  heed::Gradients to{.dq = copies.of(r.dq.out()),
                     .dk = copies.of(r.dk.out()),
                     .dv = copies.of(r.dv.out()),
                     .dscale = copies.of(heed::view(r.dscale.memory.data(), {r.dscale.count()})),
                     .ds_norms = copies.of(ds_norms)};
  if (r.dbias.present()) to.dbias = copies.of(r.dbias.out());
  heed::attention_backward({.q = copies.of(s.q.view()),
                            .k = copies.of(s.k.view()),
                            .v = copies.of(s.v.view()),
                            .output = copies.of(forward.o.view()),
                            .lse = copies.of(lse),
                            .d_output = copies.of(g.view())},
                           to, options);
  const auto same = [](const heed::TensorView& got, const Tensor<T>& want) {
    return !want.present() || std::memcmp(got.data, want.memory.data(),
                                          static_cast<std::size_t>(want.count()) * sizeof(T)) == 0;
  };
  EXPECT_TRUE(same(to.dq, expected.dq)) << describe(s);
  EXPECT_TRUE(same(to.dk, expected.dk)) << describe(s);
  EXPECT_TRUE(same(to.dv, expected.dv)) << describe(s);
  EXPECT_TRUE(same(to.dbias, expected.dbias)) << describe(s);
  EXPECT_TRUE(same(to.dscale, expected.dscale)) << describe(s);
  EXPECT_TRUE(same(to.ds_norms, expected.ds_norms)) << describe(s);
}

template <typename T>
Call<T> dense_call(const Dims& dims, Masking masking) {
  Case c;
  c.dims = dims;
  c.masking = masking;
  c.seed = 71;
  auto s = make<T>(c);
  s.fewer_axes = false;
  s.rank = 4;
  // Dense copies: a view may reach to its last element and no further.
  s.keep = s.keep.present() ? laid_out(s.keep, Layout::bhtd) : s.keep;
  s.drop = s.drop.present() ? laid_out(s.drop, Layout::bhtd) : s.drop;
  s.bias = s.bias.present() ? laid_out(s.bias, Layout::bhtd) : s.bias;
  return s;
}

TYPED_TEST(backward_placement, nothing_beyond_a_tensor_is_touched) {
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    for (const bool at_end : {false, true})
      for (const std::int64_t size : {1, 3, 5, 8, 17, 33})
        for (const auto& [queries, keys] : {std::pair{1, 1}, std::pair{3, 5}, std::pair{17, 97},
                                            std::pair{65, 33}, std::pair{2, 770}})
          for (const Masking masking : {Masking::none, Masking::keep_half, Masking::bias_masking,
                                        Masking::key_lengths, Masking::everything}) {
            GuardedCopies copies(at_end);
            expect_same_elsewhere(
                dense_call<TypeParam>({2, 2, 1, queries, keys, size, size == 8 ? 7 : size},
                                      masking),
                copies);
          }
  }
}

/// Copies whose first byte lies some bytes after an aligned address.
class MovedCopies {
 public:
  explicit MovedCopies(std::size_t offset) : offset_(offset) {}

  template <typename View>
  View of(View view) {
    if (!view.present()) return view;
    std::size_t bytes = heed::size_of(view.dtype);
    for (int a = 0; a < view.rank; ++a)
      bytes *= static_cast<std::size_t>(view.shape[static_cast<std::size_t>(a)]);
    auto& memory = memory_.emplace_back(bytes + offset_);
    std::memcpy(memory.data() + offset_, view.data, bytes);
    view.data = memory.data() + offset_;
    return view;
  }

 private:
  std::size_t offset_;
  std::vector<std::vector<std::byte>> memory_;
};

TYPED_TEST(backward_placement, any_address_will_do) {
  for (const std::size_t offset : {1U, 2U, 3U, 5U, 7U}) {
    MovedCopies copies(offset);
    expect_same_elsewhere(dense_call<TypeParam>({1, 2, 1, 19, 110, 7, 9}, Masking::bias_finite),
                          copies);
  }
}

TYPED_TEST(backward_placement, a_small_stack_will_do) {
  struct Work {
    const Call<TypeParam>& s;
    const Result<TypeParam>& forward;
    const Tensor<TypeParam>& g;
    Tensor<TypeParam>& dq;
    heed::AttentionOptions options;
  };
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    const auto s = plain_call<TypeParam>({1, 2, 1, 130, 900, 40, 24}, 73);
    const auto forward = run(s);
    const auto g = draw_d_output(s, 74);
    Tensor<TypeParam> dq(s.q.shape);
    Work work{s, forward, g, dq, {.mask = {.causal = false}}};
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
                               {.dq = w.dq.out()}, w.options, {.executor = nullptr, .threads = 1});
      return nullptr;
    };
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    ASSERT_EQ(pthread_attr_setstacksize(&attributes, std::size_t{64} << 10), 0);
    pthread_t thread{};
    ASSERT_EQ(pthread_create(&thread, &attributes, body, &work), 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
    EXPECT_TRUE(same_bits(dq, run_backward(s, forward, g).dq)) << heed::name_of(isa);
  }
}

}  // namespace
}  // namespace heed_test

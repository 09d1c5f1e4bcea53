// A caller whose stack is small (A27): 64 KiB are enough for every call, with all options and all
// that can be asked for, in every type, on every instruction set, alone and among threads of the
// pool, which have stacks of their own.
// Method: the call on such a thread, which more would end, and the same bits as elsewhere. Of the
// release build: sanitizers have larger frames, and put them elsewhere.
#include <gtest/gtest.h>
#include <pthread.h>

#include <functional>
#include <optional>
#include <vector>

#include "backward/judge.h"
#include "backward/support.h"
#include "forward/between_guards.h"
#include "forward/seen.h"
#include "heed/kv_cache.h"
#include "heed/merge.h"
#include "heed/modules.h"
#include "inspection/looked.h"
#include "jvp/support.h"

namespace heed_test {
namespace {

using Act = std::function<void()>;

void on_small_stack(const Act& act) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, small_stack()), 0);
  pthread_t thread{};
  const auto body = [](void* context) -> void* {
    (*static_cast<const Act*>(context))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, body, const_cast<Act*>(&act)), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

/// call(execution) on a small stack gives what it gives here, as same(one, other) tells.
template <typename Call, typename Same>
void expect_enough(const char* what, const Call& call, const Same& same) {
  for (const int threads : {1, 4}) {
    const heed::Execution execution{.executor = nullptr, .threads = threads};
    const auto expected = call(execution);
    std::optional<decltype(call(execution))> got;
    on_small_stack([&] { got.emplace(call(execution)); });
    EXPECT_TRUE(same(*got, expected)) << what << ", " << threads << " threads";
  }
}

template <typename Call>
void expect_enough(const char* what, const Call& call) {
  expect_enough(what, call, [](const auto& a, const auto& b) { return same_bits(a, b); });
}

/// Rows of several tiles and of one, of sizes that few rows have kernels for.
constexpr Dims kDims[] = {{1, 2, 1, 130, 900, 40, 24}, {1, 2, 2, 1, 1700, 128, 64}};

/// f(call) for each instruction set that calls of the type can have.
template <typename T, typename F>
void each_call(heed::DType dtype, const F& f) {
  for (const Dims& dims : kDims) {
    Case c{.dims = dims, .masking = Masking::everything};
    c.dropout = 0.25;
    auto s = make<T>(c, dtype);
    s.fewer_axes = false;
    if constexpr (std::is_same_v<T, float>) {
      if (dtype != heed::DType::f32) s = narrowed(std::move(s), dtype);
    }
    for (const heed::Isa isa : isas_of(dtype)) {
      const Forced forced(isa);
      SCOPED_TRACE(std::string(heed::name_of(isa)) + ": " + describe(s));
      f(s);
    }
  }
}

template <typename T>
void expect_enough_for(heed::DType dtype) {
  each_call<T>(dtype, [dtype](const Call<T>& s) {
    constexpr bool kFloat = std::is_same_v<T, float>;
    const bool half = kFloat && dtype != heed::DType::f32;
    const auto forward = run(s);
    auto g = draw_d_output(s, 1);
    auto moved = draw_motion(s, 2);
    if constexpr (kFloat) {
      for (Tensor<T>* t : {&g, &moved.q, &moved.k, &moved.v})
        if (half) *t = nearest(std::move(*t), dtype);
    }
    expect_enough("forward", [&](auto e) { return run(s, {.lse = true, .weights = true}, e); });
    expect_enough("statistics", [&](auto e) { return Seen<T>(s, e); });
    expect_enough("backward", [&](auto e) {
      if constexpr (kFloat) {
        if (half) return run_half_backward(s, forward, g, Layout::bhtd, dtype, e);
      }
      return run_backward(s, forward, g, {}, e);
    });
    expect_enough("forward mode", [&](auto e) {
      if constexpr (kFloat) {
        if (half) return run_half_jvp(s, forward, moved, Layout::bhtd, dtype, e);
      }
      return run_jvp(s, forward, moved, e);
    });
    expect_enough(
        "weights looked at again", [&](auto e) { return Looked<T>(s, forward.lse, Extent{}, e); },
        [](const auto& a, const auto& b) { return a.same(b); });
  });
}

class small_stack_of : public testing::TestWithParam<heed::DType> {};

TEST_P(small_stack_of, the_caller_is_enough_for_attention) {
  if (GetParam() == heed::DType::f64) {
    expect_enough_for<double>(GetParam());
  } else {
    expect_enough_for<float>(GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(types, small_stack_of, testing::ValuesIn(kFloating),
                         [](const auto& one) { return std::string(heed::name_of(one.param)); });

TEST(small_stack, of_the_caller_is_enough_for_caches_merging_and_modules) {
  const auto s = plain_call<float>({2, 4, 2, 40, 400, 32, 32}, 5);
  const auto r = run(s);
  const std::vector<float> x(std::size_t{2} * 200 * 96, 0.5F);
  const auto rows = heed::view(x.data(), {2, 200, 96});
  const auto equal = [](const auto& a, const auto& b) { return a == b; };
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    SCOPED_TRACE(heed::name_of(isa));
    expect_enough(
        "decoding",
        [&](auto e) {
          heed::KvCache cache({.kv_heads = 2, .head_size = 32, .pages = 30, .page_keys = 32});
          const heed::SequenceId ids[] = {cache.create(), cache.create()};
          cache.append(ids, s.k.view(), s.v.view());
          Tensor<float> o(r.o.shape);
          heed::attention_decode(s.q.view(), cache, ids, {.output = o.out()}, {}, e);
          return o.memory;
        },
        equal);
    expect_enough(
        "merging",
        [&](auto e) {
          const std::vector<heed::AttentionPart> parts(
              40, {r.o.view(), without_last_axis(r.lse.view())});
          Tensor<float> o(r.o.shape);
          heed::merge(parts, {.output = o.out()}, e);
          return o.memory;
        },
        equal);
    expect_enough(
        "a module",
        [&](auto e) {
          heed::MultiHeadAttention module(
              {.d_model = 96, .heads = 4, .bias = true, .dropout = 0.25});
          heed::SavedAttention saved;
          std::vector<float> y(x.size()), dx(x.size());
          module.forward({.x = rows},
                         {.output = heed::view(y.data(), {2, 200, 96}), .saved = &saved},
                         {.dropout = {.seed = 3}}, e);
          module.backward({.x = rows}, saved, rows, {.dx = heed::view(dx.data(), {2, 200, 96})}, {},
                          e);
          y.insert(y.end(), dx.begin(), dx.end());
          for (const heed::Parameter& one : module.parameters())
            y.insert(y.end(), one.gradient.begin(), one.gradient.end());
          return y;
        },
        equal);
  }
}

}  // namespace
}  // namespace heed_test

// A caller's function of scores that throws, in every call that takes one: the caller gets the
// exception itself, and heed and its pool are usable afterwards, with the same bits.
// Method: calls above 2 Mflop, which the pool sees; the function throws at its first, its middle or
// its last call, in one thread, four or an executor's.
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "forward/support.h"
#include "heed/backward.h"
#include "heed/inspect.h"
#include "heed/jvp.h"
#include "heed/kv_cache.h"

namespace heed_test {
namespace {

/// What the caller's function knows: at which of its calls it throws, from 0.
struct Knows {
  std::int64_t at = -1;  // never
  mutable std::atomic<std::int64_t> calls{0};
};

/// What it throws: no std::exception, and only its thrower can have made it.
struct Mine {
  const Knows* whose;
};

void count_and_throw(const void* context) {
  const Knows& knows = *static_cast<const Knows*>(context);
  if (knows.calls++ == knows.at) throw Mine{&knows};
}

template <typename Tile>
void unchanged(const Tile& /*tile*/, const void* /*context*/) {}
template <typename Tile>
void throwing(const Tile& /*tile*/, const void* context) {
  count_and_throw(context);
}
/// f'(t) = 1.
template <typename Tile>
void slope_of_one(const Tile& tile, const void* /*context*/) {
  for (int r = 0; r < tile.queries; ++r)
    for (int c = 0; c < tile.keys; ++c)
      tile.scores[r * tile.query_stride + c * tile.key_stride] = 1;
}
template <typename Tile>
void throwing_slope(const Tile& tile, const void* context) {
  count_and_throw(context);
  slope_of_one(tile, nullptr);
}

heed::ScoreMod throwing_function(const Knows& knows) {
  return {throwing<heed::ScoreTile>, throwing<heed::ScoreTile64>, &knows,
          slope_of_one<heed::ScoreTile>, slope_of_one<heed::ScoreTile64>};
}
heed::ScoreMod throwing_derivative(const Knows& knows) {
  return {unchanged<heed::ScoreTile>, unchanged<heed::ScoreTile64>, &knows,
          throwing_slope<heed::ScoreTile>, throwing_slope<heed::ScoreTile64>};
}

/// A caller's executor of one worker.
class Inline final : public heed::Executor {
 public:
  [[nodiscard]] int workers() const override { return 1; }
  void run(std::int64_t tasks, void (*task)(void*, std::int64_t, int), void* context) override {
    for (std::int64_t n = 0; n < tasks; ++n) task(context, n, 0);
  }
};

template <typename T>
class callback : public testing::Test {
 public:
  callback() : s_(plain_call<T>({2, 4, 2, 120, 200, 32, 32}, 5)), r_(run(s_)) {
    lse_ = r_.lse.view();
    --lse_.rank;
    for (heed::SequenceId& id : ids_) id = cache_.create();
    cache_.append(ids_, s_.k.view(), s_.v.view());
  }

  std::vector<T> forward(const heed::ScoreMod& mod, const heed::Execution& execution) {
    Tensor<T> o(r_.o.shape);
    heed::attention_forward(s_.q.view(), s_.k.view(), s_.v.view(), {.output = o.out()},
                            {.score_mod = mod}, execution);
    return o.memory;
  }
  std::vector<T> backward(const heed::ScoreMod& mod, const heed::Execution& execution) {
    Tensor<T> dk(s_.k.shape);
    heed::attention_backward(
        {s_.q.view(), s_.k.view(), s_.v.view(), r_.o.view(), lse_, r_.o.view()}, {.dk = dk.out()},
        {.score_mod = mod}, execution);
    return dk.memory;
  }
  std::vector<T> jvp(const heed::ScoreMod& mod, const heed::Execution& execution) {
    Tensor<T> o(r_.o.shape);
    heed::attention_jvp({s_.q.view(), s_.k.view(), s_.v.view(), r_.o.view(), lse_},
                        {.q = s_.q.view()}, {.output = o.out()}, {.score_mod = mod}, execution);
    return o.memory;
  }
  std::vector<T> decode(const heed::ScoreMod& mod, const heed::Execution& execution) {
    Tensor<T> o(r_.o.shape);
    heed::attention_decode(s_.q.view(), cache_, ids_, {.output = o.out()}, {.score_mod = mod},
                           execution);
    return o.memory;
  }
  std::vector<T> inspect(const heed::ScoreMod& mod, const heed::Execution& execution) {
    std::vector<T> sums(std::size_t{2} * 4 * 200);
    heed::inspect_weights({s_.q.view(), s_.k.view(), lse_},
                          {.column_sums = heed::view(sums.data(), {2, 4, 200})}, {.score_mod = mod},
                          execution);
    return sums;
  }

  using Numbers = std::vector<T> (callback::*)(const heed::ScoreMod&, const heed::Execution&);
  /// The pass throws out of `mod_of`, and is as good as before.
  void expect_heard(const char* name, Numbers numbers, heed::ScoreMod (*mod_of)(const Knows&)) {
    Inline own;
    const heed::Execution executions[] = {{.executor = nullptr, .threads = 1},
                                          {.executor = nullptr, .threads = 4},
                                          {.executor = &own, .threads = 0}};
    const Knows quiet;
    const auto expected = (this->*numbers)(mod_of(quiet), executions[0]);
    for (const heed::Execution& execution : executions) {
      SCOPED_TRACE(testing::Message() << name << ", threads " << execution.threads);
      const Knows counted;
      EXPECT_EQ((this->*numbers)(mod_of(counted), execution), expected);
      ASSERT_GT(counted.calls.load(), 8) << "is hardly called";
      for (const std::int64_t at :
           {std::int64_t{0}, counted.calls.load() / 2, counted.calls.load() - 1}) {
        Knows knows;
        knows.at = at;
        const Knows* whose = nullptr;
        try {
          (void)(this->*numbers)(mod_of(knows), execution);
        } catch (const Mine& mine) {
          whose = mine.whose;
        }
        EXPECT_EQ(whose, &knows) << "thrown at call " << at;
        EXPECT_EQ((this->*numbers)(mod_of(quiet), execution), expected) << "after call " << at;
      }
    }
  }

 private:
  Call<T> s_;
  Result<T> r_;
  heed::ConstTensorView lse_;
  heed::KvCache cache_{{.kv_heads = 2,
                        .head_size = 32,
                        .dtype = heed::detail::dtype_of<T>(),
                        .pages = 14,
                        .page_keys = 32}};
  heed::SequenceId ids_[2]{};
};

using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(callback, Reals);

TYPED_TEST(callback, that_throws_is_heard_by_attention_forward) {
  this->expect_heard("forward", &callback<TypeParam>::forward, throwing_function);
}
TYPED_TEST(callback, that_throws_is_heard_by_attention_backward) {
  this->expect_heard("backward", &callback<TypeParam>::backward, throwing_function);
  this->expect_heard("backward, derivative", &callback<TypeParam>::backward, throwing_derivative);
}
TYPED_TEST(callback, that_throws_is_heard_by_attention_jvp) {
  this->expect_heard("jvp", &callback<TypeParam>::jvp, throwing_function);
  this->expect_heard("jvp, derivative", &callback<TypeParam>::jvp, throwing_derivative);
}
TYPED_TEST(callback, that_throws_is_heard_by_attention_decode) {
  this->expect_heard("decode", &callback<TypeParam>::decode, throwing_function);
}
TYPED_TEST(callback, that_throws_is_heard_by_inspect_weights) {
  this->expect_heard("inspect", &callback<TypeParam>::inspect, throwing_function);
}

}  // namespace
}  // namespace heed_test

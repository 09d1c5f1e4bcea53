// A caller's executor that misbehaves within its rules: it throws after some tasks, in one thread
// or several, takes them in another order, or has workers that never get one. What it throws
// reaches the caller of heed, the next call is as good as any, and no order changes a bit. Method:
// calls above 2 Mflop, which executors see.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "backward/support.h"
#include "heed/inspect.h"
#include "heed/jvp.h"
#include "heed/kv_cache.h"
#include "heed/merge.h"
#include "heed/modules.h"

namespace heed_test {
namespace {

class Moody final : public heed::Executor {
 public:
  [[nodiscard]] int workers() const override { return 3; }
  void run(std::int64_t tasks, void (*task)(void*, std::int64_t, int), void* context) override {
    for (std::int64_t n = 0; n < tasks; ++n) {
      if (left == 0) throw std::runtime_error("enough");
      if (left > 0) --left;
      ++ran;
      task(context, backwards ? tasks - 1 - n : n, backwards ? 2 : 0);
    }
  }
  std::int64_t left = -1;  // tasks until it throws; -1: it does not
  std::int64_t ran = 0;
  bool backwards = false;
};

/// More workers than a pool of heed's can have, of which it uses the last.
class Crowd final : public heed::Executor {
 public:
  [[nodiscard]] int workers() const override { return 5000; }
  void run(std::int64_t tasks, void (*task)(void*, std::int64_t, int), void* context) override {
    for (std::int64_t n = 0; n < tasks; ++n) task(context, n, 4999);
  }
};

/// What would hide a race from ThreadSanitizer is not ordered here.
constexpr std::memory_order kRelaxed = std::memory_order_relaxed;

/// As the Python package's: heed's pool, whose tasks do nothing once `stop` is set, and an
/// exception when all have ended.
class Stoppable final : public heed::Executor {
 public:
  struct Stopped {};

  explicit Stoppable(int threads) : pool_(threads) {}
  [[nodiscard]] int workers() const override { return pool_.workers(); }
  void run(std::int64_t tasks, void (*task)(void*, std::int64_t, int), void* context) override {
    struct Watched {
      Stoppable* self;
      void (*task)(void*, std::int64_t, int);
      void* context;
    } watched{this, task, context};
    pool_.run(
        tasks,
        [](void* raw, std::int64_t index, int worker) {
          auto& seen = *static_cast<Watched*>(raw);
          Stoppable& self = *seen.self;
          while (self.ran.load(kRelaxed) >= self.waits_from && !self.stop.load(kRelaxed))
            std::this_thread::yield();
          if (self.stop.load(kRelaxed)) return;
          if (self.left.fetch_sub(1, kRelaxed) <= 0) return self.stop.store(true, kRelaxed);
          seen.task(seen.context, index, worker);
          self.ran.fetch_add(1, kRelaxed);
        },
        &watched);
    if (stop.load(kRelaxed)) throw Stopped{};
  }

  std::atomic<bool> stop{false};
  std::atomic<std::int64_t> left{1 << 30};  // tasks before it stops
  std::atomic<std::int64_t> ran{0};
  std::int64_t waits_from = 1 << 30;  // with so many done a task waits for somebody to stop it

 private:
  heed::PoolExecutor pool_;
};

/// One pass over everything that takes an executor, as a function from an executor to its numbers.
struct Pass {
  const char* name;
  std::function<std::vector<float>(heed::Execution)> numbers;
};

class executor : public testing::Test {
 protected:
  executor()
      : s(plain_call<float>({2, 4, 2, 120, 200, 32, 32}, 5)), g(draw_d_output(s, 6)), r(run(s)) {
    lse = r.lse.view();
    --lse.rank;
  }

  std::vector<Pass> passes() {
    return {
        {"forward", [this](auto e) { return run(s, {}, e).o.memory; }},
        {"backward", [this](auto e) { return run_backward(s, r, g, {}, e).dk.memory; }},
        {"jvp",
         [this](auto e) {
           Tensor<float> o(r.o.shape);
           heed::attention_jvp({s.q.view(), s.k.view(), s.v.view(), r.o.view(), lse},
                               {.q = s.q.view()}, {.output = o.out()}, {}, e);
           return o.memory;
         }},
        {"inspect",
         [this](auto e) {
           std::vector<float> sums(std::size_t{2} * 4 * 200);
           heed::inspect_weights({s.q.view(), s.k.view(), lse},
                                 {.column_sums = heed::view(sums.data(), {2, 4, 200})}, {}, e);
           return sums;
         }},
        {"decode",
         [this](auto e) {
           heed::KvCache cache({.kv_heads = 2, .head_size = 32, .pages = 14, .page_keys = 32});
           const heed::SequenceId ids[] = {cache.create(), cache.create()};
           cache.append(ids, s.k.view(), s.v.view());
           Tensor<float> o(r.o.shape);
           heed::attention_decode(s.q.view(), cache, ids, {.output = o.out()}, {}, e);
           return o.memory;
         }},
        {"linear",
         [](auto e) {
           const heed::Linear linear({.inputs = 96, .outputs = 128});
           std::vector<float> x(std::size_t{400} * 96, 0.5F), y(std::size_t{400} * 128);
           linear.forward(heed::view(std::as_const(x).data(), {400, 96}),
                          heed::view(y.data(), {400, 128}), e);
           return y;
         }},
    };
  }

  Call<float> s;
  Tensor<float> g;
  Result<float> r;
  heed::ConstTensorView lse;
};

TEST_F(executor, that_throws_is_heard_and_leaves_heed_as_good_as_before) {
  for (const Pass& pass : passes()) {
    const auto expected = pass.numbers({.executor = nullptr, .threads = 2});
    Moody all;
    EXPECT_EQ(pass.numbers({.executor = &all, .threads = 0}), expected) << pass.name;
    ASSERT_GT(all.ran, 1) << pass.name << " never asked the executor, or for one task";
    for (std::int64_t n = 0; n < all.ran; n += 1 + all.ran / 20) {
      Moody moody;
      moody.left = n;
      std::string message;
      try {
        (void)pass.numbers({.executor = &moody, .threads = 0});
      } catch (const std::runtime_error& error) {
        message = error.what();
      }
      EXPECT_EQ(message, "enough") << pass.name << " after " << n << " tasks";
      EXPECT_EQ(moody.ran, n) << pass.name;
    }
    EXPECT_EQ(pass.numbers({.executor = nullptr, .threads = 2}), expected) << pass.name;
  }
}

/// Memory of the results is gone when the exception is heard: a task that still ran would write to
/// it.
TEST_F(executor, that_is_stopped_among_several_threads_is_heard_when_all_have_ended) {
  for (const Pass& pass : passes()) {
    const auto expected = pass.numbers({.executor = nullptr, .threads = 1});
    for (const int threads : {2, 4, 8}) {
      SCOPED_TRACE(testing::Message() << pass.name << ", " << threads << " threads");
      Stoppable whole(threads);
      EXPECT_EQ(pass.numbers({.executor = &whole, .threads = 0}), expected);
      const std::int64_t tasks = whole.ran;
      ASSERT_GT(tasks, 1) << "never asked the executor, or for one task";
      for (int n = 0; n < 12; ++n) {
        Stoppable stopped(threads);
        const std::int64_t before = n * (tasks - 1) / 11;
        stopped.left = before;
        EXPECT_THROW((void)pass.numbers({.executor = &stopped, .threads = 0}), Stoppable::Stopped);
        EXPECT_EQ(stopped.ran, before);
      }
      EXPECT_EQ(pass.numbers({.executor = &whole, .threads = 0}), expected);
    }
  }
}

/// With no task done, one or some, others at work; and beside a call that nobody stops. It is heard
/// unless there are so few tasks that all may have begun before.
TEST_F(executor, may_be_stopped_by_any_other_thread) {
  for (const Pass& pass : passes()) {
    const auto expected = pass.numbers({.executor = nullptr, .threads = 1});
    Stoppable whole(4);
    EXPECT_EQ(pass.numbers({.executor = &whole, .threads = 0}), expected);
    int heard = 0, certain = 0;
    for (int n = 0; n < 24; ++n) {
      Stoppable stopped(4);
      stopped.waits_from = n % 4;
      std::thread stops([&] {
        while (stopped.ran.load(kRelaxed) < stopped.waits_from) std::this_thread::yield();
        stopped.stop.store(true, kRelaxed);
      });
      std::thread other([&] {
        EXPECT_EQ(pass.numbers({.executor = nullptr, .threads = 2}), expected) << pass.name;
      });
      try {
        EXPECT_EQ(pass.numbers({.executor = &stopped, .threads = 0}), expected) << pass.name;
        stopped.ran = stopped.waits_from;
      } catch (const Stoppable::Stopped&) {
        ++heard;
      }
      stops.join();
      other.join();
      certain += stopped.waits_from == 0 || whole.ran >= stopped.waits_from + 4;
    }
    EXPECT_GE(heard, certain) << pass.name;
  }
}

TEST_F(executor, may_take_tasks_in_any_order_under_any_worker) {
  for (const Pass& pass : passes()) {
    Moody moody;
    moody.backwards = true;
    EXPECT_EQ(pass.numbers({.executor = &moody, .threads = 0}),
              pass.numbers({.executor = nullptr, .threads = 1}))
        << pass.name;
    EXPECT_GT(moody.ran, 1) << pass.name;
  }
}

TEST_F(executor, may_have_more_workers_than_a_pool) {
  Crowd crowd;
  for (const Pass& pass : passes()) {
    EXPECT_EQ(pass.numbers({.executor = &crowd, .threads = 0}),
              pass.numbers({.executor = nullptr, .threads = 1}))
        << pass.name;
  }
}

}  // namespace
}  // namespace heed_test

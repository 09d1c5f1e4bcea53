// Memory that cannot be had, and memory that is.
// Method: this program's operator new and aligned_alloc fail at the n-th call, for every n until
// the gradients are there.
#include <gtest/gtest.h>

#include <thread>

#include "backward/support.h"
#include "forward/failing_allocation.h"

namespace heed_test {
namespace {

struct Problem {
  Call<float> s;
  Tensor<float> g = draw_d_output(s, 91), dq{s.q.shape}, dk{s.k.shape}, dv{s.v.shape};
  Tensor<float> norms{{s.q.shape[0], s.q.shape[1], s.q.shape[2], 1}};
  Result<float> forward = run(s);

  explicit Problem(const Dims& dims) : s(plain_call<float>(dims, 90)) {}

  void backward(int threads) {
    heed::ConstTensorView lse = forward.lse.view();
    --lse.rank;
    heed::TensorView ds_norms = norms.out();
    --ds_norms.rank;
    heed::attention_backward({.q = s.q.view(),
                              .k = s.k.view(),
                              .v = s.v.view(),
                              .output = forward.o.view(),
                              .lse = lse,
                              .d_output = g.view()},
                             {.dq = dq.out(), .dk = dk.out(), .dv = dv.out(), .ds_norms = ds_norms},
                             {}, {.executor = nullptr, .threads = threads});
  }
};

TEST(backward_allocation, a_failing_one_is_an_error_of_kind_memory_and_leaves_the_gradients) {
  for (const int threads : {1, 3}) {
    // Each round asks for more scratch than the one before, so that kept memory cannot serve it.
    std::int64_t size = 16 + 500 * threads;
    int failures = 0;
    bool succeeded = false;
    for (long n = 1; n < 100 && !succeeded; ++n, size += 64) {
      Problem p({1, 1, 1, 70, 800, size, size});
      std::string message;
      heed::ErrorKind kind{};
      failing = n;
      try {
        p.backward(threads);
      } catch (const heed::Error& error) {
        kind = error.kind();
        message = error.what();
      } catch (const std::bad_alloc&) {
        kind = heed::ErrorKind::io;
        message = "std::bad_alloc, which is no heed::Error";
      }
      const bool reached = failing.exchange(0) == 0;
      if (message.empty()) {
        succeeded = !reached;  // else one that could be done without, such as a thread's
        continue;
      }
      ++failures;
      EXPECT_EQ(kind, heed::ErrorKind::memory) << message;
      EXPECT_NE(message.find("bytes"), std::string::npos) << message;
      for (const auto* t : {&p.dq, &p.dk, &p.dv, &p.norms})
        for (const float& x : t->memory) {
          std::uint32_t bits;
          std::memcpy(&bits, &x, sizeof bits);
          ASSERT_EQ(bits, 0xFFFFFFFFU) << "written in spite of: " << message;
        }
    }
    EXPECT_TRUE(succeeded) << "not all allocations had their turn, " << threads << " threads";
    EXPECT_GT(failures, 0) << threads << " threads";
  }
}

TEST(backward_allocation, there_is_none_once_a_size_is_known) {
  for (const Dims& dims : {Dims{2, 4, 2, 100, 900, 32, 32}, Dims{1, 1, 1, 4, 4, 8, 8}}) {
    Problem p(dims);
    p.backward(2);
    p.backward(2);
    const long before = allocations;
    p.backward(2);
    EXPECT_EQ(allocations - before, 0) << dims.keys << " keys";
  }
}

/// O(Tq + Tk): twice the length takes no more than about twice the memory.
TEST(backward_allocation, memory_grows_with_the_length_not_its_square) {
  const auto largest_request = [](std::int64_t n) {
    Call<float> s = plain_call<float>({1, 1, 1, n, n, 8, 8}, 92);
    s.left = 10;  // little to compute
    s.right = 10;
    const auto forward = run(s);
    const auto g = draw_d_output(s, 93);
    largest = 0;
    // A thread of its own has kept no memory of calls before.
    std::thread([&] {
      (void)run_backward(s, forward, g, {}, {.executor = nullptr, .threads = 2});
    }).join();
    return largest.load();
  };
  const std::size_t once = largest_request(20000), twice = largest_request(40000);
  EXPECT_LE(twice, 3 * once);
  EXPECT_LE(twice, std::size_t{40000} * 8 * 4 * 60) << "slots for more chunks than the cap allows";
}

}  // namespace
}  // namespace heed_test

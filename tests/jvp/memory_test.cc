// Memory of the forward-mode derivative: how much it takes, and what happens where there is none.
// Method: an operator new that fails at the n-th call, for every n until the derivative is there.
#include <gtest/gtest.h>

#include <thread>

#include "forward/failing_allocation.h"
#include "jvp/support.h"

namespace heed_test {
namespace {

template <typename T>
void forward_mode(const Call<T>& s, const Motion<T>& m, const Result<T>& forward, Tensor<T>& o,
                  int threads) {
  heed::ConstTensorView lse = forward.lse.view();
  --lse.rank;
  heed::attention_jvp(
      {.q = s.q.view(), .k = s.k.view(), .v = s.v.view(), .output = forward.o.view(), .lse = lse},
      {.q = m.q.view(), .k = m.k.view(), .v = m.v.view()}, {.output = o.out()}, {},
      {.executor = nullptr, .threads = threads});
}

TEST(jvp_memory, that_cannot_be_had_is_an_error_and_leaves_the_results) {
  // Each round asks for more scratch than the one before, so that kept memory cannot serve it.
  std::int64_t size = 400;
  int failures = 0;
  bool succeeded = false;
  for (long n = 1; n < 100 && !succeeded; ++n, size += 64) {
    const auto s = plain_call<float>({1, 1, 1, 70, 800, size, size}, 96);
    const auto m = draw_motion(s, 97);
    const auto forward = run(s);
    Tensor<float> o(forward.o.shape);
    std::string message;
    failing = n;
    try {
      forward_mode(s, m, forward, o, 3);
    } catch (const heed::Error& error) {
      message = error.what();
      EXPECT_EQ(error.kind(), heed::ErrorKind::memory) << message;
    }
    const bool reached = failing.exchange(0) == 0;
    if (message.empty()) {
      succeeded = !reached;  // else one that could be done without, such as a thread's
      continue;
    }
    ++failures;
    for (const float& x : o.memory) {
      ASSERT_TRUE(std::isnan(x)) << "written in spite of: " << message;
    }
  }
  EXPECT_TRUE(succeeded) << "not all allocations had their turn";
  EXPECT_GT(failures, 0);
}

template <typename T>
void expect_none_once_known() {
  for (const Dims& dims : {Dims{2, 4, 2, 100, 900, 32, 32}, Dims{1, 1, 1, 4, 4, 8, 8}}) {
    const auto s = plain_call<T>(dims, 95);
    const auto m = draw_motion(s, 97);
    const auto forward = run(s);
    Tensor<T> o(forward.o.shape);
    const auto jvp = [&] { forward_mode(s, m, forward, o, 2); };
    jvp();  // scratch is made, which the calling thread keeps, and threads are started
    jvp();
    const long before = allocations;
    jvp();
    EXPECT_EQ(allocations - before, 0) << dims.keys << " keys";
  }
}

TEST(jvp_memory, is_asked_for_no_more_once_a_size_is_known) {
  expect_none_once_known<float>();
  expect_none_once_known<double>();
}

TEST(jvp_memory, grows_with_the_length_not_its_square) {
  const auto largest_request = [](std::int64_t n) {
    auto s = plain_call<float>({1, 1, 1, n, n, 8, 8}, 98);
    s.left = s.right = 10;  // little to compute
    const auto forward = run(s);
    auto m = Motion<float>{Tensor<float>(s.q.shape), Tensor<float>(s.k.shape),
                           Tensor<float>(s.v.shape), Tensor<double>()};
    for (auto* t : {&m.q, &m.k, &m.v}) std::fill(t->memory.begin(), t->memory.end(), 1.0F);
    largest = 0;
    // A thread of its own has kept no memory of calls before.
    std::thread([&] { (void)run_jvp(s, forward, m, {.executor = nullptr, .threads = 2}); }).join();
    return largest.load();
  };
  EXPECT_LE(largest_request(40000), 3 * largest_request(20000));
  EXPECT_LE(largest_request(40000), std::size_t{8} << 20);
}

}  // namespace
}  // namespace heed_test

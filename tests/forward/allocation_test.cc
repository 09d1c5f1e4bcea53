// Memory that cannot be had.
// Method: this program's operator new and aligned_alloc fail at the n-th call, for every n until
// the attention succeeds.
#include <gtest/gtest.h>

#include <thread>

#include "forward/failing_allocation.h"
#include "forward/half.h"
#include "forward/support.h"

namespace heed_test {
namespace {

TEST(allocation, a_failing_one_is_an_error_of_kind_memory_and_leaves_the_outputs) {
  for (const int threads : {1, 3}) {
    // Each round asks for more scratch than the one before, so that kept memory cannot serve it.
    std::int64_t size = 200 + 300 * threads;
    int failures = 0;
    bool succeeded = false;
    for (long n = 1; n < 100 && !succeeded; ++n, size += 40) {
      const auto call = plain_call<float>({1, 2, 1, 130, 100, size, size}, 91);
      Tensor<float> o({1, 2, 130, size});
      const heed::ForwardOutputs outputs{.output = o.out()};
      const auto q = call.q.view(), k = call.k.view(), v = call.v.view();
      bool failed = false;
      std::string message;
      heed::ErrorKind kind{};
      failing = n;
      try {
        heed::attention_forward(q, k, v, outputs, {}, {.executor = nullptr, .threads = threads});
      } catch (const heed::Error& error) {
        failing = 0;
        failed = true;
        kind = error.kind();
        message = error.what();
      } catch (const std::bad_alloc&) {
        failing = 0;
        failed = true;
        message = "std::bad_alloc, which is no heed::Error";
        kind = heed::ErrorKind::io;
      }
      const bool reached = failing.exchange(0) == 0;
      if (!failed) {
        succeeded = !reached;  // else one that could be done without, such as a thread's
        continue;
      }
      ++failures;
      EXPECT_EQ(kind, heed::ErrorKind::memory) << message;
      EXPECT_NE(message.find("bytes"), std::string::npos) << message;
      for (const float& x : o.memory) {
        std::uint32_t bits;
        std::memcpy(&bits, &x, sizeof bits);
        ASSERT_EQ(bits, 0xFFFFFFFFU) << "written in spite of: " << message;
      }
    }
    EXPECT_TRUE(succeeded) << "not all allocations had their turn, " << threads << " threads";
    EXPECT_GT(failures, 0) << threads << " threads";
  }
}

/// The third call of this kind asks for nothing: the first has its scratch made, which the calling
/// thread keeps, and threads started; a plan of entries that are alike is no memory.
void expect_none(const heed::ConstTensorView& q, const heed::ConstTensorView& k,
                 const heed::ConstTensorView& v, const heed::TensorView& o,
                 const heed::AttentionOptions& options) {
  const auto forward = [&] {
    heed::attention_forward(q, k, v, {.output = o}, options, {.executor = nullptr, .threads = 2});
  };
  forward();
  forward();
  const long before = allocations;
  forward();
  EXPECT_EQ(allocations - before, 0) << heed::name_of(heed::explain(q, k, v).isa) << ", "
                                     << heed::name_of(q.dtype) << ", " << k.shape[2] << " keys";
}

/// More rows than a tile has; a single tile; few rows of whole vectors, alone and with splits as
/// tasks.
constexpr Dims kKnown[] = {{1, 4, 2, 100, 900, 32, 32},
                           {1, 1, 1, 4, 4, 8, 8},
                           {2, 4, 2, 1, 97, 64, 64},
                           {1, 4, 2, 1, 9000, 64, 64}};

template <typename T>
void expect_none_in_reals() {
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    for (const Dims& dims : kKnown) {
      const auto call = plain_call<T>(dims, 92);
      Tensor<T> o({dims.batch, dims.heads, dims.queries, dims.value_size});
      expect_none(call.q.view(), call.k.view(), call.v.view(), o.out(),
                  {.mask = {.causal = dims.queries > 1}});
    }
  }
}

TEST(allocation, there_is_none_once_a_size_is_known) {
  expect_none_in_reals<float>();
  expect_none_in_reals<double>();
}

TEST(allocation, there_is_none_in_16_bits_once_a_size_is_known) {
  for (const heed::DType dtype : {heed::DType::f16, heed::DType::bf16})
    for (const heed::Isa isa : isas_of(dtype)) {
      const Forced forced(isa);
      for (const Dims& dims : kKnown) {
        const auto call = nearest(plain_call<float>(dims, 92), dtype);
        const Halves q(call.q, dtype), k(call.k, dtype), v(call.v, dtype);
        Halves o({dims.batch, dims.heads, dims.queries, dims.value_size}, Layout::bhtd, dtype);
        expect_none(q.view(4), k.view(4), v.view(4), o.out(4), {});
      }
    }
}

/// O(Tq + Tk): neither weights nor draws of dropout are kept.
TEST(allocation, memory_of_dropout_grows_with_the_length_not_its_square) {
  const auto largest_request = [](std::int64_t n) {
    Call<float> s = plain_call<float>({1, 1, 1, n, n, 8, 8}, 93);
    s.left = s.right = 10;  // little to compute
    s.dropout = {.p = 0.5, .seed = 5};
    largest = 0;
    // A thread of its own has kept no memory of calls before.
    std::thread([&] { (void)run(s, {}, {.executor = nullptr, .threads = 2}); }).join();
    return largest.load();
  };
  EXPECT_LE(largest_request(40000), 3 * largest_request(20000));
  EXPECT_LE(largest_request(40000), std::size_t{8} << 20);
}

}  // namespace
}  // namespace heed_test

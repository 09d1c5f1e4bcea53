// Running a problem on heed and on the oracle, and the comparison of the two.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "forward/call.h"
#include "heed/error.h"

namespace heed_test {

struct Ask {
  bool lse = true, weights = false;
  Layout output = Layout::bhtd;
  bool ones = false;  // results may be NaN with all bits set, from such an input
  const heed::RowStatistics* statistics = nullptr;  // memory for them, of its caller
};

template <typename T>
struct Result {
  Tensor<T> o;        // [B, H, Tq, Dv]
  Tensor<T> lse;      // [B, H, Tq, 1]
  Tensor<T> weights;  // [B, H, Tq, Tk]
};

/// Fails the test if an element was never written, or a byte beside them was: all memory was 0xFF
/// before. A written element cannot be told from an untouched one if it is NaN with all bits set,
/// which only such an input makes.
template <typename T>
void expect_written_exactly(const Tensor<T>& tensor, const char* name, bool ones_may_come = false);

/// The call in its dtype; outputs in 16 bits come back as floats. Output memory is 0xFF before the
/// call. Fails the test if an input or a byte beside the outputs changed, or if an element of them
/// was not written.
template <typename T>
Result<T> run(const Call<T>& call, const Ask& ask = {}, const heed::Execution& execution = {});

/// The same numbers, bit for bit; NaN equals NaN, +0 is not -0. Layouts may differ.
template <typename T>
testing::AssertionResult same_bits(const Tensor<T>& a, const Tensor<T>& b);
/// o, lse and, if both have them, weights.
template <typename T>
testing::AssertionResult same_bits(const Result<T>& a, const Result<T>& b);

/// T1 and T4: every element within its bound, NaN and infinity where they belong, zero positive.
template <typename T>
testing::AssertionResult within_bounds(const Result<T>& result, const oracle::Answer& answer);

/// Runs the call on every instruction set and holds each against the oracle and, but for dot
/// products of bfloat16, against each other. The number of instruction sets comes back.
template <typename T>
int expect_truth(const Call<T>& call, const Ask& ask = {}, const heed::Execution& execution = {});

/// The instruction set of this architecture that has dot products of bfloat16.
#if defined(__aarch64__)
inline constexpr heed::Isa kPaired = heed::Isa::neon_bf16;
#else
inline constexpr heed::Isa kPaired = heed::Isa::avx512_bf16;
#endif

/// Instruction sets that were compiled and run here, ascending. Without kPaired, whose kernels for
/// float32 and float64 are those of the set below.
std::vector<heed::Isa> runnable_isas();

/// Forces an instruction set, and fails the test if it is not the one that will run.
class Forced {
 public:
  explicit Forced(heed::Isa isa);
  ~Forced();
  Forced(const Forced&) = delete;
  Forced& operator=(const Forced&) = delete;
};

/// for (auto drawn = draws(usual); drawn; ++drawn): each that ends is a case of the test, which
/// ./dev test --full counts.
class Draws {
 public:
  explicit Draws(int count) : count_(count) {}

  explicit operator bool() const { return n_ < count_; }
  Draws& operator++() {
    testing::Test::RecordProperty("cases", ++n_);
    return *this;
  }
  [[nodiscard]] int operator*() const { return n_; }  ///< from 0 on
  [[nodiscard]] int count() const { return count_; }

 private:
  int n_ = 0, count_;
};

/// Draws per property: HEED_TEST_DRAWS, else `usual`. Fails the test where that is no whole number
/// from 1 on, for no draw would find no fault.
Draws draws(int usual);

}  // namespace heed_test

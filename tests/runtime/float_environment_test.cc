// The default floating-point environment of tasks.
// Method: set the strangest environment that the CPU knows, look inside, look again afterwards.
#include "runtime/float_environment.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <cstdint>
#include <limits>
#include <stdexcept>

#include "float_control.h"
#include "heed/runtime.h"
#include "runtime/tasks.h"

namespace heed::runtime {
namespace {

using Word = testing::Control::Word;
#if defined(__x86_64__)
constexpr Word kDefault = 0x1F80;
constexpr Word kStrange =
    0xFFC5;  // FTZ, DAZ, toward zero, masked; invalid and zero divide happened
constexpr Word kFlushing = 0x9FC0;  // FTZ, DAZ
constexpr Word kFlags = 0x003F;
#elif defined(__aarch64__)
constexpr Word kDefault = 0;
constexpr Word kStrange = 0x03C00000;  // default NaN, FZ, toward zero
constexpr Word kFlushing = 0x01000000;
constexpr Word kFlags = 0;
#endif

struct Restore {
  std::fenv_t before;
  Restore() { std::fegetenv(&before); }
  ~Restore() { std::fesetenv(&before); }
};

#if defined(__x86_64__) || defined(__aarch64__)
TEST(float_environment, is_the_default_one_inside) {
  const Restore restore;
  for (const Word word : {kStrange, kFlushing, kDefault}) {
    testing::write_control(word);
    Word inside;
    {
      const DefaultFloatEnvironment environment;
      inside = testing::read_control();
    }
    EXPECT_EQ(inside & ~kFlags, kDefault);
  }
}

TEST(float_environment, leaves_every_bit_as_it_was) {
  const Restore restore;
  volatile double zero = 0.0;
  volatile double sink = 0.0;
  for (const Word word : {kStrange, kDefault}) {
    testing::write_control(word);
    {
      const DefaultFloatEnvironment environment;
      sink = 1.0 / zero;  // raises a flag that was not there in the second case
      sink = sink / 3.0;
    }
    const Word after = testing::read_control();
    EXPECT_EQ(after, word);
  }
}

TEST(float_environment, hides_flags_even_where_control_was_the_default) {
  const Restore restore;
  testing::write_control(kDefault);
  std::feclearexcept(FE_ALL_EXCEPT);
  volatile double zero = 0.0;
  volatile double sink = 0.0;
  {
    const DefaultFloatEnvironment environment;
    sink = 1.0 / zero;
    sink = sink / 3.0;
    EXPECT_NE(std::fetestexcept(FE_DIVBYZERO), 0) << "the division must happen for this to test";
  }
  EXPECT_EQ(std::fetestexcept(FE_ALL_EXCEPT), 0);
}

TEST(float_environment, keeps_subnormals_of_a_caller_who_flushes_them) {
  const Restore restore;
  testing::write_control(kStrange);
  volatile float tiny = std::numeric_limits<float>::min();
  volatile float outside = 0;
  volatile float inside = 0;
  outside = tiny / 2;
  {
    const DefaultFloatEnvironment environment;
    inside = tiny / 2;
  }
  testing::write_control(kDefault);
  EXPECT_EQ(outside, 0.0f);
  EXPECT_EQ(inside, std::numeric_limits<float>::min() / 2);
}

TEST(float_environment, survives_an_exception) {
  const Restore restore;
  testing::write_control(kStrange);
  try {
    const DefaultFloatEnvironment environment;
    throw std::runtime_error("");
  } catch (const std::runtime_error&) {
  }
  const Word after = testing::read_control();
  EXPECT_EQ(after, kStrange);
}

TEST(float_environment, holds_in_every_task_on_every_thread) {
  const Restore restore;
  for (const int threads : {1, 4}) {
    PoolExecutor executor(threads);
    testing::write_control(kStrange);
    std::atomic<int> different{0};
    run_tasks(executor, 100, [&](std::int64_t, int) {
      if (testing::read_control() != kDefault) ++different;
      testing::write_control(kStrange);  // as a careless callback might
    });
    const Word after = testing::read_control();
    testing::write_control(kDefault);
    EXPECT_EQ(after, kStrange);
    EXPECT_EQ(different, 0);
  }
}
#endif

TEST(float_environment, rounds_to_nearest_whatever_the_caller_wants) {
  const Restore restore;
  volatile float one = 1;
  volatile float three = 3;
  for (const int mode : {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    volatile float third = 0;
    {
      const DefaultFloatEnvironment environment;
      third = one / three;
    }
    const int after = std::fegetround();
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(third, 0x1.555556p-2f);
    EXPECT_EQ(after, mode);
  }
}

}  // namespace
}  // namespace heed::runtime

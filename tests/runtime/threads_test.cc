// The default number of threads: variables, affinity, quota.
#include "runtime/threads.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "support.h"

namespace heed::runtime {
namespace {

TEST(threads, variables_beat_the_machine) {
  EXPECT_EQ(choose_threads("3", "5", 8, 2.0), 3);
  EXPECT_EQ(choose_threads("", "5", 8, 2.0), 5);
  EXPECT_EQ(choose_threads("", "", 8, 2.0), 2);
  EXPECT_EQ(choose_threads("", "", 8, {}), 8);
  EXPECT_EQ(choose_threads("4096", "", 1, 0.5), 4096);
}

TEST(threads, quota_is_rounded_down_to_at_least_one) {
  EXPECT_EQ(choose_threads("", "", 16, 1.5), 1);
  EXPECT_EQ(choose_threads("", "", 16, 0.2), 1);
  EXPECT_EQ(choose_threads("", "", 16, 2.99), 2);
  EXPECT_EQ(choose_threads("", "", 4, 7.0), 4);
  EXPECT_EQ(choose_threads("", "", 4, 1e300), 4);
  EXPECT_EQ(choose_threads("", "", 100000, {}), 4096);
}

TEST(threads, omp_num_threads_may_be_a_list) {
  EXPECT_EQ(parse_threads("OMP_NUM_THREADS", "4,3,2", true), 4);
  EXPECT_EQ(parse_threads("OMP_NUM_THREADS", " 12 , 3", true), 12);
  EXPECT_EQ(parse_threads("OMP_NUM_THREADS", "7\n", true), 7);
}

TEST(threads, garbage_is_an_error_that_says_what_came) {
  for (const char* text : {"abc", "0", "-1", "4097", "1.5", "0x4", "4 5", "+4", " ", "4,2", "1e2",
                           "99999999999999999999", "4;"}) {
    EXPECT_EQ(testing::message_of([&] { (void)choose_threads(text, "2", 1, {}); }),
              "default_threads: HEED_NUM_THREADS is '" + std::string(text) +
                  "'; it must be a number from 1 to 4096");
  }
  for (const char* text : {"abc", ",", ",4", "0,4", "many"}) {
    EXPECT_EQ(testing::message_of([&] { (void)choose_threads("", text, 1, {}); }),
              "default_threads: OMP_NUM_THREADS is '" + std::string(text) +
                  "'; it must be a number from 1 to 4096");
  }
}

TEST(threads, variable_that_does_not_decide_is_not_judged) {
  EXPECT_EQ(choose_threads("2", "garbage", 8, {}), 2);
}

TEST(threads, message_stays_short_and_printable) {
  const std::string message = testing::message_of(
      [] { (void)choose_threads("\x1b[2J" + std::string(4096, 'x'), "", 1, {}); });
  EXPECT_NE(message.find("'\\x1b[2Jxxx"), std::string::npos) << message;
  EXPECT_NE(message.find("xxx'...; it must"), std::string::npos) << message;
  EXPECT_LT(message.size(), 200U);
}

// A kernel for 2048 CPUs, of which three may be used, one of them above 1024.
int large_machine(std::size_t bytes, unsigned char* mask) {
  if (bytes < 256) {
    errno = EINVAL;
    return -1;
  }
  std::memset(mask, 0, bytes);
  mask[0] = 3;
  mask[200] = 0x80;
  return 0;
}

int no_affinity(std::size_t, unsigned char*) {
  errno = EPERM;
  return -1;
}

int always_too_short(std::size_t, unsigned char*) {
  errno = EINVAL;
  return -1;
}

int empty_mask(std::size_t, unsigned char*) { return 0; }

TEST(threads, affinity_counts_cpus_beyond_1024) { EXPECT_EQ(affinity_cpus(large_machine), 3); }

TEST(threads, without_affinity_the_machine_counts) {
  for (const GetAffinity get : {no_affinity, always_too_short, empty_mask}) {
    EXPECT_GE(affinity_cpus(get), 1);
  }
}

TEST(threads, default_is_positive_and_stays) {
  const int threads = default_threads();
  EXPECT_GE(threads, 1);
  EXPECT_EQ(default_threads(), threads);
  EXPECT_EQ(PoolExecutor().workers(), threads);
}

}  // namespace
}  // namespace heed::runtime

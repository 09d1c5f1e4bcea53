// What the sanitizers are there to see, they see, and end the program: a flag that is lost, as
// -fno-sanitize-recover, would leave every other test green.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <vector>

#include "heed/attention.h"

namespace heed_test {
namespace {

constexpr std::int64_t kRows = 5, kKeys = 17, kSize = 8;

/// Attention on memory of the caller that ends `missing` elements before a tensor does.
template <typename T>
void attend(std::int64_t missing_of_v, std::int64_t missing_of_output) {
  const auto elements = [](std::int64_t count) {
    return std::vector<T>(static_cast<std::size_t>(count));
  };
  const auto q = elements(kRows * kSize), k = elements(kKeys * kSize);
  const auto v = elements(kKeys * kSize - missing_of_v);
  auto output = elements(kRows * kSize - missing_of_output);
  heed::attention_forward(
      heed::view(q.data(), {kRows, kSize}), heed::view(k.data(), {kKeys, kSize}),
      heed::view(v.data(), {kKeys, kSize}), {.output = heed::view(output.data(), {kRows, kSize})});
}

template <typename T>
class watched : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(watched, Reals);

TYPED_TEST(watched, an_element_read_beyond_a_vector_is_reported) {
  attend<TypeParam>(0, 0);
  EXPECT_DEATH(attend<TypeParam>(1, 0), "ERROR: AddressSanitizer");
}

TYPED_TEST(watched, an_element_written_beyond_a_vector_is_reported) {
  EXPECT_DEATH(attend<TypeParam>(0, 1), "ERROR: AddressSanitizer");
}

/// Of this file, which has its flags from heed_flags() as the library has; checks of pointers stay
/// out.
TEST(watched_steps, an_integer_that_overflows_is_reported) {
  volatile int most = std::numeric_limits<int>::max();
  EXPECT_DEATH(std::exit(most + 1), "runtime error: signed integer overflow");
}

TEST(watched_memory, what_is_lost_is_reported_at_the_end) {
  const auto lose = [] {
    static void* volatile only = nullptr;
    only = std::malloc(1000);
    only = nullptr;
    std::exit(only == nullptr ? 0 : 1);
  };
  EXPECT_EXIT(
      lose(), [](int status) { return WIFEXITED(status) && WEXITSTATUS(status) != 0; },
      "LeakSanitizer: detected memory leaks");
}

}  // namespace
}  // namespace heed_test

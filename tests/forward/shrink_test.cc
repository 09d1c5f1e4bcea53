// What finds the smallest case that fails: by faults that are known.
#include "forward/shrink.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "forward/draws.h"

namespace heed_test {
namespace {

TEST(shrink, hears_what_fails) {
  EXPECT_EQ(failures([] { EXPECT_EQ(1, 2); }).size(), 1U);
  EXPECT_EQ(failures([] { FAIL() << "at once"; }).size(), 1U);
  EXPECT_TRUE(failures([] { EXPECT_EQ(1, 1); }).empty());
}

bool says(const testing::TestPartResult& failure, const char* words) {
  return std::string(failure.message()).find(words) != std::string::npos;
}

TEST(shrink, what_fails_once_and_not_again_fails_the_test) {
  int judged = 0;
  const auto told = failures([&] {
    judge_and_shrink(Case{}, [&](const Case&) { EXPECT_GT(++judged, 1) << "the first time"; });
  });
  ASSERT_EQ(told.size(), 1U);
  EXPECT_TRUE(says(told[0], "the first time")) << told[0];
  int drawn = 0;
  const auto said = failures(
      [&] { for_draws(1, 9, [&](Random&, auto) { EXPECT_NE(++drawn, 3) << "the third time"; }); });
  ASSERT_EQ(said.size(), 1U);
  EXPECT_TRUE(says(said[0], "the third time")) << said[0];
  EXPECT_TRUE(says(said[0], "seed ")) << said[0];
}

TEST(shrink, leaves_what_matters) {
  Case c;
  c.dims = {2, 6, 3, 70, 900, 130, 64};
  c.masking = Masking::window_narrow;
  c.values = Values::sharp;
  c.scaling = Scaling::huge;
  c.q = c.v = Layout::bthd;
  c.mask_axes = 3;
  c.mask_dtype = heed::DType::i64;
  c.dropout = 0.5;
  const Case least = shrunk(c, [](const Case& one) {
    return one.dims.keys > 96 && one.dims.heads > 1 && one.masking == Masking::window_narrow &&
           one.v == Layout::bthd;
  });
  const Dims& d = least.dims;
  EXPECT_EQ(d.keys, 97);
  EXPECT_EQ(d.heads / d.kv_heads * 10 + d.kv_heads, 21);
  EXPECT_EQ(d.batch * d.queries * d.size * d.value_size, 1);
  EXPECT_EQ(least.masking, Masking::window_narrow);
  EXPECT_EQ(least.v, Layout::bthd);
  EXPECT_EQ(least.q, Layout::bhtd);
  EXPECT_EQ(least.values, Values::normal);
  EXPECT_EQ(least.scaling, Scaling::usual);
  EXPECT_EQ(least.mask_axes, 15);
  EXPECT_EQ(least.mask_dtype, heed::DType::boolean);
  EXPECT_EQ(least.dropout, 0);
}

TEST(shrink, judges_once_what_holds_and_reports_what_is_left_of_a_failure) {
  int judged = 0;
  Case c;
  c.dims.keys = 40;
  judge_and_shrink(c, [&](const Case&) { ++judged; });
  EXPECT_EQ(judged, 1);
  const auto told = failures([&] {
    judge_and_shrink(c, [&](const Case& one) {
      if (one.dims.keys > 6) ADD_FAILURE() << one.dims.keys << " keys";
    });
  });
  ASSERT_EQ(told.size(), 2U);
  EXPECT_TRUE(says(told[0], "40 keys")) << told[0];
  EXPECT_TRUE(says(told[1], "\n7 keys")) << told[1];
}

TEST(shrink, finds_the_smallest_sizes_of_a_draw) {
  const auto told = failures([] {
    for_draws(1, 50, [](Random& random, auto real) {
      const auto keys = random_call<decltype(real)>(random).dims().keys;
      if (keys > 12) ADD_FAILURE() << keys << " keys";
    });
  });
  ASSERT_EQ(told.size(), 2U);  // as drawn, and shrunk
  EXPECT_FALSE(says(told[0], "\n13 keys")) << told[0];
  EXPECT_TRUE(says(told[1], "\n13 keys")) << told[1];
  EXPECT_TRUE(says(told[1], "sizes of 13 at most")) << told[1];
  EXPECT_EQ(largest_draw(), std::numeric_limits<std::int64_t>::max());
}

/// Sets HEED_TEST_DRAWS, or removes it, and restores it.
class Drawing {
 public:
  explicit Drawing(const char* number) {
    if (const char* text = std::getenv("HEED_TEST_DRAWS")) before_ = text;
    set(number);
  }
  ~Drawing() { set(before_ ? before_->c_str() : nullptr); }
  Drawing(const Drawing&) = delete;
  Drawing& operator=(const Drawing&) = delete;

 private:
  static void set(const char* number) {
    number == nullptr ? unsetenv("HEED_TEST_DRAWS") : setenv("HEED_TEST_DRAWS", number, 1);
  }
  std::optional<std::string> before_;
};

TEST(shrink, every_type_has_draws_of_its_own) {
  std::vector<std::string> types;
  std::vector<std::uint64_t> seeds;
  const auto draw = [&](const char* told, int usual) {
    const Drawing drawing(told);
    types.clear(), seeds.clear();
    for_draws(3, usual, [&](Random& random, auto real) {
      const auto s = random_call<decltype(real)>(random, {Masking::none});
      types.push_back(std::string(heed::name_of(s.dtype)) + (by_pairs(s) ? " by pairs" : ""));
      seeds.push_back(s.seed);
    });
    std::ranges::sort(seeds);
    EXPECT_EQ(std::ranges::adjacent_find(seeds), seeds.end()) << "a draw is another one's";
    EXPECT_EQ(drawn_dtype(), heed::DType::f32);
  };
  std::vector<std::string> once{"float32", "float64", "float16", "bfloat16"};
  if (drawn_types().back().by_pairs) once.emplace_back("bfloat16 by pairs");
  draw("1", 9);
  EXPECT_EQ(types, once);
  draw(nullptr, static_cast<int>(once.size() - kFirstHalf));
  for (std::size_t n = 0; n + kFirstHalf < once.size(); ++n) {
    EXPECT_EQ(types.at(3 * n), once[0]);
    EXPECT_EQ(types.at(3 * n + 1), once[1]);
    EXPECT_EQ(types.at(3 * n + 2), once[n + kFirstHalf]);
  }
}

/// What ./dev test --full reads of this test.
std::string recorded_cases() {
  const testing::TestResult& result =
      *testing::UnitTest::GetInstance()->current_test_info()->result();
  for (int n = 0; n < result.test_property_count(); ++n)
    if (std::string(result.GetTestProperty(n).key()) == "cases")
      return result.GetTestProperty(n).value();
  return "none";
}

TEST(shrink, a_number_of_draws_that_is_none_fails_the_test) {
  for (const char* wrong : {"0", "-3", "", "many", "12x", " 12", "1.5", "99999999999"}) {
    const Drawing drawing(wrong);
    int ran = 0;
    const auto told = failures([&] { for_draws(2, 9, [&](Random&, auto) { ++ran; }); });
    ASSERT_EQ(told.size(), 1U) << wrong;
    EXPECT_TRUE(says(told[0], "expected a whole number from 1 on")) << told[0];
    EXPECT_EQ(ran, 0);
  }
  {
    const Drawing drawing("12");
    EXPECT_EQ(draws(9).count(), 12);
  }
  const Drawing drawing(nullptr);
  EXPECT_EQ(draws(9).count(), 9);
  for (auto drawn = draws(9); drawn; ++drawn) EXPECT_LT(*drawn, 9);
  EXPECT_EQ(recorded_cases(), "9");
  for (auto drawn = draws(9); drawn; ++drawn) {
    const int n = *drawn;
    if (n == 4) break;
  }
  EXPECT_EQ(recorded_cases(), "4") << "what was asked for is not what ran";
  int n = 0;
  failures([&] { for_draws(2, 9, [&](Random&, auto) { EXPECT_LT(++n, 10); }); });
  EXPECT_EQ(recorded_cases(), "3") << "of nine draws three ran to their end";
}

}  // namespace
}  // namespace heed_test

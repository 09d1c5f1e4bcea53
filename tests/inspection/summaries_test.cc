// Summaries of rows: quantiles as NumPy's default has them, rows without keys left out.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "heed/error.h"
#include "heed/inspect.h"

namespace {

using heed::view;

TEST(summarize, has_the_mean_and_linear_quantiles) {
  const float numbers[] = {4, 1, 3, 10};
  const auto all = heed::summarize(view(numbers, {4}));
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].count, 4);
  EXPECT_EQ(all[0].mean, 4.5);
  // numpy.quantile([4, 1, 3, 10], [0, .25, .5, .75, 1])
  EXPECT_EQ(all[0].quantiles, (std::array{1.0, 2.5, 3.5, 5.5, 10.0}));
}

TEST(summarize, has_one_entry_for_each_head_of_each_batch_entry) {
  const double numbers[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const auto all = heed::summarize(view(numbers, {2, 3, 2}));
  ASSERT_EQ(all.size(), 6u);
  for (std::size_t n = 0; n < 6; ++n) EXPECT_EQ(all[n].mean, 1.5 + 2.0 * static_cast<double>(n));
  EXPECT_EQ(heed::summarize(view(numbers, {3, 4}))[2].mean, 10.5);
}

TEST(summarize, leaves_out_rows_that_see_no_key) {
  const float numbers[] = {0, 5, 7};
  const std::int64_t visible[] = {0, 3, 2};
  const auto all = heed::summarize(view(numbers, {3}), view(visible, {3}));
  EXPECT_EQ(all[0].count, 2);
  EXPECT_EQ(all[0].mean, 6);
  EXPECT_EQ(all[0].quantiles[0], 5);
}

TEST(summarize, has_a_mean_where_the_sum_is_beyond_the_largest_number) {
  const double numbers[] = {1.5e308, 1.5e308, 1.5e308, 1.5e308};
  EXPECT_EQ(heed::summarize(view(numbers, {4}))[0].mean, 1.5e308);
  const double infinite[] = {1.5e308, INFINITY, -1.5e308, 0};
  EXPECT_EQ(heed::summarize(view(infinite, {4}))[0].mean, double{INFINITY});
}

TEST(summarize, of_no_rows_or_with_a_NaN_is_NaN) {
  const float numbers[] = {1, NAN, 3};
  const std::int64_t visible[] = {0, 0, 0};
  EXPECT_TRUE(std::isnan(heed::summarize(view(numbers, {3}))[0].mean));
  EXPECT_TRUE(std::isnan(heed::summarize(view(numbers, {3}))[0].quantiles[2]));
  const auto none = heed::summarize(view(numbers, {3}), view(visible, {3}));
  EXPECT_EQ(none[0].count, 0);
  EXPECT_TRUE(std::isnan(none[0].mean));
}

TEST(summarize, keeps_infinities_without_making_a_NaN_of_their_difference) {
  const float numbers[] = {-INFINITY, 2, 2, 2, -INFINITY};
  const auto all = heed::summarize(view(numbers, {5}));
  EXPECT_EQ(all[0].quantiles[0], -INFINITY);
  EXPECT_EQ(all[0].quantiles[1], -INFINITY);
  EXPECT_EQ(all[0].quantiles[2], 2);
  // Quantiles between two elements: of equal ones, and of one that is infinite.
  const float three[] = {-INFINITY, -INFINITY, 1};
  EXPECT_EQ(heed::summarize(view(three, {3}))[0].quantiles,
            (std::array{-double{INFINITY}, -double{INFINITY}, -double{INFINITY}, -double{INFINITY},
                        1.0}));
}

TEST(saturation, is_the_share_of_rows_above_the_threshold) {
  const float numbers[] = {0.995f, 0.5f, 1.0f, 0.2f, 0.985f};
  EXPECT_EQ(heed::saturation(view(numbers, {5}))[0], 0.4);
  EXPECT_EQ(heed::saturation(view(numbers, {5}), {}, 0.3)[0], 0.8);
  const std::int64_t visible[] = {1, 1, 0, 1, 1};
  EXPECT_EQ(heed::saturation(view(numbers, {5}), view(visible, {5}))[0], 0.25);
}

TEST(saturation, says_what_is_wrong_with_its_threshold) {
  const float numbers[] = {0.5f};
  for (const auto& [threshold, said] :
       {std::pair{2.0, "2"}, {-0.5, "-0.5"}, {double{NAN}, "nan"}}) {
    try {
      (void)heed::saturation(view(numbers, {1}), {}, threshold);
      ADD_FAILURE() << said;
    } catch (const heed::Error& error) {
      EXPECT_EQ(error.what(),
                "saturation: threshold is " + std::string(said) + "; expected 0 .. 1");
    }
  }
}

template <typename F>
std::string message_of(const F& f) {
  try {
    f();
  } catch (const heed::Error& error) {
    return error.what();
  }
  return "no error";
}

std::string message(const heed::ConstTensorView& numbers, const heed::ConstTensorView& visible) {
  return message_of([&] { (void)heed::summarize(numbers, visible); });
}

TEST(summarize, says_what_is_wrong_with_its_arguments) {
  const float numbers[6] = {};
  const std::int64_t visible[6] = {};
  EXPECT_EQ(message({}, {}), "summarize: numbers is absent; expected a view to read from");
  EXPECT_EQ(message(view(visible, {6}), {}),
            "summarize: numbers is int64; expected float32 or float64");
  EXPECT_EQ(message(view(numbers, {1, 1, 2, 3}), {}),
            "summarize: numbers has rank 4; expected [Tq], [B, Tq] or [B, H, Tq]");
  EXPECT_EQ(message(view(numbers, {6}), view(numbers, {6})),
            "summarize: visible_keys is float32; expected int64");
  heed::ConstTensorView endless = view(numbers, {6});
  endless.shape[0] = std::int64_t{1} << 60;
  endless.stride[0] = 0;
  EXPECT_EQ(
      message(endless, {}),
      "summarize: no memory for the numbers of 1152921504606846976 rows, 8 bytes each, and of "
      "1 heads");
  const std::string of_heads =
      ": no memory for the numbers of 0 rows, 8 bytes each, and of 1152921504606846976 heads";
  const auto without_rows = view(numbers, {std::int64_t{1} << 60, 0});
  EXPECT_EQ(message(without_rows, {}), "summarize" + of_heads);
  EXPECT_EQ(message_of([&] { (void)heed::saturation(without_rows, {}, 0.5); }),
            "saturation" + of_heads);
  EXPECT_EQ(message(view(numbers, {2, 3}), view(visible, {6})),
            "summarize: visible_keys has shape [6]; expected [2, 3], the shape of numbers");
}

}  // namespace

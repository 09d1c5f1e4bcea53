// The page: small at any size, valid whatever the tokens, and its numbers are the inspection's.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "made_inspection.h"
#include "pictures.h"
#include "report_data.h"
#include "report_lists.h"
#include "report_pack.h"

namespace heed::cli {
namespace {

constexpr std::size_t kLimit = 5'000'000;

Json data_of(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const auto from = page.find(begin) + begin.size();
  return Json::parse(page.substr(from, page.find("</script>", from) - from));
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(report, stays_below_5_megabytes) {
  EXPECT_LT(html_report(large_inspection(6, 12, 2048, 96)).size(), kLimit);
  EXPECT_LT(html_report(large_inspection(2, 2, 100'000, 96)).size(), kLimit);
  const auto side = static_cast<int>(map_side(96, 4096, 4096, 1024));
  Inspection many = large_inspection(32, 32, 4096, side);
  const std::string page = html_report(many);
  EXPECT_LT(page.size(), kLimit);
  EXPECT_EQ(data_of(page)["found"].size(), 1024U);
}

// How many remarks a head has is not bounded: heads that have no room are left out, and told.
TEST(report, stays_below_5_megabytes_with_very_many_remarks) {
  Inspection large = large_inspection(2, 2, 10, 10);
  for (HeadInspection& head : large.found)
    head.remarks.assign(800, {Severity::warning, std::string(2000, 's'), std::string(500, 't')});
  const std::string page = html_report(large);
  EXPECT_LT(page.size(), kLimit);
  EXPECT_EQ(data_of(page)["found"].size(), 2U);
  EXPECT_EQ(data_of(page)["heads_in_all"], 4);
}

TEST(report, stays_below_5_megabytes_with_the_longest_tokens_and_tiles) {
  Inspection large = large_inspection(6, 12, 4096, 96);
  large.tokens.assign(4096, std::string(5000, '<'));
  for (HeadInspection& head : large.found) {
    ExactTile tile{.first_row = 0, .first_key = 0, .weights = {128, 128, {}}};
    tile.weights.cells.assign(std::size_t{128} * 128, 0.25F);
    head.tiles.assign(8, tile);
  }
  EXPECT_LT(html_report(large).size(), kLimit);
}

// More heads, rows and keys of a row than a page has room for, with histograms as heed inspect has
// them and long texts: what is left out is said.
Inspection crowded(std::int64_t layers, std::int64_t heads, std::size_t rows, std::size_t top) {
  Inspection large = large_inspection(layers, heads, 512, 12);
  large.bin_low = -32;
  large.bin_high = 32;
  large.bins = 256;
  for (HeadInspection& head : large.found) {
    head.histogram.assign(258, 9'999'999'999);
    head.remarks.assign(3, {Severity::warning, std::string(150, 's'), std::string(150, 't')});
    RowStory story = head.stories[0];
    head.stories.clear();
    head.top.clear();
    for (std::size_t i = 0; i < rows; ++i) {
      story.row = static_cast<std::int64_t>(i);
      TopKeys keys{.row = story.row, .mass = 1};
      keys.keys.assign(top, 7);
      keys.weights.assign(top, 1.0F / static_cast<float>(top));
      head.stories.push_back(story);
      head.top.push_back(keys);
    }
  }
  return large;
}

TEST(report, stays_below_5_megabytes_with_very_many_heads) {
  const std::string page = html_report(crowded(80, 64, 1, 8));
  EXPECT_LT(page.size(), kLimit);
  const Json data = data_of(page);
  EXPECT_EQ(data["heads_in_all"], 80 * 64);
  EXPECT_EQ(data["found"].size(), 1024U);
  EXPECT_EQ(data["found"][64]["layer"], 5);  // 16 of 80 layers
  EXPECT_EQ(data["found"][65]["head"], 1);
  EXPECT_EQ(data_of(html_report(crowded(1, 1500, 1, 8)))["found"].size(), 1024U);
}

TEST(report, stays_below_5_megabytes_with_very_many_rows) {
  const std::string page = html_report(crowded(6, 12, 487, 64));
  EXPECT_LT(page.size(), kLimit);
  const Json head = data_of(page)["found"][71];
  EXPECT_EQ(head["stories_in_all"], 487);
  EXPECT_EQ(head["stories"].size(), 55U);
}

TEST(report, bins_of_very_many_heads_are_fewer_and_lose_no_score) {
  const Json data = data_of(html_report(crowded(20, 40, 0, 1)));
  EXPECT_EQ(data["bins"]["count"], 64);
  EXPECT_EQ(data["bins"]["low"], -32);
  const auto counts = data["found"][0]["histogram"].get<std::vector<std::int64_t>>();
  ASSERT_EQ(counts.size(), 66U);
  EXPECT_EQ(counts[0], 9'999'999'999);
  EXPECT_EQ(counts[1], 4 * 9'999'999'999);
}

TEST(report, a_shortened_list_says_what_it_holds_itself) {
  const Json data = data_of(html_report(crowded(20, 40, 3, 64)));
  const std::vector<float> some(3, 12 / 64.0F);  // 30,000 entries for 800 heads and 3 rows
  EXPECT_EQ(data["found"][0]["top"]["mass"], packed(some));
}

TEST(report, names_no_address_and_asks_for_nothing) {
  const std::string page =
      html_report(made_inspection(random_operands(1, 2, 8, 8), Sight::all, 96));
  EXPECT_EQ(count_of(page, "http://") + count_of(page, "https://"), 1U);  // the name of SVG
  EXPECT_EQ(count_of(page, "http://www.w3.org/2000/svg"), 1U);
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
}

TEST(report, hostile_text_stays_in_its_place) {
  Inspection made = made_inspection(random_operands(1, 2, 14, 8), Sight::causal, 96);
  const std::size_t scripts = count_of(html_report(made), "<script");
  made.tokens = hostile_tokens(14);
  made.source = made.settings = made.sentence = made.tokens[0] + made.tokens[3] + made.tokens[5];
  made.found[0].remarks = {{Severity::warning, made.source, made.tokens[13]}};
  const std::string page = html_report(made);
  EXPECT_EQ(count_of(page, "<script"), scripts);
  EXPECT_EQ(count_of(page, "</script"), scripts);
  EXPECT_EQ(count_of(page, "<img"), 0U);
  const Json data = data_of(page);
  EXPECT_EQ(data["tokens"][0], "</script><script>throw …");
  EXPECT_EQ(data["found"][0]["remarks"][0]["severity"], "warning");
}

TEST(report, numbers_are_those_of_the_inspection) {
  const Inspection made = made_inspection(random_operands(2, 3, 10, 8), Sight::causal, 96);
  const Json data = data_of(html_report(made));
  ASSERT_EQ(data["found"].size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) {
    const Json& head = data["found"][i];
    const HeadInspection& truth = made.found[i];
    EXPECT_EQ(head["entropy_share"].get<double>(), truth.entropy_share.mean);
    EXPECT_EQ(head["histogram"].get<std::vector<std::int64_t>>(), truth.histogram);
    EXPECT_EQ(head["lift_exact"], packed(truth.lift.cells));
    EXPECT_EQ(head["mean_exact"], packed(truth.mean.cells));
    for (std::size_t j = 0; j < data["numbers"].size(); ++j) {
      if (data["numbers"][j]["name"] == "jacobian_norm") {
        EXPECT_EQ(head["numbers"][j].get<double>(), truth.jacobian_norm.mean);
      }
    }
  }
}

TEST(report, numbers_that_are_none_are_null) {
  Inspection made = made_inspection(random_operands(1, 1, 5, 8), Sight::all, 96);
  made.found[0].entropy_share.mean = NAN;
  EXPECT_TRUE(data_of(html_report(made))["found"][0]["entropy_share"].is_null());
}

TEST(report, of_nothing_is_a_page) {
  EXPECT_NE(html_report(Inspection{}).find("There is no head to show."), std::string::npos);
  Inspection one;
  one.layers = one.heads = 1;
  one.found.resize(1);
  EXPECT_EQ(data_of(html_report(one))["found"].size(), 1U);
}

TEST(pack, bytes_of_lift_are_steps_of_a_tenth) {
  // 0 is hidden, 128 is even weight; the ends hold what is beyond.
  EXPECT_EQ(packed_lift({1, 3, {NAN, 0, 12.7F}}), "AID/");
  EXPECT_EQ(packed_lift({1, 3, {-HUGE_VALF, -12.7F, 99}}), "AQH/");
}

TEST(pack, bytes_of_weights_are_steps_of_a_tenth_of_their_logarithm) {
  EXPECT_EQ(packed_mean({1, 3, {0, 1, std::exp2(-12.7F)}}), "AP+A");
}

TEST(pack, numbers_are_little_endian) {
  EXPECT_EQ(packed(std::vector<float>{1.0F}), "AACAPw==");
  EXPECT_EQ(packed(std::vector<std::int64_t>{1, -1}), "AQAAAP////8=");
  EXPECT_EQ(packed(std::vector<bool>{true, false, true}), "AQAB");
}

TEST(map_side, is_what_all_heads_have_room_for) {
  EXPECT_EQ(map_side(96, 5000, 5000, 72), 96);
  EXPECT_EQ(map_side(96, 5000, 5000, 144), 68);  // 670,000 cells
  EXPECT_EQ(map_side(96, 10, 5000, 144), 96);
  EXPECT_EQ(map_side(256, 0, 0, 144), 256);
  EXPECT_EQ(map_side(96, 5000, 5000, 100'000), map_side(96, 5000, 5000, 1024));
}

/// What is beyond the last distance stays apart from the others.
TEST(distances, keep_their_ends_and_their_mass) {
  for (const int end : {3, 8, 9, 60, 183, 4096}) {
    std::vector<float> mass(static_cast<std::size_t>(2 * end + 1), 1);
    mass.front() = 1000;
    mass.back() = 2000;
    for (const int most : {1, 17, 39, 128, 40'000}) {
      const Distances pooled = distances_of(mass, most);
      EXPECT_LE(pooled.mass.size(), static_cast<std::size_t>(std::max(most, 17)));
      EXPECT_EQ(pooled.mass.front(), 1000);
      EXPECT_EQ(pooled.mass.back(), 2000);
      EXPECT_EQ(pooled.end, end);
      const std::size_t zero = pooled.mass.size() / 2;
      for (std::size_t i = 1; i <= zero; ++i) EXPECT_GT(pooled.mass[i], 0) << end << " " << most;
      EXPECT_EQ(pooled.mass[zero], static_cast<float>(pooled.step));
      EXPECT_EQ(std::accumulate(pooled.mass.begin(), pooled.mass.end(), 0.0F),
                static_cast<float>(3000 + 2 * end - 1));
    }
  }
}

}  // namespace
}  // namespace heed::cli

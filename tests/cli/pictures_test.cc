// The files of an inspection: what is there, that numbers beside a picture are those it draws, and
// that no input breaks them.
#include "pictures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <stdexcept>

#include "made_inspection.h"
#include "picture_parts.h"
#include "poster.h"

namespace heed::cli {
namespace {

std::map<std::string, std::string> files_of(const std::vector<Picture>& pictures) {
  std::map<std::string, std::string> files;
  for (const auto& [name, bytes] : pictures) {
    EXPECT_TRUE(files.emplace(name, bytes).second) << name << " twice";
  }
  return files;
}

std::vector<std::vector<std::string>> cells_of(const std::string& csv) {
  std::vector<std::vector<std::string>> lines;
  std::istringstream all(csv);
  for (std::string line; std::getline(all, line);) {
    std::istringstream cells(line);
    auto& one = lines.emplace_back();
    for (std::string cell; std::getline(cells, cell, ',');) one.push_back(cell);
  }
  return lines;
}

// Every opened element is closed, in order; no character that XML forbids.
void expect_well_formed(const std::string& name, const std::string& xml_text) {
  std::vector<std::string> open;
  for (std::size_t at = xml_text.find('<'); at != std::string::npos;
       at = xml_text.find('<', at + 1)) {
    const std::size_t end = xml_text.find('>', at);
    ASSERT_NE(end, std::string::npos) << name;
    const std::string tag = xml_text.substr(at + 1, end - at - 1);
    ASSERT_FALSE(tag.empty()) << name;
    if (tag.back() == '/') continue;
    if (tag.front() == '/') {
      ASSERT_FALSE(open.empty()) << name;
      EXPECT_EQ(tag.substr(1), open.back()) << name;
      open.pop_back();
    } else {
      open.push_back(tag.substr(0, tag.find_first_of(" \n")));
    }
  }
  EXPECT_TRUE(open.empty()) << name;
  for (const char c : xml_text) {
    const auto byte = static_cast<unsigned char>(c);
    ASSERT_TRUE(byte >= 0x20 || c == '\n' || c == '\t') << name;
  }
}

TEST(pictures, each_has_its_numbers_beside_it) {
  const Inspection made = made_inspection(random_operands(2, 4, 12, 8), Sight::causal, 96);
  const auto files = files_of(pictures_of(made));
  for (const char* name : {"poster", "entropy", "saturation", "histogram", "distance", "mask"}) {
    EXPECT_TRUE(files.count(std::string(name) + ".svg")) << name;
  }
  EXPECT_GE(interesting_heads(made).size(), 4U);
  for (const auto& [name, bytes] : files) {
    EXPECT_FALSE(bytes.empty());
    EXPECT_TRUE(files.count(name.substr(0, name.find('.')) + ".csv")) << name;
    if (name.ends_with(".svg")) expect_well_formed(name, bytes);
    if (name.ends_with(".svg")) {
      EXPECT_EQ(bytes.find("href=\"http"), std::string::npos) << name;
    }
  }
}

TEST(pictures, few_heads_are_all_drawn_alone) {
  const Inspection made = made_inspection(random_operands(1, 3, 6, 4), Sight::all, 96);
  EXPECT_EQ(interesting_heads(made).size(), 3U);
  const auto files = files_of(pictures_of(made));
  for (const char* name : {"head_l0_h0.svg", "head_l0_h1.png", "head_l0_h2.csv", "arcs_l0_h1.svg",
                           "story_l0_h2_row3.svg"}) {
    EXPECT_TRUE(files.count(name)) << name;
  }
}

TEST(pictures, numbers_of_a_map_are_those_of_the_inspection) {
  const Inspection made = made_inspection(random_operands(1, 2, 9, 8), Sight::causal, 96);
  const auto files = files_of(pictures_of(made));
  const auto lines = cells_of(files.at("head_l0_h1.csv"));
  const HeadInspection& head = made.at(0, 1);
  ASSERT_EQ(lines.size(), 1 + head.lift.cells.size());
  for (std::size_t i = 0; i < head.lift.cells.size(); ++i) {
    const auto& line = lines[i + 1];
    const float lift = head.lift.cells[i];
    if (std::isnan(lift)) {
      EXPECT_EQ(line[6], "");
    } else {
      EXPECT_EQ(std::stof(line[6]), lift);
    }
    EXPECT_EQ(std::stof(line[7]), head.mean.cells[i]);
  }
  const auto poster = cells_of(files.at("poster.csv"));
  ASSERT_EQ(poster.size(), 1U + 2 * 9);
  EXPECT_EQ(poster[0].size(), 7U + 9);
  EXPECT_EQ(std::stof(poster[10][7]), head.lift.at(0, 0));
}

TEST(pictures, heads_that_were_asked_for_are_the_interesting_ones) {
  Inspection made = made_inspection(random_operands(2, 4, 6, 8), Sight::all, 96);
  made.heads_asked = {{1, 3}, {0, 2}};
  const auto chosen = interesting_heads(made);
  ASSERT_EQ(chosen.size(), 2U);
  EXPECT_EQ(chosen[0].layer, 1);
  EXPECT_EQ(chosen[0].head, 3);
}

TEST(reach_of_scores, leaves_out_a_thousandth_and_never_less_than_n01) {
  Inspection all;
  all.bin_low = -32;
  all.bin_high = 32;
  all.bins = 256;
  std::vector<std::int64_t> counts(258);
  const auto at = [&](double low) -> std::int64_t& {  // the bin that begins there
    return counts[static_cast<std::size_t>((low + 32) * 4) + 1];
  };
  const auto ends = [&] {
    const ScoreReach reach = reach_of_scores(all, counts);
    return std::pair(reach.low, reach.high);
  };
  EXPECT_EQ(ends(), std::pair(-4.0, 4.0));
  at(0) = 100'000;
  at(20) = 50;
  EXPECT_EQ(ends(), std::pair(-4.0, 4.0));
  at(20) = 51;
  EXPECT_EQ(ends(), std::pair(-4.0, 20.25));
  at(-9.5) = 60;
  EXPECT_EQ(ends(), std::pair(-9.5, 20.25));
  counts.front() = counts.back() = 70;
  EXPECT_EQ(ends(), std::pair(-32.0, 32.0));
}

// Each cell of the poster's image is the colour of its number.
TEST(pictures, colours_of_a_map_are_those_of_its_numbers) {
  const Inspection made = made_inspection(random_operands(1, 2, 9, 8), Sight::causal, 96);
  const Scale scale = lift_scale(made);
  const CellMap& lift = made.at(0, 0).lift;
  const Image image = image_of(lift, scale);
  for (int r = 0; r < 9; ++r) {
    for (int c = 0; c < 9; ++c) {
      EXPECT_EQ(image.at(c, r), scale.index(static_cast<double>(lift.at(r, c))));
      EXPECT_EQ(image.at(c, r) == 0, c > r);
    }
  }
}

// The maps of a poster, told by one colour each, as one reads them; empty ones are left out.
std::vector<int> maps_as_read(const Image& image) {
  std::vector<int> read;
  for (int y = 0; y < image.height; ++y) {
    if (y > 0 && image.at(0, y - 1) == image.at(0, y))
      continue;  // the line of maps goes on, or the gap
    for (int x = 0; x < image.width; ++x) {
      if (image.at(x, y) == 0 || (x > 0 && image.at(x - 1, y) == image.at(x, y))) continue;
      read.push_back(image.at(x, y));
    }
  }
  return read;
}

int count_of(const std::string& text, const std::string& words) {
  int count = 0;
  for (auto at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++count;
  return count;
}

TEST(pictures, a_poster_of_very_many_heads_has_several_lines_for_each_layer) {
  const Scale scale{.low = 0, .high = 255};
  for (const int heads : {1, 7, 32, 33, 70, 200}) {
    Poster poster(2, heads, 8, 8);
    std::vector<PosterLabel> labels;
    std::vector<int> expected;
    for (int layer = 0; layer < 2; ++layer) {
      for (int head = 0; head < heads; ++head) {
        const int value = 40 + head + layer;  // neighbours differ, and lines begin differently
        poster.put(
            layer, head,
            {.rows = 8, .columns = 8, .cells = std::vector<float>(64, static_cast<float>(value))},
            scale);
        expected.push_back(scale.index(value));
        labels.push_back({.text = "label", .brief = "label"});
      }
    }
    EXPECT_EQ(maps_as_read(poster.raster()), expected) << heads;
    const std::string svg =
        poster.document({"title", "reads", "subject", "colours"}, scale, labels);
    expect_well_formed("poster", svg);
    const std::string from = " width=\"";
    EXPECT_LE(std::stod(svg.substr(svg.find(from) + from.size())), 1400) << heads;
    // Lines begin with other heads, so each has their names above it; else the first has all.
    for (int head = 2; head < heads; ++head) {
      const std::string name = std::to_string(head) + "<";
      EXPECT_EQ(count_of(svg, ">" + name) + count_of(svg, ">head " + name), heads > 32 ? 2 : 1)
          << head;
    }
  }
}

// The bars of a story say their numbers, and the file beside it the same.
TEST(pictures, titles_of_a_story_are_in_its_csv) {
  const Inspection made = made_inspection(random_operands(1, 1, 6, 8), Sight::causal, 96);
  const auto files = files_of(pictures_of(made));
  const std::string& svg = files.at("story_l0_h0_row5.svg");
  const auto lines = cells_of(files.at("story_l0_h0_row5.csv"));
  ASSERT_EQ(lines.size(), 7U);
  for (std::size_t i = 1; i < lines.size(); ++i) {
    EXPECT_NE(svg.find(": " + lines[i][6] + "<"), std::string::npos) << lines[i][6];
  }
}

TEST(pictures, hostile_tokens_stay_text) {
  Inspection made = made_inspection(random_operands(1, 2, 14, 8), Sight::causal, 96);
  made.tokens = hostile_tokens(14);
  made.source = made.settings = made.sentence = made.tokens[0] + made.tokens[3] + made.tokens[5];
  made.found[0].remarks = {{Severity::warning, made.source, made.tokens[2]}};
  for (const auto& [name, bytes] : pictures_of(made)) {
    if (!name.ends_with(".svg")) continue;
    expect_well_formed(name, bytes);
    EXPECT_EQ(bytes.find("<script"), std::string::npos) << name;
    EXPECT_EQ(bytes.find("<img"), std::string::npos) << name;
    EXPECT_EQ(bytes.find("\xff"), std::string::npos) << name;
  }
}

TEST(pictures, numbers_that_are_none_are_drawn_as_hidden) {
  const Inspection made = broken_inspection();
  for (const auto& [name, bytes] : pictures_of(made)) {
    if (!name.ends_with(".svg")) continue;
    expect_well_formed(name, bytes);
    for (const char* bad : {"\"nan\"", "\"-nan\"", "\"inf\"", "\"-inf\""}) {
      EXPECT_EQ(bytes.find(bad), std::string::npos) << name << bad;
    }
  }
}

TEST(pictures, nothing_is_drawn_of_nothing) {
  std::vector<Inspection> inspections(3);
  inspections[1].layers = inspections[1].heads = 1;
  inspections[1].found.resize(1);  // no query, no key
  inspections[2].tokens = {"left", "over"};
  for (const Inspection& one : inspections) {
    for (const auto& [name, bytes] : pictures_of(one)) {
      if (name.ends_with(".svg")) expect_well_formed(name, bytes);
    }
  }
}

TEST(difference, of_a_run_with_itself_is_zero) {
  const Inspection made = made_inspection(random_operands(1, 2, 6, 8), Sight::causal, 96);
  const auto files = files_of(difference_of(made, made));
  const auto lines = cells_of(files.at("difference.csv"));
  ASSERT_GT(lines.size(), 1U);
  for (std::size_t i = 1; i < lines.size(); ++i) {
    ASSERT_GT(lines[i].size(), 6U);
    for (std::size_t j = 6; j < lines[i].size(); ++j) {
      EXPECT_TRUE(lines[i][j].empty() || std::stod(lines[i][j]) == 0);
    }
  }
  EXPECT_TRUE(files.count("difference_numbers.csv"));
  expect_well_formed("difference.svg", files.at("difference.svg"));
}

TEST(difference, is_the_second_less_the_first) {
  const Inspection first = made_inspection(random_operands(1, 2, 6, 8), Sight::all, 96);
  Inspection second = first;
  second.found[1].lift.cells[7] += 1.5F;
  second.found[1].saturated += 0.25;
  const auto files = files_of(difference_of(first, second));
  const auto lines = cells_of(files.at("difference.csv"));
  EXPECT_NEAR(std::stod(lines[1 + 6 + 1][6 + 1]), 1.5, 1e-6);  // head 1, row 1, column 1
  EXPECT_NE(files.at("difference_numbers.csv").find("0,1,saturated,"), std::string::npos);
}

// From 1e-4 of even weight to 1e-9 nothing changed that matters: it neither sets the ends of the
// colours nor is it drawn.
TEST(difference, leaves_out_what_has_next_to_no_weight) {
  Inspection first = made_inspection(random_operands(1, 2, 6, 8), Sight::all, 96);
  first.found[0].lift.cells.assign(36, 0);
  first.found[1].lift = first.found[0].lift;
  Inspection second = first;
  first.found[1].lift.cells[7] = -13;
  second.found[1].lift.cells[7] = -30;
  first.found[1].lift.cells[8] = -HUGE_VALF;
  second.found[1].lift.cells[8] = -2;
  for (std::size_t i = 12; i < 24; ++i) second.found[1].lift.cells[i] = 0.5;
  const auto files = files_of(difference_of(first, second));
  const auto lines = cells_of(files.at("difference.csv"));
  EXPECT_EQ(std::stod(lines[1 + 6 + 1][6 + 1]), 0);
  EXPECT_EQ(std::stod(lines[1 + 6 + 1][6 + 2]), 1);
  EXPECT_EQ(std::stod(lines[1 + 6 + 2][6 + 0]), 0.5);
}

// One cell among a thousand is no measure for the others.
TEST(difference, its_colours_end_where_nearly_all_changes_lie) {
  Inspection first = made_inspection(random_operands(1, 1, 40, 8), Sight::all, 96);
  first.found[0].lift.cells.assign(1600, 0);
  Inspection second = first;
  second.found[0].lift.cells.assign(1600, 0.25);
  second.found[0].lift.cells[3] = 5;
  const auto files = files_of(difference_of(first, second));
  EXPECT_NE(files.at("difference.svg").find(">+0.25<"), std::string::npos);
}

TEST(difference, of_unlike_runs_is_refused) {
  const Inspection first = made_inspection(random_operands(1, 2, 6, 8), Sight::all, 96);
  const Inspection second = made_inspection(random_operands(1, 2, 7, 8), Sight::all, 96);
  EXPECT_THROW(difference_of(first, second), std::invalid_argument);
}

TEST(pooled_lift, is_the_logarithm_of_the_mean) {
  const CellMap map{2, 4, {0, 1, NAN, NAN, 2, 0, NAN, 3}};
  const CellMap pooled = pooled_lift(map, 1, 2);
  EXPECT_FLOAT_EQ(pooled.at(0, 0), std::log2((1 + 2 + 4 + 1) / 4.0F));
  EXPECT_FLOAT_EQ(pooled.at(0, 1), 3);
  EXPECT_EQ(pooled_lift(map, 9, 9).cells.size(), 8U);
}

TEST(reach, covers_everything_once_as_maps_do) {
  for (const std::int64_t count : {7, 96, 97, 300, 2048}) {
    const int cells = static_cast<int>(std::min<std::int64_t>(count, 96));
    for (std::int64_t i = 0; i < count; ++i) {
      const int cell = static_cast<int>(i * cells / count);
      const Reach reach = reach_of(cell, cells, count);
      EXPECT_TRUE(reach.first <= i && i < reach.end) << i << " of " << count;
    }
  }
}

TEST(shortest, is_the_same_float_in_few_digits) {
  EXPECT_EQ(shortest(0.1F), 0.1);
  EXPECT_EQ(static_cast<float>(shortest(0.3333333F)), 0.3333333F);
  EXPECT_TRUE(std::isnan(shortest(NAN)));
}

}  // namespace
}  // namespace heed::cli

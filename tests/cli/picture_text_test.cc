// What terminals get: width, colours only where they are understood, hostile text made harmless.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>

#include "made_inspection.h"
#include "pictures.h"
#include "plain_text.h"

namespace heed::cli {
namespace {

Terminal terminal(int width, ColourDepth depth, bool unicode) {
  return {.is_terminal = true,
          .width = width,
          .colour = depth != ColourDepth::none,
          .unicode = unicode,
          .depth = depth};
}

// Columns of each line: characters that are not within an escape sequence.
std::vector<std::size_t> widths_of(const std::string& text) {
  std::vector<std::size_t> widths;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::string plain;
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (line[i] == '\033') {
        i = line.find('m', i);
      } else {
        plain += line[i];
      }
    }
    widths.push_back(length_of(plain));
  }
  return widths;
}

TEST(poster_text, is_no_wider_than_the_terminal) {
  const Inspection made = made_inspection(random_operands(2, 12, 20, 8), Sight::causal, 96);
  for (const int width : {40, 72, 80, 120, 200}) {
    for (const ColourDepth depth : {ColourDepth::none, ColourDepth::indexed, ColourDepth::full}) {
      for (const bool unicode : {false, true}) {
        const auto widths = widths_of(poster_text(made, terminal(width, depth, unicode)));
        const auto most = *std::max_element(widths.begin(), widths.end());
        EXPECT_LE(most, static_cast<std::size_t>(std::max(width, 70))) << width;
      }
    }
  }
}

TEST(poster_text, without_colours_is_plain_ascii) {
  const Inspection made = made_inspection(random_operands(1, 3, 10, 8), Sight::all, 96);
  const std::string text = poster_text(made, terminal(80, ColourDepth::none, false));
  EXPECT_TRUE(std::all_of(text.begin(), text.end(),
                          [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
  for (const char* name : {"L0", "h0", "h1", "h2"}) EXPECT_NE(text.find(name), std::string::npos);
}

TEST(poster_text, colours_are_those_of_the_terminal) {
  const Inspection made = made_inspection(random_operands(1, 2, 10, 8), Sight::all, 96);
  const std::string full = poster_text(made, terminal(80, ColourDepth::full, true));
  EXPECT_NE(full.find(";2;"), std::string::npos);
  EXPECT_NE(full.find("▀"), std::string::npos);
  const std::string indexed = poster_text(made, terminal(80, ColourDepth::indexed, true));
  EXPECT_EQ(indexed.find(";2;"), std::string::npos);
  EXPECT_NE(indexed.find(";5;"), std::string::npos);
  EXPECT_EQ(poster_text(made, terminal(80, ColourDepth::indexed, false)).find("▀"),
            std::string::npos);
}

TEST(poster_text, hidden_cells_are_blank) {
  Inspection made = made_inspection(random_operands(1, 1, 8, 8), Sight::all, 96);
  for (float& cell : made.found[0].lift.cells) cell = NAN;
  const std::string text = poster_text(made, terminal(80, ColourDepth::none, false));
  const auto maps = text.substr(text.find("\n\n") + 2);
  const auto share = maps.find("0.");  // the entropy share stands below the map
  ASSERT_NE(share, std::string::npos);
  EXPECT_EQ(maps.substr(0, share).find_first_of(".,:-=+*#%@"), std::string::npos) << text;
}

TEST(poster_text, of_nothing_is_nothing) {
  EXPECT_EQ(poster_text(Inspection{}, terminal(80, ColourDepth::full, true)), "");
}

TEST(arcs_text, lists_keys_and_the_mass_covered) {
  Inspection made = made_inspection(random_operands(1, 1, 12, 8), Sight::all, 96);
  made.tokens = hostile_tokens(12);
  const std::string text = arcs_text(made, {0, 0}, 3, terminal(80, ColourDepth::none, false));
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10);
  EXPECT_NE(text.find("together"), std::string::npos);
  EXPECT_EQ(arcs_text(made, {0, 0}, 99, terminal(80, ColourDepth::none, false)), "");
}

/// Variables that say what a terminal can do, for as long as this lives; all others are unset.
class Variables {
 public:
  explicit Variables(const std::map<std::string, std::string>& set) {
    for (const char* name : {"TERM", "COLORTERM", "NO_COLOR", "COLORFGBG"}) {
      const char* now = std::getenv(name);
      if (now != nullptr) before_[name] = now;
      unsetenv(name);
    }
    for (const auto& [name, value] : set) setenv(name.c_str(), value.c_str(), 1);
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;
  ~Variables() {
    for (const char* name : {"TERM", "COLORTERM", "NO_COLOR", "COLORFGBG"}) unsetenv(name);
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::map<std::string, std::string> before_;
};

TEST(terminal, colours_follow_the_environment) {
  const int master = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(master, 0);
  ASSERT_EQ(grantpt(master), 0);
  ASSERT_EQ(unlockpt(master), 0);
  const int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
  ASSERT_GE(slave, 0);
  const auto depth = [slave](const std::map<std::string, std::string>& set) {
    const Variables variables(set);
    return terminal_of(slave).depth;
  };
  EXPECT_EQ(depth({{"TERM", "xterm"}}), ColourDepth::none);
  EXPECT_EQ(depth({{"TERM", "xterm-256color"}}), ColourDepth::indexed);
  EXPECT_EQ(depth({{"TERM", "xterm-direct"}}), ColourDepth::full);
  EXPECT_EQ(depth({{"TERM", "xterm-256color"}, {"COLORTERM", "truecolor"}}), ColourDepth::full);
  EXPECT_EQ(depth({{"TERM", "xterm-256color"}, {"NO_COLOR", "1"}}), ColourDepth::none);
  EXPECT_EQ(depth({{"TERM", "xterm-256color"}, {"NO_COLOR", ""}}), ColourDepth::indexed);
  EXPECT_EQ(depth({{"TERM", "dumb"}, {"COLORTERM", "truecolor"}}), ColourDepth::none);
  EXPECT_EQ(depth({}), ColourDepth::none);
  {
    const Variables variables({{"TERM", "rxvt"}, {"COLORFGBG", "0;15"}});
    EXPECT_EQ(terminal_of(slave).ground, Ground::light);
  }
  {
    const Variables variables({{"TERM", "rxvt"}, {"COLORFGBG", "15;0"}});
    EXPECT_EQ(terminal_of(slave).ground, Ground::dark);
  }
  close(slave);
  close(master);
}

TEST(terminal, what_is_none_has_no_colours) {
  const Variables variables({{"TERM", "xterm-256color"}, {"COLORTERM", "truecolor"}});
  const int file = open("/dev/null", O_WRONLY);
  EXPECT_EQ(terminal_of(file).depth, ColourDepth::none);
  close(file);
}

TEST(plain_text, escapes_what_could_act_on_a_terminal) {
  EXPECT_EQ(plain_text("a\nb\t\x1b[31m\x7f"), "a\\nb\\t\\x1b[31m\\x7f");
  EXPECT_EQ(plain_text("\xc2\x9b"), "\\u009b");      // C1: a control sequence begins
  EXPECT_EQ(plain_text("\xe2\x80\xae"), "\\u202e");  // turns the direction of writing
  EXPECT_EQ(plain_text(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(plain_text("caf\xc3\xa9 \xf0\x9f\x90\xb6"), "caf\xc3\xa9 \xf0\x9f\x90\xb6");
}

TEST(plain_text, hides_nothing) {
  EXPECT_EQ(plain_text("\xd8\x9c\xe2\x80\x8b"), "\\u061c\\u200b");
  EXPECT_EQ(plain_text("\xf3\xa0\x81\xa1"), "\\U000e0061");
  EXPECT_EQ(plain_text("\xc2\xad\xe3\x85\xa4"), "\\u00ad\\u3164");  // soft hyphen, filler
  EXPECT_EQ(plain_text("\xe2\x80\x8d"), "\xe2\x80\x8d");            // emoji are joined
  EXPECT_EQ(plain_text("\xef\xb8\x8f"), "\xef\xb8\x8f");            // and coloured
  EXPECT_EQ(plain_text("\xf3\xa0\x84\x80"), "\xf3\xa0\x84\x80");    // a variant of an ideograph
  EXPECT_EQ(one_line("\xef\xb8\x8f\xf3\xa0\x84\x80"), "\\ufe0f\\U000e0100");
}

TEST(plain_text, lines_and_names_show_every_byte) {
  EXPECT_EQ(one_line("\xff\xe2\x80\xae\n\xc3\xa9\xef\xbf\xbd\xe2\x80\x8d"),
            "\\xff\\u202e\\n\xc3\xa9\xef\xbf\xbd\\u200d");
  EXPECT_EQ(one_line(one_line("\xff\n")), "\\xff\\n");
  EXPECT_EQ(name_text(std::string(80, 'a')), std::string(80, 'a'));
  const std::string almost_too_long(79, 'a');
  EXPECT_EQ(name_text(almost_too_long + "\nb"), almost_too_long + "\\n...");
}

TEST(plain_text, is_valid_utf8_whatever_it_was) {
  const std::string mark = "\xef\xbf\xbd";
  EXPECT_EQ(plain_text("\xff"), mark);
  EXPECT_EQ(plain_text("\xc3"), mark);                        // cut short
  EXPECT_EQ(plain_text("\xc0\xaf"), mark + mark);             // overlong
  EXPECT_EQ(plain_text("\xed\xa0\x80"), mark + mark + mark);  // a surrogate
}

TEST(plain_text, keeps_so_many_characters) {
  EXPECT_EQ(plain_text("abcdef", 6), "abcdef");
  EXPECT_EQ(plain_text("abcdefg", 6), "abcde…");
  EXPECT_EQ(plain_text("\xc3\xa9\xc3\xa9\xc3\xa9", 2), "\xc3\xa9…");
  EXPECT_EQ(plain_text("", 3), "");
}

}  // namespace
}  // namespace heed::cli

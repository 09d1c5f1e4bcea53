// Large inspections, and tokens that are up to no good.
#include <algorithm>
#include <cmath>

#include "made_inspection.h"

namespace heed::cli {

Inspection large_inspection(std::int64_t layers, std::int64_t heads, std::int64_t tokens,
                            int cells) {
  Inspection one = made_inspection(random_operands(1, 1, std::min<std::int64_t>(tokens, 256), 8),
                                   Sight::all, cells);
  HeadInspection pattern = std::move(one.found.front());
  one.found.clear();
  one.layers = layers;
  one.heads = heads;
  one.queries = one.keys = tokens;
  for (RowStory& story : pattern.stories) {
    const auto count = static_cast<std::size_t>(tokens);
    for (auto* values : {&story.products, &story.scores, &story.weights}) {
      const std::vector<float> few = *values;
      values->resize(count);
      for (std::size_t i = 0; i < count; ++i) (*values)[i] = few[i % few.size()];
    }
    story.visible.assign(count, true);
  }
  const std::vector<TopKeys> few = pattern.top;
  for (std::int64_t row = static_cast<std::int64_t>(few.size()); row < tokens; ++row) {
    TopKeys next = few[static_cast<std::size_t>(row) % few.size()];
    next.row = row;
    pattern.top.push_back(std::move(next));
  }
  for (std::int64_t at = 0; at < layers * heads; ++at) {
    pattern.layer = at / heads;
    pattern.head = at % heads;
    // Numbers that no compression makes small.
    for (float& cell : pattern.lift.cells) cell = std::fmod(cell * 1.37F + 0.61F, 5.0F);
    one.found.push_back(pattern);
  }
  for (std::int64_t i = 0; i < tokens; ++i)
    one.tokens.push_back(std::string("token").append(std::to_string(i)));
  return one;
}

Inspection broken_inspection() {
  Inspection made = made_inspection(random_operands(1, 3, 7, 8), Sight::all, 96);
  HeadInspection& head = made.found[0];
  for (auto* values : {&head.lift.cells, &head.mean.cells, &head.row_entropy_share,
                       &head.row_max_weight, &head.column_mass, &head.distance_mass}) {
    std::fill(values->begin(), values->end(), NAN);
  }
  for (RowStory& story : head.stories) {
    for (auto* values : {&story.products, &story.scores, &story.weights}) {
      std::fill(values->begin(), values->end(), NAN);
    }
  }
  for (TopKeys& top : head.top) top = {.row = top.row, .mass = NAN};
  head.entropy_share.mean = head.saturated = head.sink_share = NAN;
  made.found[1].lift.cells[3] = -HUGE_VALF;
  made.found[1].max_score.mean = HUGE_VAL;
  made.found[1].stories[0].products[2] = HUGE_VALF;
  made.found[2] = {.layer = 0, .head = 2};
  return made;
}

std::vector<std::string> hostile_tokens(std::size_t count) {
  const std::vector<std::string> some{"</script><script>throw 1</script>",
                                      "<img src=x onerror=alert(1)>",
                                      "\"quoted\" and 'single'",
                                      "a\nb\tc\r\x1b[31mred\x1b[0m",
                                      std::string("nul\0byte", 8),
                                      "\xff\xfe broken \xc3",
                                      "\xe2\x80\xae"
                                      "turned",
                                      "]]>&amp;&lt;",
                                      "\xe2\x80\xa8line\xe2\x80\xa9",
                                      "caf\xc3\xa9 \xf0\x9f\x90\xb6",
                                      "${x}`\\",
                                      std::string(5000, 'w'),
                                      "",
                                      "<!--"};
  std::vector<std::string> tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(some[i % some.size()]);
  return tokens;
}

}  // namespace heed::cli

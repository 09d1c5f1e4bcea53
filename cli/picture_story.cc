// The story of a row: from products to scores, what the mask leaves of them, and weights.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "picture_parts.h"
#include "plain_text.h"

namespace heed::cli {
namespace {

/// More are not drawn as files, but for some of them, evenly: the page has them all.
constexpr std::size_t kMostStories = 5;
constexpr std::size_t kMostAsked = 64;

constexpr double kLeft = 64;
constexpr double kTop = 118;
constexpr double kPanel = 104;  // from panel to panel
constexpr double kHeight = 66;  // of a plot
constexpr std::size_t kMostBars = 256;
constexpr std::size_t kMostNames = 64;

struct Step {
  std::string title;
  const char* style;
  std::vector<float> values;  // NaN: hidden or not known
};

// What is missing from 1 went to a sink; a row that sees no key, or no score but -infinity, has
// none.
std::string weights_title(const RowStory& story) {
  double sum = 0;
  for (const float weight : story.weights) sum += static_cast<double>(weight);
  if (std::isnan(sum)) return "weights: softmax, NaN";
  bool scored = false;
  for (std::size_t i = 0; i < std::min(story.scores.size(), story.visible.size()); ++i) {
    scored = scored || (story.visible[i] && story.scores[i] > -INFINITY);
  }
  const std::string text = format("weights: softmax, they add up to %.3g", sum);
  return scored && sum < 0.9995 ? text + ": a sink has the rest" : text;
}

std::vector<Step> steps_of(const RowStory& story) {
  std::vector<float> masked = story.scores;
  for (std::size_t i = 0; i < std::min(masked.size(), story.visible.size()); ++i) {
    if (!story.visible[i]) masked[i] = NAN;
  }
  return {{"q . k, the products", "4", story.products},
          {"scores: scaled, with all options but the mask", "2", story.scores},
          {"what the mask leaves", "2", masked},
          {weights_title(story), "0", story.weights}};
}

// Of `count` stories, those that are drawn.
std::vector<std::size_t> drawn_stories(const Inspection& inspection, std::size_t count) {
  const std::size_t most = inspection.rows_asked.empty() ? kMostStories : kMostAsked;
  const std::size_t drawn = std::min(count, most);
  std::vector<std::size_t> some;
  for (std::size_t i = 0; i < drawn; ++i) some.push_back((2 * i + 1) * count / (2 * drawn));
  return some;
}

struct Ends {
  double low = 0, high = 0;  // 0 is always within
};

Ends ends_of(const std::vector<float>& values) {
  Ends ends;
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    ends.low = std::min(ends.low, static_cast<double>(value));
    ends.high = std::max(ends.high, static_cast<double>(value));
  }
  if (ends.low == ends.high) ends.high = 1;
  return ends;
}

// A bar for each key; of very many keys, one for each pixel from their lowest to their highest.
void draw_step(Svg& svg, const Step& step, const Inspection& inspection, const Box& box) {
  const Ends ends = ends_of(step.values);
  const auto y_of = [&](double value) {
    return box.y + box.height * (ends.high - value) / (ends.high - ends.low);
  };
  svg.text(box.x, box.y - 8, "panel", Anchor::start, step.title);
  svg.text(box.x - 6, box.y + 8, "quiet", Anchor::end, format("%.3g", ends.high));
  if (ends.low < 0)
    svg.text(box.x - 6, box.y + box.height, "quiet", Anchor::end, format("%.3g", ends.low));
  const std::size_t count = step.values.size();
  const std::size_t bars = std::min(count, kMostBars);
  const double width = box.width / static_cast<double>(std::max<std::size_t>(bars, 1));
  for (std::size_t bar = 0; bar < bars; ++bar) {
    const std::size_t first = bar * count / bars;
    const std::size_t end = (bar + 1) * count / bars;
    std::vector<float> inside;
    for (std::size_t i = first; i < end; ++i) {
      if (std::isfinite(step.values[i])) inside.push_back(step.values[i]);
    }
    const double x = box.x + static_cast<double>(bar) * width;
    if (inside.empty()) {
      svg.hatched(x, box.y, width, box.height);
      continue;
    }
    const auto [least, most] = std::minmax_element(inside.begin(), inside.end());
    const double top = y_of(std::max(static_cast<double>(*most), 0.0));
    const double bottom = y_of(std::min(static_cast<double>(*least), 0.0));
    std::string title = name_of({static_cast<std::int64_t>(first), static_cast<std::int64_t>(end)});
    if (end - first == 1) {
      title.append(1, ' ').append(token_of(inspection, static_cast<std::int64_t>(first), 24));
      title += ": " + Json(shortest(step.values[first])).dump();
    } else {
      title += format(": %.4g .. %.4g", static_cast<double>(*least), static_cast<double>(*most));
    }
    svg.rectangle(x + 0.1 * width, top, 0.8 * width, std::max(bottom - top, 0.4),
                  std::string("f") + step.style, 1, title);
  }
  svg.line(box.x, y_of(0), box.x + box.width, y_of(0), "axis");
}

std::string csv_of_story(const Inspection& inspection, const RowStory& story) {
  std::string csv = "query,key,token,product,score,visible,weight\n";
  const auto number = [](const std::vector<float>& values, std::size_t i) -> Json {
    return i < values.size() ? Json(shortest(values[i])) : Json();
  };
  for (std::size_t i = 0; i < story.weights.size(); ++i) {
    const auto key = static_cast<std::int64_t>(i);
    csv += csv_line({story.row, key, csv_text(token_of(inspection, key, kWhole)),
                     number(story.products, i), number(story.scores, i),
                     i < story.visible.size() && story.visible[i], number(story.weights, i)});
  }
  return csv;
}

}  // namespace

void add_stories(std::vector<Picture>& pictures, const Inspection& inspection,
                 const ChosenHead& chosen) {
  const HeadInspection& head = inspection.at(chosen.layer, chosen.head);
  for (const std::size_t at : drawn_stories(inspection, head.stories.size())) {
    const RowStory& story = head.stories[at];
    const std::size_t keys = story.weights.size();
    const double width = std::clamp(static_cast<double>(keys) * 22, 420.0, 860.0);
    const auto steps = steps_of(story);
    Svg svg;
    double y = kTop;
    for (const Step& step : steps) {
      draw_step(svg, step, inspection, {kLeft, y, width, kHeight});
      y += kPanel;
    }
    y -= kPanel - kHeight;
    if (keys <= kMostNames) {
      for (std::size_t i = 0; i < keys; ++i) {
        svg.turned_text(
            kLeft + (static_cast<double>(i) + 0.5) * width / static_cast<double>(keys) + 4, y + 8,
            90, "quiet", Anchor::end, key_label(inspection, static_cast<std::int64_t>(i), 14));
      }
      y += 84;
    } else {
      svg.text(kLeft, y + 16, "quiet", Anchor::start, "key 0");
      svg.text(kLeft + width, y + 16, "quiet", Anchor::end, std::to_string(keys - 1));
      y += 24;
    }
    svg.text(20, 36, "title", Anchor::start,
             numbered("Row ", story.row) +
                 (inspection.tokens.empty() || inspection.queries != inspection.keys
                      ? std::string()
                      : ", \"" + row_token(inspection, story.row, 24) + "\"") +
                 ", step by step");
    svg.text(20, 60, "prose", Anchor::start,
             numbered("Layer ", chosen.layer) + numbered(", head ", chosen.head) +
                 ". Striped: hidden by the mask, or no number.");
    svg.text(20, 80, "quiet", Anchor::start, plain_text(inspection.source, 80));
    const std::string name =
        "story_" + head_file(chosen.layer, chosen.head) + numbered("_row", story.row);
    pictures.push_back(
        {name + ".svg", svg.document(kLeft + width + 24, y + 16, name, subject_of(inspection))});
    pictures.push_back({name + ".csv", csv_of_story(inspection, story)});
  }
}

}  // namespace heed::cli

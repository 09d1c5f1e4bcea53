// What is taken of long lists.
#include "report_lists.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "report_pack.h"

namespace heed::cli {

Distances distances_of(const std::vector<float>& mass, std::int64_t most) {
  const auto end = static_cast<std::int64_t>(mass.size() / 2);
  const std::int64_t kept = std::max<std::int64_t>((most - 1) / 2, 8);
  Distances pooled{mass, 1, end};
  if (end <= kept) return pooled;
  // Of steps from 0, as far as the last distance before the end.
  const auto away = [&](std::int64_t d) { return (d + pooled.step / 2) / pooled.step; };
  while (away(end - 1) + 1 > kept) pooled.step += 2;
  const std::int64_t half = away(end - 1) + 1;
  pooled.mass.assign(static_cast<std::size_t>(2 * half + 1), 0);
  for (std::int64_t d = -end; d <= end; ++d) {
    const std::int64_t steps = std::abs(d) == end ? half : away(std::abs(d));
    const auto at = static_cast<std::size_t>(half + (d < 0 ? -steps : steps));
    pooled.mass[at] += mass[static_cast<std::size_t>(d + end)];
  }
  return pooled;
}

Json top_json(const HeadInspection& head, const std::vector<const RowStory*>& stories,
              std::int64_t budget, std::set<std::int64_t>& named) {
  constexpr std::size_t kShortest = 8;
  std::size_t longest = 1;
  for (const TopKeys& top : head.top) longest = std::max(longest, top.keys.size());
  const std::size_t room =
      static_cast<std::size_t>(budget) / std::max<std::size_t>(stories.size(), 1);
  longest = std::min(longest, std::max(room, kShortest));
  const auto most = std::max<std::size_t>(static_cast<std::size_t>(budget) / longest, 1);
  const std::size_t count = std::min(most, head.top.size());
  std::set<std::size_t> taken;
  for (std::size_t i = 0; i < count; ++i) taken.insert(i * head.top.size() / count);
  for (const RowStory* story : stories) {
    const auto at = std::find_if(head.top.begin(), head.top.end(),
                                 [story](const TopKeys& top) { return top.row == story->row; });
    if (at != head.top.end()) taken.insert(static_cast<std::size_t>(at - head.top.begin()));
  }
  std::vector<std::int64_t> rows, ends, keys;
  std::vector<float> weights, mass;
  for (const std::size_t i : taken) {
    const TopKeys& top = head.top[i];
    const std::size_t all = std::min(top.keys.size(), top.weights.size());
    const std::size_t length = std::min(all, longest);
    for (std::size_t j = 0; j < length; ++j) {
      keys.push_back(top.keys[j]);
      weights.push_back(top.weights[j]);
      named.insert(top.keys[j]);
    }
    rows.push_back(top.row);
    ends.push_back(static_cast<std::int64_t>(keys.size()));
    const auto end = top.weights.begin() + static_cast<std::ptrdiff_t>(length);
    mass.push_back(length == all ? top.mass : std::accumulate(top.weights.begin(), end, 0.0F));
    named.insert(top.row);
  }
  return {{"rows", packed(rows)},
          {"ends", packed(ends)},
          {"keys", packed(keys)},
          {"weights", packed(weights)},
          {"mass", packed(mass)}};
}

Json story_json(const RowStory& story, std::int64_t most, std::set<std::int64_t>& named) {
  std::vector<std::int64_t> keys(story.weights.size());
  std::iota(keys.begin(), keys.end(), 0);
  if (static_cast<std::int64_t>(keys.size()) > most) {
    const auto weight = [&story](std::int64_t key) {
      const float p = story.weights[static_cast<std::size_t>(key)];
      return std::isnan(p) ? 0.0F : p;
    };
    std::stable_sort(keys.begin(), keys.end(),
                     [&](std::int64_t a, std::int64_t b) { return weight(a) > weight(b); });
    keys.resize(static_cast<std::size_t>(most));
    std::sort(keys.begin(), keys.end());
  }
  std::vector<float> products, scores, weights;
  std::vector<bool> visible;
  double mass = 0;
  const auto put = [](std::vector<float>& to, const std::vector<float>& from, std::size_t i) {
    to.push_back(i < from.size() ? from[i] : NAN);
  };
  for (const std::int64_t key : keys) {
    const auto i = static_cast<std::size_t>(key);
    put(products, story.products, i);
    put(scores, story.scores, i);
    put(weights, story.weights, i);
    visible.push_back(i < story.visible.size() && story.visible[i]);
    mass += static_cast<double>(story.weights[i]);
    named.insert(key);
  }
  named.insert(story.row);
  return {{"row", story.row},
          {"keys", packed(keys)},
          {"products", packed(products)},
          {"scores", packed(scores)},
          {"visible", packed(visible)},
          {"weights", packed(weights)},
          {"mass", mass}};
}

Json tiles_json(const HeadInspection& head, std::int64_t budget) {
  Json tiles = Json::array();
  for (const ExactTile& tile : head.tiles) {
    const auto cells = static_cast<std::int64_t>(tile.weights.cells.size());
    if (cells > budget || cells == 0) continue;
    budget -= cells;
    tiles.push_back({{"row", tile.first_row},
                     {"key", tile.first_key},
                     {"rows", tile.weights.rows},
                     {"columns", tile.weights.columns},
                     {"visible", packed(tile.visible)},
                     {"weights", packed(tile.weights.cells)}});
  }
  return tiles;
}

}  // namespace heed::cli

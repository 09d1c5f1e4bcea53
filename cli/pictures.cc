// Which heads are drawn alone, and the list of all files.
#include "pictures.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "picture_parts.h"

namespace heed::cli {

std::vector<ChosenHead> interesting_heads(const Inspection& inspection) {
  constexpr std::size_t kAll = 4;
  std::vector<ChosenHead> chosen;
  const auto& found = inspection.found;
  for (const auto& [layer, head] : inspection.heads_asked) chosen.push_back({layer, head, ""});
  if (!chosen.empty()) return chosen;
  if (found.size() <= kAll) {
    for (const HeadInspection& head : found) chosen.push_back({head.layer, head.head, ""});
    return chosen;
  }
  // The first head with the largest number of those that are left; none if no number is above
  // `least`.
  const auto add = [&](const std::function<double(const HeadInspection&)>& number, double least,
                       const char* reason) {
    const HeadInspection* best = nullptr;
    double most = least;
    for (const HeadInspection& head : found) {
      const double value = number(head);
      const bool taken = std::any_of(chosen.begin(), chosen.end(), [&head](const ChosenHead& one) {
        return one.layer == head.layer && one.head == head.head;
      });
      if (taken || !std::isfinite(value) || value <= most) continue;
      best = &head;
      most = value;
    }
    if (best != nullptr) chosen.push_back({best->layer, best->head, reason});
  };
  add([](const auto& head) { return -head.entropy_share.mean; }, -HUGE_VAL, "sharpest");
  add([](const auto& head) { return head.entropy_share.mean; }, -HUGE_VAL, "most even");
  add([](const auto& head) { return head.saturated; }, 0, "saturated rows");
  add([](const auto& head) { return head.sink_key < 0 ? 0.0 : head.sink_share; }, 0,
      "rests on one key");
  add(
      [](const auto& head) {
        // The outermost two hold what lies beyond, and distance 0 is the token itself.
        float most = 0;
        const std::size_t middle = head.distance_mass.size() / 2;
        for (std::size_t i = 1; i + 1 < head.distance_mass.size(); ++i) {
          if (i != middle) most = std::max(most, head.distance_mass[i]);
        }
        return static_cast<double>(most);
      },
      0, "keeps one distance");
  add([](const auto& head) { return head.score_deviation.mean; }, 0, "wide scores");
  std::sort(chosen.begin(), chosen.end(), [](const ChosenHead& a, const ChosenHead& b) {
    return std::pair(a.layer, a.head) < std::pair(b.layer, b.head);
  });
  return chosen;
}

std::vector<Picture> pictures_of(const Inspection& inspection,
                                 const std::vector<ChosenHead>& chosen) {
  std::vector<Picture> pictures;
  add_poster(pictures, inspection);
  add_row_maps(pictures, inspection);
  add_charts(pictures, inspection, chosen);
  add_mask(pictures, inspection);
  for (const ChosenHead& one : chosen) {
    add_head_map(pictures, inspection, one);
    add_arcs(pictures, inspection, one);
    add_stories(pictures, inspection, one);
  }
  return pictures;
}

std::vector<Picture> pictures_of(const Inspection& inspection) {
  return pictures_of(inspection, interesting_heads(inspection));
}

}  // namespace heed::cli

// Budgets: how much of an inspection fits into a page, and which part is taken.
#include "report_data.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base64.h"
#include "head_numbers.h"
#include "picture_parts.h"
#include "plain_text.h"
#include "report_lists.h"
#include "report_pack.h"

namespace heed::cli {
namespace {

// In numbers, over all heads; with four bytes each and base64 they stay below 4 MB together.
constexpr std::int64_t kMapCells = 670'000;     // of two bytes
constexpr std::int64_t kExactCells = 30'000;    // of two floats
constexpr std::int64_t kTopEntries = 30'000;    // of a key and a weight
constexpr std::int64_t kStoryEntries = 20'000;  // of a key and three floats
constexpr std::int64_t kMostStories = 4000;     // of eight entries at least
constexpr std::int64_t kBinEntries = 100'000;   // counts of histograms
constexpr std::int64_t kTileCells = 80'000;
constexpr std::int64_t kDistances = 40'000;
constexpr std::int64_t kMostTokens = 4096;
constexpr int kMostTiles = 128;  // of the computation, in a row or column
constexpr std::size_t kTokenLength = 24;
constexpr std::size_t kTextLength = 2000;

struct Shape {
  int rows = 0, columns = 0;
  std::int64_t cells() const { return static_cast<std::int64_t>(rows) * columns; }
};

Shape shape_of(const Inspection& all) {
  Shape shape;
  for (const HeadInspection& head : all.found) {
    shape.rows = std::max(shape.rows, head.lift.rows);
    shape.columns = std::max(shape.columns, head.lift.columns);
  }
  return shape;
}

std::int64_t shown(std::int64_t heads) {
  return std::clamp<std::int64_t>(heads, 1, kMostReportHeads);
}

std::int64_t share_of(std::int64_t budget, std::size_t heads) {
  return budget / static_cast<std::int64_t>(std::max<std::size_t>(heads, 1));
}

Json remarks_json(const HeadInspection& head) {
  Json remarks = Json::array();
  for (const Remark& remark : head.remarks) {
    remarks.push_back({{"severity", remark.severity == Severity::warning ? "warning" : "note"},
                       {"sentence", plain_text(remark.sentence, kTextLength)},
                       {"suggestion", plain_text(remark.suggestion, kTextLength)}});
  }
  return remarks;
}

// So many bins of a histogram are one in the page.
int bins_together(const Inspection& all) {
  int together = 1;
  while (all.bins % (2 * together) == 0 &&
         all.bins / together > share_of(kBinEntries, all.found.size())) {
    together *= 2;
  }
  return together;
}

// The bins of all histograms, with what N(0, 1) has there.
Json bins_json(const Inspection& all) {
  Json normal = Json::array();
  const int count = all.bins / bins_together(all);
  const double width = (all.bin_high - all.bin_low) / std::max(count, 1);
  for (int i = 0; i < count; ++i) {
    normal.push_back(normal_density(all.bin_low + i * width, all.bin_low + (i + 1) * width));
  }
  return {{"low", all.bin_low}, {"high", all.bin_high}, {"count", count}, {"normal", normal}};
}

// The counts of a head, and the scores that its chart shows.
Json histogram_json(const Inspection& all, const HeadInspection& head) {
  std::vector<std::int64_t> counts = head.histogram;
  const auto together = static_cast<std::size_t>(bins_together(all));
  if (together > 1 && counts.size() == static_cast<std::size_t>(all.bins) + 2) {
    counts.assign(static_cast<std::size_t>(all.bins) / together + 2, 0);
    counts.front() = head.histogram.front();
    counts.back() = head.histogram.back();
    for (std::size_t i = 1; i + 1 < head.histogram.size(); ++i) {
      counts[(i - 1) / together + 1] += head.histogram[i];
    }
  }
  return counts;
}

Json reach_json(const Inspection& all, const HeadInspection& head) {
  const ScoreReach reach = reach_of_scores(all, head.histogram);
  return {reach.low, reach.high};
}

Json map_json(const CellMap& map) {
  return {{"rows", map.rows}, {"columns", map.columns}, {"cells", packed(map.cells)}};
}

Json mask_json(const MaskPicture& mask) {
  if (mask.visible.cells.empty()) return nullptr;
  Json json{{"visible", map_json(mask.visible)},
            {"tile_rows", mask.tile_rows},
            {"tile_keys", mask.tile_keys},
            {"tiles_computed", mask.tiles_computed},
            {"tiles_skipped", mask.tiles_skipped}};
  const CellMap& computed = mask.computed;
  if (!computed.cells.empty() && computed.rows <= kMostTiles && computed.columns <= kMostTiles) {
    json["computed"] = map_json(computed);
  }
  return json;
}

// Of very many stories some, evenly.
std::vector<const RowStory*> even_part(const std::vector<RowStory>& stories, std::int64_t most) {
  std::vector<const RowStory*> some;
  const std::size_t count = std::min(stories.size(), static_cast<std::size_t>(most));
  for (std::size_t i = 0; i < count; ++i) some.push_back(&stories[i * stories.size() / count]);
  return some;
}

Json head_json(const Inspection& all, const HeadInspection& head, bool exact,
               std::set<std::int64_t>& named) {
  const std::size_t heads = all.found.size();
  Json json{
      {"layer", head.layer},
      {"head", head.head},
      {"entropy_share", head.entropy_share.mean},
      {"lift", packed_lift(head.lift)},
      {"mean", packed_mean(head.mean)},
      {"entropy", packed(head.row_entropy_share)},
      {"peak", packed(head.row_max_weight)},
      {"columns", packed(head.column_mass)},
      {"distance", packed(distances_of(head.distance_mass, share_of(kDistances, heads)).mass)},
      {"histogram", histogram_json(all, head)},
      {"reach", reach_json(all, head)}};
  if (exact) {
    json["lift_exact"] = packed(head.lift.cells);
    json["mean_exact"] = packed(head.mean.cells);
  }
  const auto stories = even_part(head.stories, share_of(kMostStories, heads));
  json["top"] = top_json(head, stories, share_of(kTopEntries, heads), named);
  const auto told = static_cast<std::int64_t>(std::max<std::size_t>(stories.size(), 1));
  const std::int64_t keys = std::max<std::int64_t>(share_of(kStoryEntries, heads) / told, 8);
  json["stories"] = Json::array();
  for (const RowStory* story : stories) {
    json["stories"].push_back(story_json(*story, std::min<std::int64_t>(keys, 512), named));
  }
  json["stories_in_all"] = head.stories.size();
  json["tiles"] = tiles_json(head, share_of(kTileCells, heads));
  json["tiles_in_all"] = head.tiles.size();
  json["remarks"] = remarks_json(head);
  json["numbers"] = Json::array();
  for (const HeadNumber& number : head_numbers(all.has_gradients()))
    json["numbers"].push_back(number.of(head));
  return json;
}

Json palettes_json() {
  Json json = Json::object();
  for (const ColourMap map : {ColourMap::lift, ColourMap::share}) {
    for (const Theme theme : {Theme::light, Theme::dark}) {
      std::string bytes;
      for (const Rgb& colour : palette(map, theme)) {
        for (const std::uint8_t one : {colour.red, colour.green, colour.blue}) {
          bytes += static_cast<char>(one);
        }
      }
      json[std::string(map == ColourMap::lift ? "lift" : "share") +
           (theme == Theme::light ? "_light" : "_dark")] = base64(bytes);
    }
  }
  return json;
}

// A list of all tokens, or of very many those that the page names.
Json tokens_json(const Inspection& all, const std::set<std::int64_t>& named) {
  Json tokens = Json::object();
  if (all.keys <= kMostTokens) {
    tokens = Json::array();
    for (const auto& token : all.tokens) tokens.push_back(plain_text(token, kTokenLength));
    return tokens;
  }
  for (const std::int64_t key : named) {
    if (static_cast<std::size_t>(key) >= all.tokens.size()) continue;
    tokens[std::to_string(key)] = token_of(all, key, kTokenLength);
  }
  return tokens;
}

// Of very many heads those that have room: of as many layers as fit, evenly, and of a layer that is
// too large itself the first heads.
Inspection with_fewer_heads(const Inspection& all, std::int64_t most) {
  Inspection fewer = all;
  fewer.heads = std::min(all.heads, most);
  fewer.layers = std::min(all.layers, most / fewer.heads);
  fewer.found.clear();
  for (std::int64_t i = 0; i < fewer.layers; ++i) {
    const std::int64_t layer = i * all.layers / fewer.layers;
    for (std::int64_t head = 0; head < fewer.heads; ++head) {
      fewer.found.push_back(all.at(layer, head));
    }
  }
  return fewer;
}

// Where a head lies in the list; 0 if it is not there.
std::size_t place_of(const Inspection& shown, const std::vector<ChosenHead>& heads) {
  for (const ChosenHead& one : heads) {
    for (std::size_t i = 0; i < shown.found.size(); ++i) {
      if (shown.found[i].layer == one.layer && shown.found[i].head == one.head) return i;
    }
  }
  return 0;
}

Json data_of(const Inspection& all, std::size_t heads_in_all) {
  const Shape shape = shape_of(all);
  const auto heads = static_cast<std::int64_t>(all.found.size());
  const bool exact = shape.cells() * heads <= kExactCells;
  std::set<std::int64_t> named;
  Json found = Json::array();
  Distances distances;
  for (const HeadInspection& head : all.found) {
    found.push_back(head_json(all, head, exact, named));
    distances = distances_of(head.distance_mass, share_of(kDistances, all.found.size()));
  }
  Json json{{"source", plain_text(all.source, 200)},
            {"settings", plain_text(all.options(), 200)},
            {"sentence", plain_text(all.sentence, kTextLength)},
            {"layers", all.layers},
            {"heads", all.heads},
            {"queries", all.queries},
            {"keys", all.keys},
            {"head_size", all.head_size},
            {"bins", bins_json(all)},
            {"maps", {{"rows", shape.rows}, {"columns", shape.columns}, {"exact", exact}}},
            {"lift_limit", lift_scale(all).high},
            {"distance_step", distances.step},
            {"distance_end", distances.end},
            {"heads_in_all", heads_in_all},
            {"first", place_of(all, interesting_heads(all))}};
  json["numbers"] = Json::array();
  for (const HeadNumber& number : head_numbers(all.has_gradients())) {
    json["numbers"].push_back(
        {{"name", number.name}, {"unit", number.unit}, {"title", number.title}});
  }
  json["palettes"] = palettes_json();
  json["mask"] = mask_json(all.mask);
  json["tokens"] = tokens_json(all, named);
  json["found"] = std::move(found);
  return json;
}

}  // namespace

std::int64_t map_side(std::int64_t most, std::int64_t queries, std::int64_t keys,
                      std::int64_t heads) {
  while (most > 1 && std::min(most, queries) * std::min(most, keys) * shown(heads) > kMapCells) {
    --most;
  }
  return most;
}

std::int64_t tile_side(std::int64_t heads) {
  constexpr std::int64_t kMost = 64;
  constexpr std::int64_t kLeast = 8;
  const double room = static_cast<double>(kTileCells) / static_cast<double>(shown(heads));
  const auto side = std::min(static_cast<std::int64_t>(std::sqrt(room)), kMost);
  return side < kLeast ? 0 : side;
}

Json report_data(const Inspection& inspection, std::int64_t most_heads) {
  const std::size_t heads = inspection.found.size();
  if (heads <= static_cast<std::size_t>(most_heads)) return data_of(inspection, heads);
  return data_of(with_fewer_heads(inspection, most_heads), heads);
}

}  // namespace heed::cli

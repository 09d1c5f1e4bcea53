// Attention by the definition, in double, one row after the other.
#include "made_inspection.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace heed::cli {
namespace {

constexpr int kBins = 40;
constexpr std::size_t kTop = 8;

Summary summary_of(std::vector<double> numbers) {
  Summary summary{.count = static_cast<std::int64_t>(numbers.size()), .mean = NAN};
  summary.quantiles.fill(NAN);
  if (numbers.empty()) return summary;
  std::sort(numbers.begin(), numbers.end());
  summary.mean =
      std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
  for (std::size_t i = 0; i < 5; ++i) {
    summary.quantiles[i] = numbers[i * (numbers.size() - 1) / 4];
  }
  return summary;
}

double share_of(const std::vector<double>& numbers, double low, double high) {
  const auto inside =
      std::count_if(numbers.begin(), numbers.end(), [=](double x) { return x > low && x < high; });
  return numbers.empty() ? 0 : static_cast<double>(inside) / static_cast<double>(numbers.size());
}

struct Columns {
  std::vector<double> entropy, share, effective, peak, jacobian, highest, mean, deviation, scores;
};

// One row: its products, scores and weights, and the statistics of all of them.
RowStory row_of(const Operands& in, std::int64_t head, std::int64_t row, Sight sight) {
  const auto size = static_cast<std::size_t>(in.size);
  const float* q = in.q.data() + static_cast<std::size_t>(head * in.queries + row) * size;
  RowStory story{.row = row};
  double most = -HUGE_VAL;
  for (std::int64_t key = 0; key < in.keys; ++key) {
    const float* k = in.k.data() + static_cast<std::size_t>(head * in.keys + key) * size;
    const double product = std::inner_product(q, q + size, k, 0.0);
    const double score = product / std::sqrt(static_cast<double>(in.size));
    const bool visible = sight == Sight::all || key <= row + in.keys - in.queries;
    story.products.push_back(static_cast<float>(product));
    story.scores.push_back(static_cast<float>(score));
    story.visible.push_back(visible);
    if (visible) most = std::max(most, score);
  }
  double sum = 0;
  for (std::size_t i = 0; i < story.scores.size(); ++i) {
    if (story.visible[i]) sum += std::exp(static_cast<double>(story.scores[i]) - most);
  }
  for (std::size_t i = 0; i < story.scores.size(); ++i) {
    const double e = std::exp(static_cast<double>(story.scores[i]) - most);
    story.weights.push_back(story.visible[i] ? static_cast<float>(e / sum) : 0.0F);
  }
  return story;
}

TopKeys top_of(const RowStory& story) {
  std::vector<std::int64_t> order(story.weights.size());
  std::iota(order.begin(), order.end(), 0);
  const auto weight = [&story](std::int64_t i) {
    return story.weights[static_cast<std::size_t>(i)];
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return weight(a) > weight(b); });
  TopKeys top{.row = story.row};
  top.visible = std::count(story.visible.begin(), story.visible.end(), true);
  for (const std::int64_t key : order) {
    if (top.keys.size() == kTop || !(weight(key) > 0)) break;
    top.keys.push_back(key);
    top.weights.push_back(weight(key));
    top.mass += weight(key);
  }
  return top;
}

// The row's part of the columns of statistics.
void count_row(const RowStory& story, Columns& columns) {
  double entropy = 0, peak = 0, squares = 0, cubes = 0, mean = 0, highest = -HUGE_VAL;
  std::int64_t visible = 0;
  for (std::size_t i = 0; i < story.weights.size(); ++i) {
    if (!story.visible[i]) continue;
    const auto p = static_cast<double>(story.weights[i]);
    const auto s = static_cast<double>(story.scores[i]);
    if (p > 0) entropy -= p * std::log(p);
    peak = std::max(peak, p);
    squares += p * p;
    cubes += p * p * p;
    mean += s;
    highest = std::max(highest, s);
    columns.scores.push_back(s);
    ++visible;
  }
  if (visible == 0) return;
  mean /= static_cast<double>(visible);
  double variance = 0;
  for (std::size_t i = 0; i < story.scores.size(); ++i) {
    if (story.visible[i]) variance += std::pow(static_cast<double>(story.scores[i]) - mean, 2);
  }
  columns.entropy.push_back(entropy);
  columns.share.push_back(entropy_share(entropy, visible));
  columns.effective.push_back(std::exp(entropy));
  columns.peak.push_back(peak);
  columns.jacobian.push_back(std::sqrt(std::max(squares - 2 * cubes + squares * squares, 0.0)));
  columns.highest.push_back(highest);
  columns.mean.push_back(mean);
  columns.deviation.push_back(std::sqrt(variance / static_cast<double>(visible)));
}

void summarise(HeadInspection& head, const Inspection& all, const Columns& columns) {
  head.max_score = summary_of(columns.highest);
  head.score_mean = summary_of(columns.mean);
  head.score_deviation = summary_of(columns.deviation);
  head.entropy = summary_of(columns.entropy);
  head.entropy_share = summary_of(columns.share);
  head.effective_keys = summary_of(columns.effective);
  head.max_weight = summary_of(columns.peak);
  head.jacobian_norm = summary_of(columns.jacobian);
  head.saturated = share_of(columns.peak, all.saturation_threshold, HUGE_VAL);
  head.peaked = share_of(columns.share, -1, all.peaked_threshold);
  head.uniform = share_of(columns.share, all.uniform_threshold, HUGE_VAL);
  head.in_range = share_of(columns.scores, -3, 3);
  const Summary scores = summary_of(columns.scores);
  head.score_low = scores.quantiles[0];
  head.score_high = scores.quantiles[4];
  head.histogram.assign(kBins + 2, 0);
  for (const double score : columns.scores) {
    const double bin = std::floor((score - all.bin_low) / (all.bin_high - all.bin_low) * kBins) + 1;
    ++head.histogram[static_cast<std::size_t>(std::clamp(bin, 0.0, kBins + 1.0))];
  }
}

HeadInspection head_of(const Operands& in, const Inspection& all, std::int64_t at, Sight sight,
                       int cells) {
  const auto rows = std::min<std::int64_t>(cells, in.queries);
  const auto columns_count = std::min<std::int64_t>(cells, in.keys);
  const auto cell_count = static_cast<std::size_t>(rows * columns_count);
  HeadInspection head{.layer = at / in.heads, .head = at % in.heads};
  std::vector<double> lift(cell_count), mean(cell_count), seen(cell_count), pairs(cell_count);
  std::vector<double> mass(static_cast<std::size_t>(columns_count));
  std::vector<double> distance(2 * static_cast<std::size_t>(std::min<std::int64_t>(in.keys, 64)) +
                               1);
  Columns columns;
  std::vector<double> row_share(static_cast<std::size_t>(rows)), row_peak(row_share.size()),
      row_count(row_share.size());
  for (std::int64_t row = 0; row < in.queries; ++row) {
    const RowStory story = row_of(in, at, row, sight);
    count_row(story, columns);
    head.top.push_back(top_of(story));
    const auto visible =
        static_cast<double>(std::count(story.visible.begin(), story.visible.end(), true));
    const auto r = static_cast<std::size_t>(row * rows / in.queries);
    if (visible > 0) {
      row_share[r] += columns.share.back();
      row_peak[r] += columns.peak.back();
      row_count[r] += 1;
    }
    for (std::int64_t key = 0; key < in.keys; ++key) {
      const auto i = static_cast<std::size_t>(key);
      const auto c = static_cast<std::size_t>(key * columns_count / in.keys);
      const std::size_t cell = r * static_cast<std::size_t>(columns_count) + c;
      const auto p = static_cast<double>(story.weights[i]);
      pairs[cell] += 1;
      mean[cell] += p;
      mass[c] += p / static_cast<double>(in.queries);
      if (story.visible[i]) {
        seen[cell] += 1;
        lift[cell] += visible * p;
      }
      const auto half = static_cast<std::int64_t>(distance.size() / 2);
      const std::int64_t away = std::clamp(key - row, -half, half) + half;
      distance[static_cast<std::size_t>(away)] += p / static_cast<double>(in.queries);
    }
    if (row == 0 || row == in.queries / 2 || row == in.queries - 1) head.stories.push_back(story);
  }
  summarise(head, all, columns);
  head.lift = {static_cast<int>(rows), static_cast<int>(columns_count), {}};
  head.mean = head.lift;
  for (std::size_t i = 0; i < cell_count; ++i) {
    head.lift.cells.push_back(seen[i] > 0 ? static_cast<float>(std::log2(lift[i] / seen[i])) : NAN);
    head.mean.cells.push_back(static_cast<float>(mean[i] / pairs[i]));
  }
  for (std::size_t i = 0; i < row_share.size(); ++i) {
    head.row_entropy_share.push_back(static_cast<float>(row_share[i] / row_count[i]));
    head.row_max_weight.push_back(static_cast<float>(row_peak[i] / row_count[i]));
  }
  for (const double one : mass) head.column_mass.push_back(static_cast<float>(one));
  for (const double one : distance) head.distance_mass.push_back(static_cast<float>(one));
  const auto sink = std::max_element(mass.begin(), mass.end());
  head.sink_key = (sink - mass.begin()) * in.keys / columns_count;
  head.sink_share = *sink;
  if (in.keys > cells) {
    ExactTile tile{.first_row = in.queries / 2, .first_key = in.keys / 2, .weights = {16, 16, {}}};
    for (std::int64_t row = 0; row < 16; ++row) {
      const RowStory story = row_of(in, at, tile.first_row + row, sight);
      tile.visible.push_back(std::count(story.visible.begin(), story.visible.end(), true));
      for (std::int64_t key = 0; key < 16; ++key) {
        tile.weights.cells.push_back(story.weights[static_cast<std::size_t>(tile.first_key + key)]);
      }
    }
    head.tiles.push_back(std::move(tile));
  }
  const bool sharp = head.entropy_share.mean < 0.4;
  head.remarks.push_back(sharp ? Remark{Severity::warning, "Many rows rest on one or two keys.",
                                        "Try a smaller scale."}
                               : Remark{Severity::note, "Nothing stands out.", ""});
  return head;
}

}  // namespace

Operands random_operands(std::int64_t layers, std::int64_t heads, std::int64_t tokens,
                         std::int64_t size) {
  std::mt19937 bits(7);
  std::normal_distribution<float> normal;
  Operands made{layers, heads, tokens, tokens, size, {}, {}};
  const auto count = static_cast<std::size_t>(layers * heads * tokens * size);
  std::generate_n(std::back_inserter(made.q), count, [&] { return normal(bits); });
  std::generate_n(std::back_inserter(made.k), count, [&] { return normal(bits); });
  return made;
}

Inspection made_inspection(const Operands& in, Sight sight, int cells) {
  Inspection all{.source = "made.safetensors",
                 .settings = sight == Sight::causal ? "--causal" : "",
                 .layers = in.layers,
                 .heads = in.heads,
                 .queries = in.queries,
                 .keys = in.keys,
                 .head_size = in.size,
                 .bin_low = -4,
                 .bin_high = 4,
                 .bins = kBins,
                 .peaked_threshold = 0.1,
                 .uniform_threshold = 0.95};
  for (std::int64_t at = 0; at < in.layers * in.heads; ++at) {
    all.found.push_back(head_of(in, all, at, sight, cells));
  }
  const int rows = static_cast<int>(std::min<std::int64_t>(cells, in.queries));
  const int columns = static_cast<int>(std::min<std::int64_t>(cells, in.keys));
  all.mask.visible = {rows, columns, {}};
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      const float share = c < r ? 1.0F : c == r ? 0.5F : 0.0F;
      all.mask.visible.cells.push_back(sight == Sight::all ? 1.0F : share);
    }
  }
  all.mask.tile_rows = 64;
  all.mask.tile_keys = 96;
  const int down = static_cast<int>((in.queries + 63) / 64);
  const int across = static_cast<int>((in.keys + 95) / 96);
  all.mask.computed = {down, across, {}};
  for (int r = 0; r < down; ++r) {
    for (int c = 0; c < across; ++c) {
      const bool computed = sight == Sight::all || c * 96 <= r * 64 + 63;
      all.mask.computed.cells.push_back(computed ? 1.0F : 0.0F);
      ++(computed ? all.mask.tiles_computed : all.mask.tiles_skipped);
    }
  }
  all.mask.tiles_computed *= in.layers * in.heads;
  all.mask.tiles_skipped *= in.layers * in.heads;
  return all;
}

}  // namespace heed::cli

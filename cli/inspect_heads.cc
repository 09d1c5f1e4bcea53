// The analysis behind `heed inspect`: two passes over q and k, and a closer look at chosen rows.
#include "inspect_heads.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gradient_health.h"
#include "head_facts.h"
#include "heed/heed.h"
#include "heed/io.h"
#include "plain_text.h"

namespace heed::cli {
namespace {

constexpr int kBins = 256;
constexpr double kBinLow = -32;  // 4 bins to a unit
constexpr double kBinHigh = 32;
constexpr std::int64_t kFarthest = 64;
/// Entries of lists of keys beyond which only chosen rows have one.
constexpr std::int64_t kMostListed = 60'000;

/// Whether the histogram's bins end where the range does.
bool has_edges_at(double range) { return range <= kBinHigh && range * 4 == std::floor(range * 4); }

/// The results of both passes, [B, H, ...]; numbers in the inputs' type.
struct Passes {
  Tensor lse, max_score, max_weight, entropy, visible, mean, variance, norm;
  Tensor top_keys, top_weights, top_mass, columns, mean_map, lift_map, distances, histogram;
  Tensor inside;  ///< scores below, within and above a range that is no sum of bins; else empty

  Passes(const Call& call, const InspectSettings& settings) : range_(settings.thresholds.range) {
    const DType dtype = call.q.dtype;
    const auto sized = [&](DType type, std::vector<std::int64_t> rest) {
      rest.insert(rest.begin(), {call.layers(), call.heads()});
      return make_tensor(type, std::move(rest));
    };
    for (Tensor* tensor : {&lse, &max_score, &max_weight, &entropy, &mean, &variance, &norm}) {
      *tensor = sized(dtype, {call.queries()});
    }
    visible = sized(DType::i64, {call.queries()});
    const std::int64_t top = std::min(settings.top, std::max<std::int64_t>(call.keys(), 1));
    top_keys = sized(DType::i64, {call.queries(), top});
    top_weights = sized(dtype, {call.queries(), top});
    top_mass = sized(dtype, {call.queries()});
    columns = sized(dtype, {call.keys()});
    mean_map =
        sized(dtype, {std::min(settings.map, call.queries()), std::min(settings.map, call.keys())});
    lift_map = mean_map;
    const std::int64_t reach = std::min(std::max(call.queries(), call.keys()), kFarthest);
    distances = sized(dtype, {2 * reach + 1});
    histogram = sized(DType::i64, {kBins + 2});
    if (!has_edges_at(range_)) inside = sized(DType::i64, {3});
  }

  void run(const Call& call, Executor& executor, StatusLine& status) {
    const RowStatistics statistics{.max_score = view_of(max_score),
                                   .max_weight = view_of(max_weight),
                                   .entropy = view_of(entropy),
                                   .visible_keys = view_of(visible),
                                   .score_mean = view_of(mean),
                                   .score_variance = view_of(variance),
                                   .jacobian_norm = view_of(norm)};
    ConstTensorView no_values = call.k;
    no_values.shape[3] = 0;
    std::byte nothing{};
    TensorView output{&nothing, call.q.dtype, kMaxRank, call.q.shape, {0, 0, 0, 1}};
    output.shape[3] = 0;
    status.stage("statistics of rows");
    attention_forward(call.q, call.k, no_values,
                      {.output = output, .lse = view_of(lse), .statistics = &statistics},
                      call.options, {.executor = &executor});
    status.stage("maps and columns");
    inspect_weights({.q = call.q, .k = call.k, .lse = view_of(lse)},
                    {.top_keys = view_of(top_keys),
                     .top_weights = view_of(top_weights),
                     .top_mass = view_of(top_mass),
                     .column_sums = view_of(columns),
                     .mean_map = view_of(mean_map),
                     .lift_map = view_of(lift_map),
                     .distance_mass = view_of(distances),
                     .score_histogram = view_of(histogram),
                     .score_low = kBinLow,
                     .score_high = kBinHigh},
                    call.options, {.executor = &executor});
    if (inside.shape.empty()) return;
    status.stage("scores in range");
    inspect_weights(
        {.q = call.q, .k = call.k, .lse = view_of(lse)},
        {.score_histogram = view_of(inside), .score_low = -range_, .score_high = range_},
        call.options, {.executor = &executor});
  }

 private:
  double range_;
};

/// A head's numbers of a result [B, H, ...].
std::vector<double> numbers_of(const Tensor& tensor, std::int64_t head) {
  std::size_t size = 1;
  for (std::size_t axis = 2; axis < tensor.shape.size(); ++axis) {
    size *= static_cast<std::size_t>(tensor.shape[axis]);
  }
  const auto first = static_cast<std::size_t>(head) * size;
  std::vector<double> numbers(size);
  const auto fill = [&](auto element) {
    for (std::size_t i = 0; i < size; ++i) {
      std::memcpy(&element, tensor.data.data() + (first + i) * sizeof element, sizeof element);
      numbers[i] = static_cast<double>(element);
    }
  };
  if (tensor.dtype == DType::f32) {
    fill(float{});
  } else if (tensor.dtype == DType::f64) {
    fill(double{});
  } else {
    fill(std::int64_t{});
  }
  return numbers;
}

CellMap map_of(const Tensor& tensor, std::int64_t head) {
  const auto numbers = numbers_of(tensor, head);
  return {static_cast<int>(tensor.shape[2]),
          static_cast<int>(tensor.shape[3]),
          {numbers.begin(), numbers.end()}};
}

double sum_of(const std::vector<double>& numbers) {
  double sum = 0;
  for (const double number : numbers) sum += number;
  return sum;
}

Summary summary_of(const std::vector<double>& values, const std::vector<std::int64_t>& visible) {
  const auto count = static_cast<std::int64_t>(values.size());
  return summarize(view(values.data(), {count}), view(visible.data(), {count}))[0];
}

/// Of the rows that see two keys or more: one that sees one key has no choice.
double share_of_rows(const std::vector<double>& values, const std::vector<std::int64_t>& visible,
                     const auto& holds) {
  double some = 0;
  double all = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (visible[i] < 2) continue;
    all += 1;
    some += holds(values[i]) ? 1 : 0;
  }
  return all == 0 ? 0 : some / all;
}

/// Sums over each of `cells` cells along an axis.
std::vector<float> summed(const std::vector<double>& values, int cells) {
  std::vector<double> sums(static_cast<std::size_t>(cells));
  for (std::size_t i = 0; i < values.size(); ++i) {
    sums[i * sums.size() / values.size()] += values[i];
  }
  return {sums.begin(), sums.end()};
}

/// Means over the rows of each cell that count; NaN where none does.
std::vector<float> averaged(const std::vector<double>& values, int cells, const auto& counts) {
  std::vector<double> sums(static_cast<std::size_t>(cells));
  std::vector<double> rows(sums.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!counts(i)) continue;
    const std::size_t cell = i * sums.size() / values.size();
    sums[cell] += values[i];
    rows[cell] += 1;
  }
  std::vector<float> means;
  for (std::size_t cell = 0; cell < sums.size(); ++cell) {
    means.push_back(static_cast<float>(rows[cell] > 0 ? sums[cell] / rows[cell] : NAN));
  }
  return means;
}

/// The score below which this share of the counted ones lies, to a bin's width; infinite where it
/// is beyond the bins. No score is above `highest`.
double quantile_of(const std::vector<std::int64_t>& histogram, double share, double highest) {
  double total = 0;
  for (const auto count : histogram) total += static_cast<double>(count);
  double below = static_cast<double>(histogram.front());
  if (total == 0) return NAN;
  if (below > 0 && below >= share * total) return -INFINITY;
  for (std::size_t bin = 1; bin + 1 < histogram.size(); ++bin) {
    const auto here = static_cast<double>(histogram[bin]);
    if (here > 0 && below + here >= share * total) {
      const double within = std::clamp((share * total - below) / here, 0.0, 1.0);
      const double at =
          kBinLow + (static_cast<double>(bin - 1) + within) * (kBinHigh - kBinLow) / kBins;
      return highest < at ? highest : at;
    }
    below += here;
  }
  return INFINITY;
}

double share_between(const std::vector<std::int64_t>& histogram, double range) {
  double total = 0;
  double inside = 0;
  for (std::size_t n = 0; n < histogram.size(); ++n) {
    const double low = kBinLow + (static_cast<double>(n) - 1) * (kBinHigh - kBinLow) / kBins;
    const double high = low + (kBinHigh - kBinLow) / kBins;
    const bool bin = n > 0 && n + 1 < histogram.size();
    total += static_cast<double>(histogram[n]);
    if (bin && low >= -range && high <= range) inside += static_cast<double>(histogram[n]);
  }
  return total == 0 ? NAN : inside / total;
}

class HeadReader {
 public:
  HeadReader(const Call& call, const Passes& passes, const InspectSettings& settings,
             const Inspection& inspection, Executor& executor)
      : call_(call),
        passes_(passes),
        settings_(settings),
        inspection_(inspection),
        executor_(executor) {}

  /// The gradients of all heads, to be told with each of them.
  void read_gradients() {
    const BackwardCall backward{call_.q, call_.k, settings_.v, settings_.d_output, call_.options};
    const BackwardResults results = gradients_of(backward, {.executor = &executor_});
    for (std::int64_t n = 0; n < call_.layers() * call_.heads(); ++n) {
      gradients_.push_back(health_of(backward, results, n / call_.heads(), n % call_.heads(),
                                     visible_keys(n), settings_.thresholds.vanishing));
    }
    usual_gradient_ = usual_gradient(gradients_);
  }

  [[nodiscard]] HeadInspection read(std::int64_t layer, std::int64_t number) const {
    HeadInspection head{.layer = layer, .head = number};
    const std::int64_t n = layer * call_.heads() + number;
    // Rows that are NaN are counted, and left out of all the rest.
    const std::vector<std::int64_t> visible = visible_keys(n);
    const auto seen = numbers_of(passes_.visible, n);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      head.empty_rows += seen[i] == 0 ? 1 : 0;
      if (seen[i] == 0 || visible[i] > 0) continue;
      if (head.nan_rows == 0) head.first_nan_row = static_cast<std::int64_t>(i);
      head.nan_rows += 1;
    }
    read_rows(n, visible, head);
    read_maps(n, visible, head);
    read_top(n, head);
    ConstTensorView lse = view_of(passes_.lse);
    lse.rank = 3;
    HeadFacts facts = facts_of(one_head(call_, layer, number), head,
                               {visible, numbers_of(passes_.columns, n),
                                numbers_of(passes_.max_score, n), entry_of(lse, layer, number)},
                               executor_);
    if (!gradients_.empty()) head.gradients = gradients_[static_cast<std::size_t>(n)];
    facts.usual_gradient = usual_gradient_;
    head.remarks = diagnose(
        head, facts, settings_.thresholds,
        plain_text(inspection_.label(std::max<std::int64_t>(head.sink_key, 0)), kShownToken));
    return head;
  }

 private:
  /// Keys that each row sees; 0 of rows that are NaN.
  [[nodiscard]] std::vector<std::int64_t> visible_keys(std::int64_t n) const {
    const auto entropy = numbers_of(passes_.entropy, n);
    std::vector<std::int64_t> visible;
    for (const double count : numbers_of(passes_.visible, n)) {
      const bool nan = std::isnan(entropy[visible.size()]);
      visible.push_back(nan ? 0 : static_cast<std::int64_t>(count));
    }
    return visible;
  }

  void read_rows(std::int64_t n, const std::vector<std::int64_t>& visible,
                 HeadInspection& head) const {
    const auto max_weight = numbers_of(passes_.max_weight, n);
    const auto entropy = numbers_of(passes_.entropy, n);
    auto deviation = numbers_of(passes_.variance, n);
    for (double& value : deviation) value = std::sqrt(value);
    std::vector<double> share;
    std::vector<double> effective;
    // Where all scores are -infinity, or a sink left no key weight, an entropy of 0 is no choice.
    std::vector<double> made;
    for (std::size_t i = 0; i < entropy.size(); ++i) {
      share.push_back(entropy_share(entropy[i], visible[i]));
      effective.push_back(effective_keys(entropy[i]));
      made.push_back(max_weight[i] > 0 ? share[i] : INFINITY);
    }
    head.max_score = summary_of(numbers_of(passes_.max_score, n), visible);
    head.score_mean = summary_of(numbers_of(passes_.mean, n), visible);
    head.score_deviation = summary_of(deviation, visible);
    head.entropy = summary_of(entropy, visible);
    head.entropy_share = summary_of(share, visible);
    head.effective_keys = summary_of(effective, visible);
    head.max_weight = summary_of(max_weight, visible);
    head.jacobian_norm = summary_of(numbers_of(passes_.norm, n), visible);
    const Thresholds& t = settings_.thresholds;
    head.saturated = share_of_rows(max_weight, visible, [&](double x) { return x > t.saturation; });
    head.peaked = share_of_rows(made, visible, [&](double x) { return x < t.peaked; });
    head.uniform = share_of_rows(share, visible, [&](double x) { return x > t.uniform; });
    const auto rows = static_cast<int>(passes_.lift_map.shape[2]);
    // A row that sees one key has an entropy share of 0, as the sharpest rows have, and no choice.
    head.row_entropy_share = averaged(share, rows, [&](std::size_t i) { return visible[i] >= 2; });
    head.row_max_weight =
        averaged(max_weight, rows, [&](std::size_t i) { return visible[i] >= 1; });
  }

  void read_maps(std::int64_t n, const std::vector<std::int64_t>& visible,
                 HeadInspection& head) const {
    head.lift = map_of(passes_.lift_map, n);
    head.mean = map_of(passes_.mean_map, n);
    auto columns = numbers_of(passes_.columns, n);
    const double total = sum_of(columns);
    // Of a total with a NaN no key has a known share.
    for (double& mass : columns) mass = total == 0 ? 0 : mass / total;
    head.column_mass = summed(columns, head.lift.columns);
    const auto largest = std::max_element(columns.begin(), columns.end());
    if (largest != columns.end() && total > 0) {
      head.sink_key = largest - columns.begin();
      head.sink_share = *largest;
    }
    double rows = 0;
    for (const auto count : visible) rows += count > 0 ? 1 : 0;
    for (const double mass : numbers_of(passes_.distances, n)) {
      head.distance_mass.push_back(static_cast<float>(rows == 0 ? 0 : mass / rows));
    }
    for (const double count : numbers_of(passes_.histogram, n)) {
      head.histogram.push_back(static_cast<std::int64_t>(count));
    }
    const double highest = head.max_score.quantiles.back();
    head.score_low = quantile_of(head.histogram, 0.01, highest);
    head.score_high = quantile_of(head.histogram, 0.99, highest);
    head.in_range = in_range(n, head);
  }

  [[nodiscard]] double in_range(std::int64_t n, const HeadInspection& head) const {
    const double range = settings_.thresholds.range;
    if (has_edges_at(range)) return share_between(head.histogram, range);
    const auto counts = numbers_of(passes_.inside, n);  // below, within, above
    return counts[1] / sum_of(counts);
  }

  void read_top(std::int64_t n, HeadInspection& head) const {
    const auto keys = numbers_of(passes_.top_keys, n);
    const auto weights = numbers_of(passes_.top_weights, n);
    const auto mass = numbers_of(passes_.top_mass, n);
    const auto visible = numbers_of(passes_.visible, n);
    const auto entropy = numbers_of(passes_.entropy, n);
    const auto places = static_cast<std::size_t>(passes_.top_keys.shape[3]);
    const bool all =
        call_.layers() * call_.heads() * call_.queries() * static_cast<std::int64_t>(places) <=
        kMostListed;
    const std::vector<std::int64_t> rows = chosen_rows(call_, settings_);
    for (std::int64_t row = 0; row < call_.queries(); ++row) {
      if (!all && std::find(rows.begin(), rows.end(), row) == rows.end()) continue;
      const auto i_row = static_cast<std::size_t>(row);
      TopKeys top{.row = row,
                  .mass = static_cast<float>(mass[i_row]),
                  .visible = static_cast<std::int64_t>(visible[i_row])};
      top.entropy_share = entropy_share(entropy[i_row], top.visible);
      for (std::size_t i = 0; i < places; ++i) {
        const std::size_t at = i_row * places + i;
        if (!(weights[at] > 0)) break;
        top.keys.push_back(static_cast<std::int64_t>(keys[at]));
        top.weights.push_back(static_cast<float>(weights[at]));
      }
      head.top.push_back(std::move(top));
    }
  }

  const Call& call_;
  const Passes& passes_;
  const InspectSettings& settings_;
  const Inspection& inspection_;
  Executor& executor_;
  std::vector<HeadGradients> gradients_;
  double usual_gradient_ = 0;
};

}  // namespace

Inspection inspect_heads(const Call& call, const InspectSettings& settings, Executor& executor,
                         StatusLine& status) {
  Passes passes(call, settings);
  passes.run(call, executor, status);
  status.stage("reading the results");
  Inspection inspection{.source = {},
                        .settings = {},
                        .tokens = settings.tokens,
                        .layers = call.layers(),
                        .heads = call.heads(),
                        .queries = call.queries(),
                        .keys = call.keys(),
                        .head_size = call.head_size(),
                        .bin_low = kBinLow,
                        .bin_high = kBinHigh,
                        .bins = kBins,
                        .saturation_threshold = settings.thresholds.saturation,
                        .peaked_threshold = settings.thresholds.peaked,
                        .uniform_threshold = settings.thresholds.uniform,
                        .rows_asked = settings.rows};
  HeadReader reader(call, passes, settings, inspection, executor);
  if (settings.d_output.present()) {
    status.stage("gradients");
    reader.read_gradients();
  }
  for (std::int64_t layer = 0; layer < call.layers(); ++layer) {
    for (std::int64_t head = 0; head < call.heads(); ++head) {
      inspection.found.push_back(reader.read(layer, head));
    }
  }
  status.stage("chosen rows");
  look_closer(call, view_of(passes.lse), settings, executor, inspection);
  return inspection;
}

}  // namespace heed::cli

// The analysis behind `heed inspect`: two passes over q and k, and a closer look at chosen rows.
#include "inspect_heads.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "heed/heed.h"
#include "heed/io.h"

namespace heed::cli {
namespace {

constexpr int kBins = 256;
constexpr double kBinLow = -32;  // 4 bins to a unit
constexpr double kBinHigh = 32;
constexpr std::int64_t kFarthest = 64;
/// Entries of lists of keys beyond which only chosen rows have one.
constexpr std::int64_t kMostListed = 60'000;

/// The results of both passes, [B, H, ...]; numbers in the inputs' type.
struct Passes {
  Tensor lse, max_score, max_weight, entropy, visible, mean, variance, norm;
  Tensor top_keys, top_weights, top_mass, columns, mean_map, lift_map, distances, histogram;

  Passes(const Call& call, const InspectSettings& settings) {
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
  }
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

double share_of(const std::vector<double>& values, const std::vector<std::int64_t>& visible,
                const auto& holds) {
  double some = 0;
  double all = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (visible[i] == 0) continue;
    all += 1;
    some += holds(values[i]) ? 1 : 0;
  }
  return all == 0 ? 0 : some / all;
}

/// Means over the rows (or sums over the keys) of each cell along an axis of the map.
std::vector<float> pooled(const std::vector<double>& values, int cells, bool as_mean) {
  std::vector<double> sums(static_cast<std::size_t>(cells));
  std::vector<double> counts(sums.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t cell = i * sums.size() / values.size();
    sums[cell] += values[i];
    counts[cell] += 1;
  }
  std::vector<float> means;
  for (std::size_t cell = 0; cell < sums.size(); ++cell) {
    means.push_back(static_cast<float>(as_mean ? sums[cell] / counts[cell] : sums[cell]));
  }
  return means;
}

/// The score below which this share of the counted ones lies, to a bin's width; beyond the bins it is
/// their end.
double quantile_of(const std::vector<std::int64_t>& histogram, double share) {
  double total = 0;
  for (const auto count : histogram) total += static_cast<double>(count);
  double below = static_cast<double>(histogram.front());
  if (total == 0) return 0;
  if (below > 0 && below >= share * total) return kBinLow;
  for (std::size_t bin = 1; bin + 1 < histogram.size(); ++bin) {
    const auto here = static_cast<double>(histogram[bin]);
    if (here > 0 && below + here >= share * total) {
      const double within = std::clamp((share * total - below) / here, 0.0, 1.0);
      return kBinLow + (static_cast<double>(bin - 1) + within) * (kBinHigh - kBinLow) / kBins;
    }
    below += here;
  }
  return share < 0.5 ? kBinLow : kBinHigh;
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
  return total == 0 ? 1 : inside / total;
}

/// Keys that are zeros only, as padding is.
std::vector<std::int64_t> zero_keys(const Call& head) {
  std::vector<std::int64_t> zeros;
  for (std::int64_t j = 0; j < head.keys(); ++j) {
    bool zero = true;
    for (std::int64_t x = 0; zero && x < head.head_size(); ++x) {
      zero = element(head.k, 0, 0, j, x) == 0;
    }
    if (zero) zeros.push_back(j);
  }
  return zeros;
}

class HeadReader {
 public:
  HeadReader(const Call& call, const Passes& passes, const InspectSettings& settings,
             const Inspection& inspection)
      : call_(call), passes_(passes), settings_(settings), inspection_(inspection) {}

  [[nodiscard]] HeadInspection read(std::int64_t layer, std::int64_t number) const {
    HeadInspection head{.layer = layer, .head = number};
    const std::int64_t n = layer * call_.heads() + number;
    std::vector<std::int64_t> visible;
    for (const double count : numbers_of(passes_.visible, n)) {
      visible.push_back(static_cast<std::int64_t>(count));
    }
    read_rows(n, visible, head);
    read_maps(n, visible, head);
    read_top(n, head);
    HeadFacts facts = facts_of(layer, number, visible, head);
    head.remarks = diagnose(head, facts, settings_.thresholds,
                            inspection_.label(std::max<std::int64_t>(head.sink_key, 0)));
    return head;
  }

 private:
  void read_rows(std::int64_t n, const std::vector<std::int64_t>& visible,
                 HeadInspection& head) const {
    const auto max_weight = numbers_of(passes_.max_weight, n);
    const auto entropy = numbers_of(passes_.entropy, n);
    auto deviation = numbers_of(passes_.variance, n);
    for (double& value : deviation) value = std::sqrt(value);
    std::vector<double> share;
    std::vector<double> effective;
    for (std::size_t i = 0; i < entropy.size(); ++i) {
      share.push_back(entropy_share(entropy[i], visible[i]));
      effective.push_back(effective_keys(entropy[i]));
      head.empty_rows += visible[i] == 0 ? 1 : 0;
      head.nan_rows += std::isnan(entropy[i]) ? 1 : 0;
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
    head.saturated = share_of(max_weight, visible, [&](double x) { return x > t.saturation; });
    head.peaked = share_of(share, visible, [&](double x) { return x < t.peaked; });
    head.uniform = share_of(share, visible, [&](double x) { return x > t.uniform; });
    const auto rows = static_cast<int>(passes_.lift_map.shape[2]);
    head.row_entropy_share = pooled(share, rows, true);
    head.row_max_weight = pooled(max_weight, rows, true);
  }

  void read_maps(std::int64_t n, const std::vector<std::int64_t>& visible,
                 HeadInspection& head) const {
    head.lift = map_of(passes_.lift_map, n);
    head.mean = map_of(passes_.mean_map, n);
    auto columns = numbers_of(passes_.columns, n);
    const double total = sum_of(columns);
    for (double& mass : columns) mass = total > 0 ? mass / total : mass;
    head.column_mass = pooled(columns, head.lift.columns, false);
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
    head.score_low = quantile_of(head.histogram, 0.01);
    head.score_high = quantile_of(head.histogram, 0.99);
    head.in_range = share_between(head.histogram, settings_.thresholds.range);
  }

  void read_top(std::int64_t n, HeadInspection& head) const {
    const auto keys = numbers_of(passes_.top_keys, n);
    const auto weights = numbers_of(passes_.top_weights, n);
    const auto mass = numbers_of(passes_.top_mass, n);
    const auto places = static_cast<std::size_t>(passes_.top_keys.shape[3]);
    const bool all =
        call_.layers() * call_.heads() * call_.queries() * static_cast<std::int64_t>(places) <=
        kMostListed;
    const std::vector<std::int64_t> rows = chosen_rows(call_, settings_);
    for (std::int64_t row = 0; row < call_.queries(); ++row) {
      if (!all && std::find(rows.begin(), rows.end(), row) == rows.end()) continue;
      TopKeys top{.row = row, .mass = static_cast<float>(mass[static_cast<std::size_t>(row)])};
      for (std::size_t i = 0; i < places; ++i) {
        const std::size_t at = static_cast<std::size_t>(row) * places + i;
        if (!(weights[at] > 0)) break;
        top.keys.push_back(static_cast<std::int64_t>(keys[at]));
        top.weights.push_back(static_cast<float>(weights[at]));
      }
      head.top.push_back(std::move(top));
    }
  }

  [[nodiscard]] HeadFacts facts_of(std::int64_t layer, std::int64_t number,
                                   const std::vector<std::int64_t>& visible,
                                   const HeadInspection& head) const {
    const Call one = one_head(call_, layer, number);
    const AttentionOptions& o = one.options;
    HeadFacts facts{.normalized = o.normalize_qk,
                    .rows = call_.queries(),
                    .keys = call_.keys(),
                    .head_size = call_.head_size(),
                    .causal = o.mask.causal};
    const double usual = o.normalize_qk ? 1 : 1 / std::sqrt(static_cast<double>(call_.head_size()));
    facts.scale = o.scale.one.value_or(
        o.scale.each.present()
            ? element({o.scale.each.data, o.scale.each.dtype, 4, {1, 1, 1, 1}, {}}, 0, 0, 0, 0)
            : usual);
    facts.lone_rows = std::count(visible.begin(), visible.end(), 1);
    const auto columns = numbers_of(passes_.columns, layer * call_.heads() + number);
    const double total = sum_of(columns);
    for (const std::int64_t key : zero_keys(one)) {
      ++facts.zero_keys;
      if (total > 0) facts.zero_key_share += columns[static_cast<std::size_t>(key)] / total;
    }
    const std::int64_t last = query_start(call_, layer) + call_.queries() - 1;
    facts.past_pairs = std::max<std::int64_t>(last, 0);
    const auto& mass = head.distance_mass;
    const std::size_t middle = mass.size() / 2;
    double all = 0;
    for (std::size_t d = 0; d < mass.size(); ++d) {
      all += static_cast<double>(mass[d]);
      if (d > middle) facts.future_share += static_cast<double>(mass[d]);
    }
    if (all > 0) facts.future_share /= all;
    if (all > 0 && middle > 0) facts.previous_share = static_cast<double>(mass[middle - 1]) / all;
    return facts;
  }

  const Call& call_;
  const Passes& passes_;
  const InspectSettings& settings_;
  const Inspection& inspection_;
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
                        .uniform_threshold = settings.thresholds.uniform};
  const HeadReader reader(call, passes, settings, inspection);
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

// How the numbers of a head's rows lie.
#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "attention/checker.h"
#include "heed/inspect.h"
#include "runtime/float_environment.h"

namespace heed {
namespace {

/// A view's numbers as rows of heads: axes that are not there have size 1.
struct HeadRows {
  View4 numbers;
  View4 visible;
  std::int64_t heads_of_entry = 1, heads = 1, rows = 0;

  HeadRows(const char* function, const char* name, const ConstTensorView& view,
           const ConstTensorView& visible_keys) {
    const Checker check(function);
    check.require(view.present(), name, " is absent; expected a view to read from");
    check.memory(name, view, true);
    check.require(view.dtype == DType::f32 || view.dtype == DType::f64, name, " is ", view.dtype,
                  "; expected float32 or float64");
    check.require(view.rank >= 1 && view.rank <= 3, name, " has rank ", view.rank,
                  "; expected [Tq], [B, Tq] or [B, H, Tq]");
    // As the views of RowStatistics: an axis less than q.
    numbers = Checker::canonical(view, view.rank + 1);
    const auto size = [&](int axis) { return view.shape[static_cast<std::size_t>(axis)]; };
    rows = size(view.rank - 1);
    heads_of_entry = view.rank == 3 ? size(1) : 1;
    heads = view.rank == 1 ? 1 : size(0) * heads_of_entry;
    if (!visible_keys.present()) return;
    check.memory("visible_keys", visible_keys, true);
    check.require(visible_keys.dtype == DType::i64, "visible_keys is ", visible_keys.dtype,
                  "; expected ", DType::i64);
    bool same = visible_keys.rank == view.rank;
    for (int axis = 0; same && axis < view.rank; ++axis) {
      same = visible_keys.shape[static_cast<std::size_t>(axis)] == size(axis);
    }
    check.require(same, "visible_keys has shape ", List{visible_keys.shape, visible_keys.rank},
                  "; expected ", List{view.shape, view.rank}, ", the shape of ", name);
    visible = Checker::canonical(visible_keys, view.rank + 1);
  }

  /// The numbers of a head's rows that see a key.
  [[nodiscard]] std::vector<double> of_head(std::int64_t head) const {
    const std::int64_t b = head / heads_of_entry;
    const std::int64_t h = head % heads_of_entry;
    std::vector<double> values;
    values.reserve(static_cast<std::size_t>(rows));
    for (std::int64_t i = 0; i < rows; ++i) {
      if (visible.present && load<std::int64_t>(visible.at(b, h, i)) == 0) continue;
      values.push_back(load_real<double>(numbers.at(b, h, i), numbers.dtype));
    }
    return values;
  }
};

/// f(), which copies the numbers of a head and lists the heads; where there is no memory for that,
/// an error that says so.
template <typename F>
auto with_memory(const char* function, const HeadRows& rows, const F& f) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  throw Error(ErrorKind::memory, std::string(function) + ": no memory for the numbers of " +
                                     std::to_string(rows.rows) + " rows, 8 bytes each, and of " +
                                     std::to_string(rows.heads) + " heads");
}

/// low + share (high - low), where one of them may be infinite: no difference of infinities.
double between(double low, double high, double share) {
  if (share == 0 || low == high) return low;
  const double apart = high - low;
  return std::isfinite(apart) ? low + apart * share : low * (1 - share) + high * share;
}

Summary summary_of(std::vector<double> values) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  Summary summary{.count = static_cast<std::int64_t>(values.size()), .mean = kNone};
  summary.quantiles.fill(kNone);
  const bool nan = std::any_of(values.begin(), values.end(), [](double x) { return x != x; });
  if (values.empty() || nan) return summary;
  const auto count = static_cast<double>(values.size());
  double sum = 0;
  for (const double x : values) sum += x;
  summary.mean = sum / count;
  if (!std::isfinite(sum)) {  // beyond float64, as the mean need not be
    summary.mean = 0;
    for (const double x : values) summary.mean += x / count;
  }
  std::sort(values.begin(), values.end());
  const std::size_t last = values.size() - 1;
  for (std::size_t n = 0; n < summary.quantiles.size(); ++n) {
    const double place = static_cast<double>(last * n) / 4.0;
    const auto below = static_cast<std::size_t>(place);
    const double share = place - static_cast<double>(below);
    const double low = values[below];
    const double high = values[std::min(below + 1, last)];
    summary.quantiles[n] = between(low, high, share);
  }
  return summary;
}

}  // namespace

std::vector<Summary> summarize(const ConstTensorView& numbers,
                               const ConstTensorView& visible_keys) {
  const runtime::DefaultFloatEnvironment environment;
  const HeadRows rows("summarize", "numbers", numbers, visible_keys);
  return with_memory("summarize", rows, [&] {
    std::vector<Summary> summaries;
    summaries.reserve(static_cast<std::size_t>(rows.heads));  // no memory bounds heads without rows
    for (std::int64_t head = 0; head < rows.heads; ++head) {
      summaries.push_back(summary_of(rows.of_head(head)));
    }
    return summaries;
  });
}

std::vector<double> saturation(const ConstTensorView& max_weight,
                               const ConstTensorView& visible_keys, double threshold) {
  const runtime::DefaultFloatEnvironment environment;
  Checker("saturation")
      .require(threshold >= 0 && threshold <= 1, "threshold is ", threshold, "; expected 0 .. 1");
  const HeadRows rows("saturation", "max_weight", max_weight, visible_keys);
  return with_memory("saturation", rows, [&] {
    std::vector<double> shares;
    shares.reserve(static_cast<std::size_t>(rows.heads));
    for (std::int64_t head = 0; head < rows.heads; ++head) {
      const std::vector<double> values = rows.of_head(head);
      const auto above =
          std::count_if(values.begin(), values.end(), [&](double x) { return x > threshold; });
      shares.push_back(
          values.empty() ? 0.0 : static_cast<double>(above) / static_cast<double>(values.size()));
    }
    return shares;
  });
}

}  // namespace heed

// heed._core.inspect_weights, summarize and saturation.
#include <nanobind/stl/array.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <tuple>

#include "bindings.h"
#include "heed/heed.h"
#include "options.h"
#include "run.h"

namespace heed::python {
namespace {

constexpr std::array kViews{&WeightViews::row_weights,   &WeightViews::row_scores,
                            &WeightViews::top_keys,      &WeightViews::top_weights,
                            &WeightViews::top_mass,      &WeightViews::column_sums,
                            &WeightViews::mean_map,      &WeightViews::lift_map,
                            &WeightViews::distance_mass, &WeightViews::score_histogram};

void inspect_weights_of(nb::handle q, nb::handle k, nb::handle lse, nb::handle rows,
                        const nb::tuple& results, nb::handle score_low, nb::handle score_high,
                        const nb::tuple& options, int threads) {
  const Array query = Array::read("q", q);
  const Array key = Array::read("k", k);
  const Array sums = Array::read("lse", lse);
  check_types("inspect_weights", query.view().dtype, {{"k", key.view().dtype}});
  const Array chosen = Array::read_optional("rows", rows);
  if (results.size() != kViews.size()) value_error("expected 10 results");
  std::array<Array, kViews.size()> arrays;
  WeightViews views{.rows = chosen.view(),
                    .score_low = number("score_low", score_low),
                    .score_high = number("score_high", score_high)};
  for (std::size_t i = 0; i < kViews.size(); ++i) {
    arrays[i] = Array::write_optional("result", results[i]);
    views.*kViews[i] = arrays[i].view();
  }
  const Options settings(options);
  settings.run("inspect_weights", [&] {
    InterruptibleExecutor executor(threads);
    inspect_weights({.q = query.view(), .k = key.view(), .lse = sums.view()}, views, settings.get(),
                    settings.run_on(executor));
  });
}

using SummaryFields = std::tuple<std::int64_t, double, std::array<double, 5>>;

std::vector<SummaryFields> summarize_of(nb::handle numbers, nb::handle visible_keys) {
  const Array values = Array::read("numbers", numbers);
  const Array keys = Array::read_optional("visible_keys", visible_keys);
  std::vector<SummaryFields> result;
  run_without_gil("summarize", [&] {
    for (const Summary& summary : summarize(values.view(), keys.view())) {
      result.emplace_back(summary.count, summary.mean, summary.quantiles);
    }
  });
  return result;
}

std::vector<double> saturation_of(nb::handle max_weight, nb::handle visible_keys,
                                  nb::handle threshold) {
  const Array values = Array::read("max_weight", max_weight);
  const Array keys = Array::read_optional("visible_keys", visible_keys);
  const double limit = number("threshold", threshold);
  if (!(limit >= 0 && limit <= 1)) {
    value_error(std::string("saturation: threshold is ") + text_of(threshold) +
                "; expected 0 .. 1");
  }
  std::vector<double> result;
  run_without_gil("saturation", [&] { result = saturation(values.view(), keys.view(), limit); });
  return result;
}

}  // namespace

void bind_inspection(nb::module_& module) {
  using namespace nb::literals;
  module.def("inspect_weights", &inspect_weights_of, "q"_a.none(), "k"_a.none(), "lse"_a.none(),
             "rows"_a.none(), "results"_a, "score_low"_a.none(), "score_high"_a.none(), "options"_a,
             "threads"_a, "What is wanted of the weights, into the fields of heed.WeightViews.");
  module.def("summarize", &summarize_of, "numbers"_a.none(), "visible_keys"_a.none(),
             "(count, mean, quantiles) for each head.");
  module.def("saturation", &saturation_of, "max_weight"_a.none(), "visible_keys"_a.none(),
             "threshold"_a.none(), "The share of rows above the threshold for each head.");
}

}  // namespace heed::python

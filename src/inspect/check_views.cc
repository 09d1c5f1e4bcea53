// What is asked of the weights, checked and resolved.
#include "inspect/check_views.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace heed::inspect {
namespace {

/// The size of a view's axis, counted from its last; 0 where it has none such.
std::int64_t size_from_end(const ConstTensorView& view, int axis) {
  return view.rank > axis ? view.shape[static_cast<std::size_t>(view.rank - 1 - axis)] : 0;
}

/// Views whose sizes tell what is wanted have no more axes than a view can hold: they are looked
/// at, and shown in messages, before their shapes are checked.
void check_ranks(const Checker& check, const WeightViews& views) {
  const NamedView told_by_size[] = {
      {"top_keys", views.top_keys},           {"top_weights", views.top_weights},
      {"mean_map", views.mean_map},           {"lift_map", views.lift_map},
      {"distance_mass", views.distance_mass}, {"score_histogram", views.score_histogram}};
  for (const auto& [name, view] : told_by_size) {
    check.require(view.rank <= kMaxRank, name, " has rank ", view.rank, "; expected at most ",
                  kMaxRank);
  }
}

/// Chosen rows lie in [0, Tq).
void check_rows(const Checker& check, const WeightViews& views, const Problem& p, Wanted& wanted) {
  const bool wanted_of_rows = views.row_weights.present() || views.row_scores.present();
  check.require(!views.rows.present() || wanted_of_rows,
                "rows is given, row_weights and row_scores absent; expected one of them");
  check.require(views.rows.present() || !wanted_of_rows,
                views.row_weights.present() ? "row_weights" : "row_scores",
                " is given, rows absent; expected both or none");
  if (!views.rows.present()) return;
  check.memory("rows", views.rows, true);
  check.require(views.rows.dtype == DType::i64, "rows is ", views.rows.dtype, "; expected ",
                DType::i64);
  check.require(views.rows.rank == 1, "rows has shape ", List{views.rows.shape, views.rows.rank},
                "; expected one axis");
  wanted.row_count = views.rows.shape[0];
  wanted.rows = {static_cast<std::byte*>(const_cast<void*>(views.rows.data)), DType::i64, true, {}};
  wanted.rows.stride[2] = views.rows.stride[0];
  for (std::int64_t n = 0; n < differing(views.rows); ++n) {
    const auto row = load<std::int64_t>(wanted.rows.at(0, 0, n));
    check.require(row >= 0 && row < p.queries, Entry{"rows", n}, " is ", row, "; expected 0 .. ",
                  p.queries - 1);
  }
}

/// Sizes of a map, the same for both of them.
void check_maps(const Checker& check, const WeightViews& views, const Problem& p, Wanted& wanted) {
  const TensorView& one = views.mean_map.present() ? views.mean_map : views.lift_map;
  if (!one.present()) return;
  const char* const name = views.mean_map.present() ? "mean_map" : "lift_map";
  wanted.row_cells = {p.queries, size_from_end(one, 1)};
  wanted.key_cells = {p.keys, size_from_end(one, 0)};
  check.require(wanted.row_cells.cells <= p.queries && wanted.key_cells.cells <= p.keys, name,
                " has shape ", List{one.shape, one.rank}, "; expected at most ", p.queries,
                " rows (Tq) and ", p.keys, " columns (Tk) of cells");
}

/// K, distances and bins: sizes that views alone tell.
void check_counts(const Checker& check, const WeightViews& views, Wanted& wanted) {
  wanted.top = size_from_end(views.top_keys.present() ? views.top_keys : views.top_weights, 0);
  wanted.distances = size_from_end(views.distance_mass, 0);
  check.require(
      !views.top_mass.present() || views.top_keys.present() || views.top_weights.present(),
      "top_mass is given, top_keys and top_weights absent; expected one of them, for K");
  check.require((!views.top_keys.present() && !views.top_weights.present()) || wanted.top >= 1,
                "top_keys and top_weights have ", wanted.top, " places; expected 1 or more");
  check.require(!views.distance_mass.present() || wanted.distances % 2 == 1, "distance_mass has ",
                wanted.distances, " distances; expected an odd number, 0 in the middle");
}

/// Bins between two finite scores, wide enough to be told apart.
void check_histogram(const Checker& check, const WeightViews& views, Wanted& wanted) {
  if (!views.score_histogram.present()) return;
  const std::int64_t counts = size_from_end(views.score_histogram, 0);
  check.require(counts >= 3, "score_histogram has ", counts,
                " counts; expected 3 or more: below, bins, above");
  wanted.bins = counts - 2;
  wanted.score_low = views.score_low;
  wanted.score_high = views.score_high;
  const double width = views.score_high - views.score_low;
  check.require(std::isfinite(views.score_low) && std::isfinite(views.score_high) &&
                    std::isfinite(width) && views.score_low < views.score_high,
                "score_low is ", views.score_low, ", score_high ", views.score_high,
                "; expected finite numbers, the first below the second");
  // Their product with a score's distance finds the bin: infinity times 0 would find none.
  check.require(std::isfinite(static_cast<double>(wanted.bins) / width), "score_low is ",
                views.score_low, ", score_high ", views.score_high, "; expected wider bins");
}

/// What attention_forward returned.
void check_lse(const Checker& check, const Attended& attended, const Problem& p, Wanted& wanted) {
  check.require(attended.lse.present(), "lse is absent; expected what attention_forward returned");
  check.memory("lse", attended.lse, true);
  check.require(attended.lse.dtype == p.dtype, "lse is ", attended.lse.dtype, "; expected ",
                p.dtype, of_scores(p));
  wanted.lse =
      check.exact("lse", attended.lse, attended.q.rank, {p.batches, p.heads, p.queries, 0}, 1);
}

/// Each view that is written has the shape and the type of what goes there; one without elements
/// asks for nothing.
void check_outputs(const Checker& check, const WeightViews& views, const Problem& p, int rank,
                   Wanted& wanted) {
  const auto output = [&](const char* name, const TensorView& view, std::int64_t rows,
                          std::int64_t columns, int dropped, DType dtype) {
    View4 checked = check.output(name, view, rank, {p.batches, p.heads, rows, columns}, dropped,
                                 dtype, p.element);
    if (!checked.present) return checked;
    const auto sizes = std::span(view.shape).first(static_cast<std::size_t>(view.rank));
    checked.present &= std::ranges::find(sizes, 0) == sizes.end();
    return checked;
  };
  wanted.row_weights =
      output("row_weights", views.row_weights, wanted.row_count, p.keys, 0, p.dtype);
  wanted.row_scores = output("row_scores", views.row_scores, wanted.row_count, p.keys, 0, p.dtype);
  wanted.top_keys = output("top_keys", views.top_keys, p.queries, wanted.top, 0, DType::i64);
  wanted.top_weights = output("top_weights", views.top_weights, p.queries, wanted.top, 0, p.dtype);
  wanted.top_mass = output("top_mass", views.top_mass, p.queries, 0, 1, p.dtype);
  wanted.column_sums = output("column_sums", views.column_sums, p.keys, 0, 1, p.dtype);
  wanted.mean_map = output("mean_map", views.mean_map, wanted.row_cells.cells,
                           wanted.key_cells.cells, 0, p.dtype);
  wanted.lift_map = output("lift_map", views.lift_map, wanted.row_cells.cells,
                           wanted.key_cells.cells, 0, p.dtype);
  wanted.distance_mass =
      output("distance_mass", views.distance_mass, wanted.distances, 0, 1, p.dtype);
  wanted.score_histogram =
      output("score_histogram", views.score_histogram, wanted.bins + 2, 0, 1, DType::i64);
}

/// No output may overlap another one, or anything that is read.
void check_distinct(const Checker& check, const Attended& attended, const WeightViews& views,
                    const AttentionOptions& options) {
  const NamedView written[] = {
      {"row_weights", views.row_weights},     {"row_scores", views.row_scores},
      {"top_keys", views.top_keys},           {"top_weights", views.top_weights},
      {"top_mass", views.top_mass},           {"column_sums", views.column_sums},
      {"mean_map", views.mean_map},           {"lift_map", views.lift_map},
      {"distance_mass", views.distance_mass}, {"score_histogram", views.score_histogram}};
  const NamedView read[] = {
      {"q", attended.q}, {"k", attended.k}, {"lse", attended.lse}, {"rows", views.rows}};
  check.distinct(written, read);
  check.distinct(written, option_views(options));
}

}  // namespace

Wanted check_views(const Attended& attended, const WeightViews& views,
                   const AttentionOptions& options, Problem* problem) {
  const Checker check("inspect_weights");
  ConstTensorView no_values = attended.k;  // weights need none
  if (no_values.rank > 0 && no_values.rank <= kMaxRank) {
    no_values.shape[static_cast<std::size_t>(no_values.rank - 1)] = 0;
  }
  Problem& p = *problem;
  check.require(!options.packing.present(),
                "options.packing is given; expected calls on each sequence's rows alone");
  p = check_inputs(check, attended.q, attended.k, no_values, options, Reads::elements);

  Wanted wanted;
  check_ranks(check, views);
  check_lse(check, attended, p, wanted);
  check_rows(check, views, p, wanted);
  check_maps(check, views, p, wanted);
  check_counts(check, views, wanted);
  check_histogram(check, views, wanted);
  check_outputs(check, views, p, attended.q.rank, wanted);
  check_distinct(check, attended, views, options);
  return wanted;
}

}  // namespace heed::inspect

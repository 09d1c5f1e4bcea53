// Names and values of the fields of a row.
#include "bench_fields.h"

#include <nlohmann/json.hpp>

#include "heed/runtime.h"
#include "machine.h"
#include "peak.h"
#include "terminal.h"

namespace heed::cli {
namespace {

template <typename Number>
Json known(const std::optional<Number>& number) {
  return number ? Json(*number) : Json();
}

std::vector<Field> make_fields() {
  using enum FieldKind;
  return {
      {"cell", text, [](const Row& row) -> Json { return describe(row.cell); }},
      {"batch", number, [](const Row& row) -> Json { return row.cell.batch; }},
      {"heads", number, [](const Row& row) -> Json { return row.cell.heads; }},
      {"kv_heads", number, [](const Row& row) -> Json { return row.cell.kv_heads; }},
      {"queries", number, [](const Row& row) -> Json { return row.cell.queries; }},
      {"keys", number, [](const Row& row) -> Json { return row.cell.keys; }},
      {"d", number, [](const Row& row) -> Json { return row.cell.d; }},
      {"d_v", number, [](const Row& row) -> Json { return row.cell.d_v; }},
      {"dtype", text, [](const Row& row) -> Json { return name_of(row.cell.dtype); }},
      {"mask", text, [](const Row& row) -> Json { return name_of(row.cell.mask); }},
      {"layout", text, [](const Row& row) -> Json { return name_of(row.cell.layout); }},
      {"decode_order", text, [](const Row& row) -> Json { return name_of(row.cell.decode_order); }},
      {"weights", truth, [](const Row& row) -> Json { return row.cell.weights; }},
      {"statistics", truth, [](const Row& row) -> Json { return row.cell.statistics; }},
      {"threads", number, [](const Row& row) -> Json { return row.threads; }},
      {"visible_pairs", number,
       [](const Row& row) -> Json { return static_cast<std::int64_t>(row.pairs); }},
      {"samples", number, [](const Row& row) -> Json { return row.times.samples; }},
      {"attempts", number, [](const Row& row) -> Json { return row.attempts; }},
      {"median_seconds", number, [](const Row& row) -> Json { return row.times.median; }},
      {"minimum_seconds", number, [](const Row& row) -> Json { return row.times.minimum; }},
      {"median_absolute_deviation_seconds", number,
       [](const Row& row) -> Json { return row.times.deviation; }},
      {"gflops", number, [](const Row& row) -> Json { return row.gflops(row.times.median); }},
      {"gflops_best", number, [](const Row& row) -> Json { return row.gflops(row.times.minimum); }},
      {"percent_of_peak", number,
       [](const Row& row) -> Json { return row.percent_of_peak(row.times.median); }},
      {"percent_of_peak_best", number,
       [](const Row& row) -> Json { return row.percent_of_peak(row.times.minimum); }},
      {"fma_peak_gflops_before", number, [](const Row& row) -> Json { return row.peak_before; }},
      {"fma_peak_gflops_after", number, [](const Row& row) -> Json { return row.peak_after; }},
      {"fma_peak_of", text,
       [](const Row& row) -> Json { return fma_peak_of(row.explanation.isa); }},
      {"gb_per_second", number, [](const Row& row) -> Json { return row.gb_per_second(); }},
      {"percent_of_read", number, [](const Row& row) { return known(row.percent_of_read()); }},
      {"read_gb_per_second", number,
       [](const Row& row) { return row.read_bandwidth > 0 ? Json(row.read_bandwidth) : Json(); }},
      {"peak_bytes", number, [](const Row& row) { return known(row.peak_bytes); }},
      {"scratch_bytes", number,
       [](const Row& row) -> Json { return row.explanation.scratch_bytes; }},
      {"max_error", number, [](const Row& row) -> Json { return row.accuracy.max_error; }},
      {"error_against", text, [](const Row& row) -> Json { return row.accuracy.against; }},
      {"error_rows", number, [](const Row& row) -> Json { return row.accuracy.rows; }},
      {"instruction_set", text,
       [](const Row& row) -> Json { return name_of(row.explanation.isa); }},
      {"path", text, [](const Row& row) -> Json { return row.explanation.path; }},
      {"threads_used", number, [](const Row& row) -> Json { return row.explanation.threads; }},
      {"tiles_computed", number,
       [](const Row& row) -> Json { return row.explanation.tiles_computed; }},
      {"tiles_skipped", number,
       [](const Row& row) -> Json { return row.explanation.tiles_skipped; }},
      {"hash", text,
       [](const Row& row) -> Json {
         return format("%016llx", static_cast<unsigned long long>(row.hash));
       }},
      {"stable", truth, [](const Row& row) -> Json { return row.doubts().empty(); }},
      {"doubts", texts, [](const Row& row) -> Json { return row.doubts(); }},
      {"cpu", text, [](const Row&) -> Json { return cpu_model(); }},
      {"compiler", text, [](const Row&) -> Json { return compiler(); }},
      {"version", text, [](const Row&) -> Json { return version(); }},
  };
}

}  // namespace

const std::vector<Field>& row_fields() {
  static const std::vector<Field> fields = make_fields();
  return fields;
}

Json json_of(const Row& row) {
  Json json = Json::object();
  for (const Field& field : row_fields()) json[field.name] = field.of(row);
  return json;
}

}  // namespace heed::cli

// heed bench: how fast and how exact attention of these shapes is on this machine.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench_check.h"
#include "bench_output.h"
#include "commands.h"
#include "flags.h"
#include "heed/attention.h"
#include "heed/io.h"
#include "terminal.h"

namespace heed::cli {
namespace {

constexpr double kMaxSeconds = 3600;
constexpr double kMaxCells = 10000;

constexpr const char* kExamples =
    "Examples:\n"
    "  heed bench                                        n 2048, d 64, one head\n"
    "  heed bench --n 512,2048 --d 64,128 --mask none,causal --layout bhtd,bthd\n"
    "  heed bench --heads 32/8 --n 1024 --d 128 --mask causal-window=256 --threads 1,2\n"
    "  heed bench --n 777x1333 --d 33x50 --json\n"
    "  heed bench --check 'percent_of_peak_best>=80' --check 'max_error<=1e-5'\n";

struct BenchFlags {
  std::vector<Count> batch{{1}};
  std::vector<Pair<'/'>> heads{{1, 1}};
  std::vector<Pair<'x'>> n{{2048, 2048}}, d{{64, 64}};
  std::vector<DType> dtype{DType::f32};
  std::vector<CellMask> mask{{}};
  std::vector<Layout> layout{Layout::bhtd};
  std::vector<DecodeOrder> decode_order{DecodeOrder::of_prefill};
  std::vector<Threads> threads{{1}};
  bool weights = false;
  bool statistics = false;
  double seconds = 2.0;
  Format format = Format::table;
  bool json = false;
  std::vector<std::string> checks;

  template <typename Visitor>
  void visit(Visitor& flag) {
    flag.group("Cells: each flag takes a list, and the lists cross, the last one fastest");
    flag("--batch", batch, "B,..", "batch entries (default 1)");
    flag("--heads", heads, "H|H/Hk,..",
         "query heads and, if fewer, heads of keys and values (default 1)");
    flag("--n", n, "N|NQxNK,..", "queries and, if they differ, keys (default 2048)");
    flag("--d", d, "D|DxDv,..", "size of a head and, if it differs, of its values (default 64)");
    flag("--dtype", dtype, "TYPE,..",
         "float32 (f32, default), float64 (f64), float16 (f16) or\nbfloat16 (bf16)");
    flag("--mask", mask, "MASK,..",
         "none (default); causal; window=L:R, from L keys before the query\n"
         "to R after it, each a number or inf; causal-window=L; keep, half\n"
         "of all pairs at random; bias, a float mask; padded, only the\n"
         "first half of the keys counts");
    flag("--layout", layout, "ORDER,..", "axes in memory: bhtd (default) or bthd");
    flag("--decode-order", decode_order, "ORDER,..",
         "of sums where one query row stands on each KV head: prefill\n"
         "(default) or key-by-key");
    flag("--threads", threads, "N,..", "number of threads (default 1; 0: see heed info)");
    flag.group("Running");
    flag("--weights", weights, "", "return the weights too");
    flag("--statistics", statistics, "", "return all statistics of the rows too");
    flag("--seconds", seconds, "S", "how long to measure each cell, at least (default 2)");
    flag("--check", checks, "FIELD>=X",
         "FIELD>=X or FIELD<=X: exit 1 unless every row keeps it; FIELD is a\n"
         "number of --json, such as gflops; may be repeated");
    flag.group("Output");
    flag("--format", format, "FORMAT", "table (default), markdown, csv or jsonl (JSON lines)");
    flag("--json", json, "", "print JSON, a list of rows");
  }
};

void check_flags(const CLI::App& app, const BenchFlags& flags) {
  for (const auto& heads : flags.heads) {
    if (heads.first % heads.second != 0) {
      throw UsageError(
          "--heads: the number of query heads must be a multiple of that of key heads, got " +
          std::to_string(heads.first) + "/" + std::to_string(heads.second));
    }
  }
  if (!(flags.seconds > 0) || flags.seconds > kMaxSeconds) {
    throw UsageError("--seconds: expected a number above 0, at most " + exact_digits(kMaxSeconds) +
                     ", got " + exact_digits(flags.seconds));
  }
  if (flags.json && given(app, "--format")) {
    throw UsageError("--json and --format exclude each other");
  }
}

// Every cell so far, with each of the values in turn.
template <typename Value, typename Set>
void cross(std::vector<Cell>& cells, const std::vector<Value>& values, Set set) {
  if (static_cast<double>(cells.size()) * static_cast<double>(values.size()) > kMaxCells) {
    throw UsageError(format("the lists cross to more than %.0f cells", kMaxCells));
  }
  std::vector<Cell> crossed;
  for (const Cell& cell : cells) {
    for (const Value& value : values) set(crossed.emplace_back(cell), value);
  }
  cells = std::move(crossed);
}

std::vector<Cell> cells_of(const BenchFlags& flags) {
  std::vector<Cell> cells{{.weights = flags.weights, .statistics = flags.statistics}};
  cross(cells, flags.batch, [](Cell& cell, Count batch) { cell.batch = batch.value; });
  cross(cells, flags.heads, [](Cell& cell, const Pair<'/'>& heads) {
    cell.heads = heads.first;
    cell.kv_heads = heads.second;
  });
  cross(cells, flags.n, [](Cell& cell, const Pair<'x'>& n) {
    cell.queries = n.first;
    cell.keys = n.second;
  });
  cross(cells, flags.d, [](Cell& cell, const Pair<'x'>& d) {
    cell.d = d.first;
    cell.d_v = d.second;
  });
  cross(cells, flags.dtype, [](Cell& cell, DType dtype) { cell.dtype = dtype; });
  cross(cells, flags.mask, [](Cell& cell, const CellMask& mask) { cell.mask = mask; });
  cross(cells, flags.layout, [](Cell& cell, Layout layout) { cell.layout = layout; });
  cross(cells, flags.decode_order,
        [](Cell& cell, DecodeOrder order) { cell.decode_order = order; });
  cross(cells, flags.threads, [](Cell& cell, Threads threads) {
    cell.threads = threads.value != 0 ? threads.value : default_threads();
  });
  return cells;
}

// Before an hour of measuring, not at the last cell.
void check_memory(const std::vector<Cell>& cells) {
  const auto budget = static_cast<double>(memory_budget());
  for (const Cell& cell : cells) {
    if (memory_of(cell) <= budget) continue;
    throw Failure(ExitCode::memory, describe(cell) + ": takes about " +
                                        human_bytes(memory_of(cell)) + ", more than the " +
                                        human_bytes(budget) + ", 80 % of what is free");
  }
}

void run(const CLI::App& app, const BenchFlags& flags) {
  check_flags(app, flags);
  const std::vector<Check> checks = parse_checks(flags.checks);
  const std::vector<Cell> cells = cells_of(flags);
  check_memory(cells);
  const auto printer = make_printer(flags.json ? Format::json : flags.format, cells);
  Bench bench(flags.seconds);
  std::size_t failed = 0;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Row row = bench.measure(cells[i], format("cell %zu of %zu", i + 1, cells.size()));
    printer->row(row);
    finish_output();
    const std::string broken = broken_checks(checks, row);
    if (broken.empty()) continue;
    ++failed;
    print_message("heed bench: " + describe(cells[i]) + ": " + broken);
  }
  printer->finish();
  finish_output();
  if (failed > 0) {
    throw Failure(ExitCode::check_failed, format("--check: of the cells %zu failed, %zu held",
                                                 failed, cells.size() - failed));
  }
}

}  // namespace

Action add_bench(CLI::App& root) {
  CLI::App& app =
      add_command(root, "bench", "speed and accuracy of attention on this machine", kExamples);
  auto flags = std::make_shared<BenchFlags>();
  AddFlags add(app);
  flags->visit(add);
  return [&app, flags] { run(app, *flags); };
}

}  // namespace heed::cli

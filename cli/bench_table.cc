// Rows for people: an aligned table, Markdown, and a block of lines for a single cell.
#include <algorithm>
#include <functional>
#include <utility>

#include "bench_output.h"
#include "heed/runtime.h"
#include "machine.h"
#include "plain_text.h"
#include "terminal.h"

namespace heed::cli {
namespace {

// What a cell consists of: each is a column where the cells differ, else part of the first line.
struct Axis {
  const char* name;
  std::string (*of)(const Cell& cell);
};

const std::vector<Axis>& axes() {
  static const std::vector<Axis> all{
      {"batch", [](const Cell& cell) { return std::to_string(cell.batch); }},
      {"heads", [](const Cell& cell) { return pair_text(cell.heads, cell.kv_heads, '/'); }},
      {"n", [](const Cell& cell) { return pair_text(cell.queries, cell.keys, 'x'); }},
      {"d", [](const Cell& cell) { return pair_text(cell.d, cell.d_v, 'x'); }},
      {"dtype", [](const Cell& cell) { return std::string(name_of(cell.dtype)); }},
      {"mask", [](const Cell& cell) { return name_of(cell.mask); }},
      {"layout", [](const Cell& cell) { return std::string(name_of(cell.layout)); }},
      {"decode-order", [](const Cell& cell) { return std::string(name_of(cell.decode_order)); }},
      {"threads", [](const Cell& cell) { return std::to_string(cell.threads); }}};
  return all;
}

std::string percent_text(double percent) { return format("%.1f %%", percent); }

// The measured part of a row.
struct Column {
  const char* name;
  std::size_t width;  ///< of the widest usual value: rows are printed before the next is known
  std::string (*of)(const Row& row);
};

const std::vector<Column>& columns() {
  static const std::vector<Column> all{
      {"median", 11,
       [](const Row& row) {
         return human_seconds(row.times.median) + (row.doubts().empty() ? "  " : " *");
       }},
      {"minimum", 9, [](const Row& row) { return human_seconds(row.times.minimum); }},
      {"spread", 6,
       [](const Row& row) { return percent_text(100.0 * row.times.deviation / row.times.median); }},
      {"GFLOP/s", 7, [](const Row& row) { return format("%.1f", row.gflops(row.times.median)); }},
      {"of peak", 7,
       [](const Row& row) { return percent_text(row.percent_of_peak(row.times.median)); }},
      {"best", 6,
       [](const Row& row) { return percent_text(row.percent_of_peak(row.times.minimum)); }},
      {"GB/s", 5, [](const Row& row) { return format("%.2f", row.gb_per_second()); }},
      {"of read", 7,
       [](const Row& row) {
         const auto percent = row.percent_of_read();
         return percent ? percent_text(*percent) : std::string("?");
       }},
      {"memory", 9,
       [](const Row& row) {
         return row.peak_bytes ? human_bytes(static_cast<double>(*row.peak_bytes))
                               : std::string("?");
       }},
      {"error", 8, [](const Row& row) { return format("%.2e", row.accuracy.max_error); }},
      {"kernel", 0, [](const Row& row) {
         return std::string(name_of(row.explanation.isa)) + ", " + row.explanation.path;
       }}};
  return all;
}

std::string padded(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

std::string machine_text() {
  return one_line(cpu_model()) + "; " + compiler() + "; heed " + std::string(version());
}

class Table final : public RowPrinter {
 public:
  Table(Format format, const std::vector<Cell>& cells) : format_(format) {
    for (const Axis& axis : axes()) {
      std::size_t width = std::string(axis.name).size();
      bool differs = false;
      for (const Cell& cell : cells) {
        width = std::max(width, axis.of(cell).size());
        differs = differs || axis.of(cell) != axis.of(cells[0]);
      }
      if (differs) {
        shown_.push_back({&axis, width});
      } else {
        common_ += (common_.empty() ? "" : ", ") + std::string(axis.name) + " " + axis.of(cells[0]);
      }
    }
    if (cells[0].weights) common_ += ", weights returned";
    if (cells[0].statistics) common_ += ", statistics returned";
  }

  void row(const Row& row) override {
    if (!std::exchange(begun_, true)) begin(row);
    print(line([&row](const Axis& axis) { return axis.of(row.cell); },
               [&row](const Column& column) { return column.of(row); }));
    std::string name;
    for (const auto& [axis, width] : shown_) {
      name += (name.empty() ? "" : ", ") + std::string(axis->name) + " " + axis->of(row.cell);
    }
    for (const auto& doubt : row.doubts()) {
      // A bare star would begin a list.
      doubts_ += (is_markdown() ? "\\* " : "* ") + name + (name.empty() ? "" : ": ") + doubt +
                 (is_markdown() ? "  \n" : "\n");
    }
  }

  void finish() override {
    if (!doubts_.empty()) print("\n" + doubts_);
  }

 private:
  struct Shown {
    const Axis* axis;
    std::size_t width;
  };

  [[nodiscard]] bool is_markdown() const { return format_ == Format::markdown; }

  void begin(const Row& row) const {
    print(machine_text() + (is_markdown() ? "  \n" : "\n"));
    print(common_ + format("; peak %.1f GFLOP/s", row.peak()) +
          (row.read_bandwidth > 0 ? format(", read %.1f GB/s", row.read_bandwidth) : "") +
          " at first\n\n");
    print(line([](const Axis& axis) { return std::string(axis.name); },
               [](const Column& column) { return std::string(column.name); }));
    if (!is_markdown()) return;
    std::string rule;
    for (std::size_t i = 0; i < shown_.size() + columns().size() - 1; ++i) rule += "|--:";
    print(rule + "|:--|\n");
  }

  // All to the right but the last column, which needs no width.
  [[nodiscard]] std::string line(
      const std::function<std::string(const Axis&)>& axis_text,
      const std::function<std::string(const Column&)>& column_text) const {
    std::string line;
    const auto add = [this, &line](const std::string& word) {
      if (is_markdown()) {
        line += "| " + word + " ";
      } else {
        line += (line.empty() ? "" : "  ") + word;
      }
    };
    for (const auto& [axis, width] : shown_) add(padded(axis_text(*axis), width));
    for (const Column& column : columns()) {
      const std::size_t width = std::max(column.width, std::string(column.name).size());
      add(padded(column_text(column), column.width == 0 ? 0 : width));
    }
    return line + (is_markdown() ? "|\n" : "\n");
  }

  Format format_;
  std::vector<Shown> shown_;
  std::string common_;
  std::string doubts_;
  bool begun_ = false;
};

class Block final : public RowPrinter {
 public:
  void row(const Row& row) override {
    const auto& explanation = row.explanation;
    print("cell     " + describe(row.cell) + "\n");
    print(format("path     %s; %s, %d thread%s\n", explanation.path.c_str(),
                 std::string(name_of(explanation.isa)).c_str(), explanation.threads,
                 explanation.threads == 1 ? "" : "s"));
    print(format("time     median %s, minimum %s, deviation %s, %zu samples\n",
                 human_seconds(row.times.median).c_str(), human_seconds(row.times.minimum).c_str(),
                 human_seconds(row.times.deviation).c_str(), row.times.samples));
    print(format("speed    %.1f GFLOP/s median, %.1f best\n", row.gflops(row.times.median),
                 row.gflops(row.times.minimum)));
    print(format("peak     %.1f %% median, %.1f %% best, of %.1f GFLOP/s measured in this run\n",
                 row.percent_of_peak(row.times.median), row.percent_of_peak(row.times.minimum),
                 row.peak()));
    print("read     " + read_text(row));
    print("memory   " + memory_text(row));
    print("error    " + error_text(row));
    print(format("output   hash %016llx\n", static_cast<unsigned long long>(row.hash)));
    print("machine  " + machine_text() + "\n");
    for (const auto& doubt : row.doubts()) print("doubt    " + doubt + "\n");
  }

 private:
  static std::string read_text(const Row& row) {
    std::string text = format("%.2f GB/s of q, k, v and output", row.gb_per_second());
    if (const auto percent = row.percent_of_read()) {
      return text +
             format(", %.1f %% of %.1f GB/s measured in this run\n", *percent, row.read_bandwidth);
    }
    return text + "; no memory to measure what there could be\n";
  }

  static std::string memory_text(const Row& row) {
    const std::string scratch =
        human_bytes(static_cast<double>(row.explanation.scratch_bytes)) + " of scratch\n";
    if (!row.peak_bytes) return "not known how much a call adds; it asks for " + scratch;
    return "a call adds " + human_bytes(static_cast<double>(*row.peak_bytes)) +
           " at most; it asks for " + scratch;
  }

  static std::string error_text(const Row& row) {
    std::string text =
        format("%.2e at most, against %s", row.accuracy.max_error, row.accuracy.against);
    if (row.accuracy.rows < row.cell.queries) {
      text +=
          format(", on a sample of %lld of %lld rows", static_cast<long long>(row.accuracy.rows),
                 static_cast<long long>(row.cell.queries));
    }
    return text + "\n";
  }
};

}  // namespace

std::unique_ptr<RowPrinter> make_table(Format format, const std::vector<Cell>& cells) {
  if (format == Format::table && cells.size() == 1) return std::make_unique<Block>();
  return std::make_unique<Table>(format, cells);
}

}  // namespace heed::cli

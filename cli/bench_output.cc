// Rows for machines: CSV, JSON, JSON lines.
#include "bench_output.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "bench_fields.h"
#include "csv.h"
#include "terminal.h"

namespace heed::cli {
namespace {

class JsonRows final : public RowPrinter {
 public:
  // Only the bracket that ends the list waits for the last row.
  void row(const Row& row) override {
    std::string text = first_ ? "[\n  " : ",\n  ";
    for (const char c : json_of(row).dump(2)) {
      text += c;
      if (c == '\n') text += "  ";
    }
    print(text);
    first_ = false;
  }
  void finish() override { print("\n]\n"); }

 private:
  bool first_ = true;
};

class JsonLines final : public RowPrinter {
 public:
  void row(const Row& row) override { print(json_of(row).dump() + "\n"); }
};

class Csv final : public RowPrinter {
 public:
  void row(const Row& row) override {
    std::string line;
    for (const Field& field : row_fields()) line.append(1, ',').append(csv_word(field.of(row)));
    if (first_) print(header());
    print(line.substr(1) + "\n");
    first_ = false;
  }

 private:
  static std::string header() {
    std::string line;
    for (const Field& field : row_fields()) line.append(1, ',').append(field.name);
    return line.substr(1) + "\n";
  }

  bool first_ = true;
};

}  // namespace

void parse(const std::string& word, Format& value) {
  if (word == "table") {
    value = Format::table;
  } else if (word == "markdown") {
    value = Format::markdown;
  } else if (word == "csv") {
    value = Format::csv;
  } else if (word == "jsonl") {
    value = Format::jsonl;
  } else if (word == "json") {
    throw std::invalid_argument("JSON has a flag of its own, --json");
  } else {
    throw std::invalid_argument("expected table, markdown, csv or jsonl, got '" + word + "'");
  }
}

std::unique_ptr<RowPrinter> make_printer(Format format, const std::vector<Cell>& cells) {
  if (format == Format::json) return std::make_unique<JsonRows>();
  if (format == Format::jsonl) return std::make_unique<JsonLines>();
  if (format == Format::csv) return std::make_unique<Csv>();
  return make_table(format, cells);
}

}  // namespace heed::cli

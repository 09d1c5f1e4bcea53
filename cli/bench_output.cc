// Rows for machines: CSV, JSON, JSON lines.
#include "bench_output.h"

#include <stdexcept>

#include "bench_fields.h"
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

// RFC 4180, with the line ends of this system.
class Csv final : public RowPrinter {
 public:
  void row(const Row& row) override {
    std::string line;
    for (const Field& field : row_fields()) line.append(1, ',').append(word(field.of(row)));
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

  static std::string word(const Json& value) {
    if (value.is_null()) return "";
    if (value.is_string()) return quoted(value.get<std::string>());
    if (!value.is_array()) return value.dump();
    std::string all;
    for (const auto& text : value) {
      if (!all.empty()) all += "; ";
      all += text.get<std::string>();
    }
    return quoted(all);
  }

  static std::string quoted(const std::string& text) {
    if (text.find_first_of("\",\r\n") == std::string::npos) return text;
    std::string quoted(1, '"');
    for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
    quoted.push_back('"');
    return quoted;
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

// How measured rows are printed: a table, Markdown, CSV, JSON, JSON lines.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench_row.h"

namespace heed::cli {

enum class Format : std::uint8_t { table, markdown, csv, json, jsonl };

/// "table", "markdown", "csv", "jsonl"; JSON is a flag of its own, as in the other commands.
void parse(const std::string& word, Format& value);

/// Prints rows as they come: what was measured is not lost if a later cell fails.
class RowPrinter {
 public:
  RowPrinter() = default;
  virtual ~RowPrinter() = default;
  RowPrinter(const RowPrinter&) = delete;
  RowPrinter& operator=(const RowPrinter&) = delete;

  virtual void row(const Row& row) = 0;
  virtual void finish() {}
};

/// A printer for exactly these cells; it prints nothing before the first row.
[[nodiscard]] std::unique_ptr<RowPrinter> make_printer(Format format,
                                                       const std::vector<Cell>& cells);

/// Its part for people, Format::table or Format::markdown: columns for what differs between the
/// cells and for what was measured; a table of one cell is a block of lines.
[[nodiscard]] std::unique_ptr<RowPrinter> make_table(Format format, const std::vector<Cell>& cells);

}  // namespace heed::cli

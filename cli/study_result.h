// What a study found: tables, and charts that draw columns of those tables and nothing else.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "json.h"

namespace heed::cli {

/// How a column's values look to people; machines get every digit.
enum class Shown : std::uint8_t { text, count, number, small, share, seconds, bytes };

struct StudyColumn {
  std::string name;
  Shown shown;
};

/// Who reads a table: what only charts draw is left out of the tables for people.
enum class Audience : std::uint8_t { everyone, charts };

struct StudyTable {
  std::string name;
  std::string title;
  std::vector<StudyColumn> columns;
  std::vector<std::vector<Json>> rows{};
  Audience audience = Audience::everyone;

  [[nodiscard]] std::size_t column(std::string_view wanted) const;
  [[nodiscard]] const Json& at(std::size_t row, std::string_view wanted) const;
};

enum class Mark : std::uint8_t {
  line,
  bars,
  cells  ///< a picture: each row of the table a row of cells, each series a column
};
enum class AxisKind : std::uint8_t { linear, logarithmic };
enum class Stroke : std::uint8_t { solid, dashed };
enum class Span : std::uint8_t { third, half, full };  ///< of a picture's width

/// A column drawn against the chart's x, of all rows or of those where `where` holds `equals`.
struct Series {
  std::string column;
  std::string label;
  Stroke stroke = Stroke::solid;
  std::string where{};
  Json equals{};
};

struct Chart {
  std::string title;
  std::string table;
  std::string x;  ///< a column
  std::string x_label, y_label;
  std::vector<Series> series;
  Mark mark = Mark::line;
  AxisKind x_axis = AxisKind::linear, y_axis = AxisKind::linear;
  Span span = Span::half;
};

struct Study {
  std::string name{};  ///< set by the command
  std::string title;
  std::string formula;
  std::string reads;  ///< one plain sentence: what the reader sees
  std::vector<StudyTable> tables{};
  std::vector<Chart> charts{};
  std::vector<std::string> findings{};  ///< sentences with this run's numbers
  Json facts = Json::object();          ///< generator, seed, tensors: what the numbers come from

  [[nodiscard]] const StudyTable& table(std::string_view wanted) const;
};

/// A value as people read it.
[[nodiscard]] std::string shown_text(const Json& value, Shown shown);

/// The rows of a series: indices into its table, those without a finite number left out.
[[nodiscard]] std::vector<std::size_t> rows_of(const StudyTable& table, const Series& series);

}  // namespace heed::cli

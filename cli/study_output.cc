// Studies for people and for machines, all from the same tables.
#include "study_output.h"

#include <algorithm>

#include "chart.h"
#include "csv.h"
#include "heed/io.h"
#include "plain_text.h"
#include "terminal.h"

namespace heed::cli {
namespace {

std::string aligned(const std::string& text, std::size_t width, Shown shown) {
  const std::string space(width - std::min(width, length_of(text)), ' ');
  return shown == Shown::text ? text + space : space + text;
}

using Cells = std::vector<std::string>;

// The names of columns as lines of a table: longer ones are cut at their underscores, and end on
// the last line.
std::vector<Cells> header_of(const StudyTable& table, Format format) {
  constexpr std::size_t kShort = 5;  // d_k
  std::vector<Cells> columns;
  std::size_t height = 1;
  for (const auto& [name, shown] : table.columns) {
    Cells& parts = columns.emplace_back();
    const bool whole = name.size() <= kShort || format == Format::markdown;
    for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
      end = whole ? std::string::npos : name.find('_', begin);
      parts.push_back(name.substr(begin, end - begin));
    }
    height = std::max(height, parts.size());
  }
  std::vector<Cells> lines(height, Cells(columns.size()));
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const std::size_t above = height - columns[i].size();
    for (std::size_t j = 0; j < columns[i].size(); ++j) lines[above + j][i] = columns[i][j];
  }
  return lines;
}

std::string table_text(const StudyTable& table, Format format) {
  const bool markdown = format == Format::markdown;
  std::vector<Cells> lines = header_of(table, format);
  const std::size_t header = lines.size();
  for (const auto& row : table.rows) {
    Cells& line = lines.emplace_back();
    for (std::size_t i = 0; i < row.size(); ++i) {
      line.push_back(one_line(shown_text(row[i], table.columns[i].shown)));
    }
  }
  std::vector<std::size_t> widths(table.columns.size());
  for (const Cells& line : lines) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], length_of(line[i]));
    }
  }
  std::string text = markdown ? "**" + table.title + "**\n\n" : table.title + "\n";
  for (std::size_t r = 0; r < lines.size(); ++r) {
    std::string one(markdown ? 1 : 0, '|');
    std::string rule(1, '|');
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::string word = aligned(lines[r][i], widths[i], table.columns[i].shown);
      one.append(markdown ? " " : "  ").append(word).append(markdown ? " |" : "");
      rule += table.columns[i].shown == Shown::text ? ":--|" : "--:|";
    }
    one.resize(one.find_last_not_of(' ') + 1);
    text += one + "\n";
    if (markdown && r + 1 == header) text += rule + "\n";
  }
  return text + "\n";
}

std::string paragraph(const std::string& text) {
  constexpr std::size_t kColumns = 80;
  std::string lines;
  std::size_t column = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find(' ', begin), text.size());
    if (column > 0 && column + 1 + end - begin > kColumns) {
      lines += "\n";
      column = 0;
    }
    lines.append(column > 0 ? " " : "").append(text, begin, end - begin);
    column += end - begin + (column > 0 ? 1 : 0);
    begin = end + 1;
  }
  return lines + "\n";
}

std::string study_text(const Study& study, Format format) {
  const bool markdown = format == Format::markdown;
  const Terminal terminal = terminal_of(1);
  std::string text =
      markdown ? "## " + study.title + "\n\n    " + study.formula + "\n\n"
               : styled(study.title, "1", terminal.colour) + "\n\n  " + study.formula + "\n\n";
  text += paragraph(study.reads) + "\n";
  for (const StudyTable& table : study.tables) {
    if (table.audience == Audience::everyone) text += table_text(table, format);
  }
  if (markdown) text += "```\n";
  for (const Chart& chart : study.charts) text += text_of(study, chart, terminal) + "\n";
  if (markdown) text += "```\n\n";
  for (const auto& finding : study.findings) text += paragraph(finding);
  return text;
}

Json row_json(const StudyTable& table, const std::vector<Json>& row, Json json) {
  for (std::size_t i = 0; i < row.size(); ++i) json[table.columns[i].name] = row[i];
  return json;
}

Json named_json(const std::vector<Study>& studies) {
  Json json = Json::object();
  for (const Study& study : studies) json[study.name] = json_of(study);
  return json;
}

std::string dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

Json json_of(const Study& study) {
  Json json = Json::object();
  json["title"] = study.title;
  json["formula"] = study.formula;
  json["reads"] = study.reads;
  for (const auto& [name, fact] : study.facts.items()) json[name] = fact;
  json["tables"] = Json::object();
  for (const StudyTable& table : study.tables) {
    Json& rows = json["tables"][table.name] = Json::array();
    for (const auto& row : table.rows) rows.push_back(row_json(table, row, Json::object()));
  }
  json["findings"] = study.findings;
  return json;
}

std::string csv_of(const std::vector<Study>& studies) {
  std::vector<std::string> columns;
  for (const Study& study : studies) {
    for (const StudyTable& table : study.tables) {
      for (const auto& [name, shown] : table.columns) {
        if (std::find(columns.begin(), columns.end(), name) == columns.end()) {
          columns.push_back(name);
        }
      }
    }
  }
  std::string text = "study,table";
  for (const auto& name : columns) text.append(1, ',').append(name);
  text += "\n";
  for (const Study& study : studies) {
    for (const StudyTable& table : study.tables) {
      for (const auto& row : table.rows) {
        const Json json = row_json(table, row, Json::object());
        text += study.name + "," + table.name;
        for (const auto& name : columns) {
          text += ',';
          if (json.contains(name)) text += csv_word(json[name]);
        }
        text += "\n";
      }
    }
  }
  return text;
}

void print_studies(const std::vector<Study>& studies, Format format) {
  if (format == Format::json) return print(dump(named_json(studies), 2));
  if (format == Format::csv) return print(csv_of(studies));
  for (const Study& study : studies) {
    if (format != Format::jsonl) {
      if (&study != &studies.front()) print("\n");
      print(study_text(study, format));
      continue;
    }
    for (const StudyTable& table : study.tables) {
      for (const auto& row : table.rows) {
        print(dump(row_json(table, row, {{"study", study.name}, {"table", table.name}}), -1));
      }
    }
  }
}

std::vector<std::string> files_of(const std::string& study, const std::string& folder) {
  const std::string path = folder + "/" + study;
  return {path + ".svg", path + ".csv", path + ".json"};
}

std::vector<std::string> write_study(const Study& study, const std::string& folder) {
  const std::vector<std::string> paths = files_of(study.name, folder);
  write_text(paths[0], svg_of(study));
  write_text(paths[1], csv_of({study}));
  write_text(paths[2], dump(named_json({study}), 2));
  return paths;
}

}  // namespace heed::cli

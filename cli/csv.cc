// Quotes and commas.
#include "csv.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace heed::cli {
namespace {

std::string in_quotes(const std::string& text) {
  if (text.find_first_of("\",\r\n") == std::string::npos) return text;
  std::string quoted(1, '"');
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  quoted.push_back('"');
  return quoted;
}

}  // namespace

std::string csv_word(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_number_float() && !std::isfinite(value.get<double>())) return "";  // null in JSON
  if (value.is_string()) return in_quotes(value.get<std::string>());
  if (!value.is_array()) return value.dump();
  std::string all;
  for (const auto& text : value) {
    if (!all.empty()) all += "; ";
    all += text.get<std::string>();
  }
  return in_quotes(all);
}

}  // namespace heed::cli

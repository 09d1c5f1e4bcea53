// Reading and holding of FIELD>=NUMBER.
#include "bench_check.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "exit_codes.h"
#include "suggest.h"
#include "terminal.h"

namespace heed::cli {
namespace {

const Field& field_named(const std::string& name) {
  std::vector<std::string> known;
  for (const Field& field : row_fields()) {
    if (field.kind != FieldKind::number) {
      if (name == field.name) throw UsageError("--check: " + name + " is no number");
      continue;
    }
    if (name == field.name) return field;
    known.emplace_back(field.name);
  }
  const std::string best = nearest(name, known);
  throw UsageError("--check: no field is named '" + name + "'" +
                   (best.empty() ? "; the fields of numbers are those of --json"
                                 : "; did you mean " + best + "?"));
}

Check parse_check(const std::string& word) {
  const auto at = word.find_first_of("<>");
  if (at == std::string::npos || at == 0 || word.compare(at + 1, 1, "=") != 0) {
    throw UsageError("--check: expected FIELD>=NUMBER or FIELD<=NUMBER, got '" + word + "'");
  }
  Check check{&field_named(word.substr(0, at)), word[at] == '>' ? Bound::at_least : Bound::at_most,
              0};
  const std::string number = word.substr(at + 2);
  try {
    parse(number, check.limit);
  } catch (const std::invalid_argument& error) {
    throw UsageError("--check " + word.substr(0, at + 2) + ": " + error.what());
  }
  if (!std::isfinite(check.limit)) {
    throw UsageError("--check: the limit of " + word.substr(0, at) + " must be finite, got '" +
                     number + "'");
  }
  return check;
}

bool holds(const Check& check, const Json& value) {
  if (!value.is_number()) return false;
  const auto number = value.get<double>();
  return check.bound == Bound::at_least ? number >= check.limit : number <= check.limit;
}

}  // namespace

std::vector<Check> parse_checks(const std::vector<std::string>& words) {
  std::vector<Check> checks;
  for (const auto& word : words) checks.push_back(parse_check(word));
  return checks;
}

std::string broken_checks(const std::vector<Check>& checks, const Row& row) {
  std::string broken;
  for (const Check& check : checks) {
    const Json value = check.field->of(row);
    if (holds(check, value)) continue;
    const std::string limit = exact_digits(check.limit);
    std::string found = "not known";
    if (value.is_number()) found = format("%.6g", value.get<double>());
    if (found == limit) found = exact_digits(value.get<double>());
    broken += broken.empty() ? "" : "; ";
    broken += std::string(check.field->name) + " is " + found + ", expected at " +
              (check.bound == Bound::at_least ? "least " : "most ") + limit;
  }
  return broken;
}

}  // namespace heed::cli

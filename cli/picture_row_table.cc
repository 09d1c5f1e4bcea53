// The rows that were asked for, as tables for terminals.
#include <algorithm>
#include <cmath>
#include <utility>

#include "picture_parts.h"
#include "plain_text.h"

namespace heed::cli {
namespace {

constexpr std::size_t kToken = 16;

using Line = std::vector<std::string>;

/// "2 animal 0.677": a key, what it is called, its weight.
std::string key_text(const Inspection& inspection, const TopKeys& top, std::size_t i) {
  const std::string number = std::to_string(top.keys[i]);
  const std::string token = token_of(inspection, top.keys[i], kToken);
  return number + (inspection.tokens.empty() || token.empty() ? "" : " " + token) +
         format(" %.3f", static_cast<double>(top.weights[i]));
}

/// As many of the largest weights as there is room for, one at least.
std::string keys_text(const Inspection& inspection, const TopKeys& top, std::size_t room) {
  if (top.visible == 0) return "sees no key";
  if (std::isnan(top.entropy_share)) return "NaN";
  std::string text;
  const std::size_t count = std::min(top.keys.size(), top.weights.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::string next = (i == 0 ? "" : ", ") + key_text(inspection, top, i);
    const std::size_t more = i + 1 < count ? 4 : 0;  // ", .."
    if (i > 0 && length_of(text) + length_of(next) + more > room) return text + ", ..";
    text += next;
  }
  return text;
}

std::string number(double value, bool known) { return known ? format("%.3f", value) : "-"; }

/// Layer, head and what the row's numbers are; the keys come behind.
Line line_of(const HeadInspection& head, const TopKeys& top) {
  const bool known = top.counts();
  const double largest = top.weights.empty() ? 0 : static_cast<double>(top.weights.front());
  return {std::to_string(head.layer),  std::to_string(head.head),
          std::to_string(top.visible), number(top.entropy_share, known),
          number(largest, known),      number(static_cast<double>(top.mass), known)};
}

std::string row_text(const Inspection& inspection, std::int64_t row, const Terminal& terminal) {
  std::vector<Line> lines{{"layer", "head", "sees", "entropy", "largest", "covered"}};
  std::vector<const TopKeys*> tops{nullptr};
  std::size_t listed = 0;
  for (const HeadInspection& head : inspection.found) {
    const auto at = std::find_if(head.top.begin(), head.top.end(),
                                 [row](const TopKeys& top) { return top.row == row; });
    if (at == head.top.end()) continue;
    lines.push_back(line_of(head, *at));
    tops.push_back(&*at);
    listed = std::max(listed, at->keys.size());
  }
  if (lines.size() == 1) return "";
  std::vector<std::size_t> widths(lines[0].size());
  std::size_t left = 0;
  for (std::size_t c = 0; c < widths.size(); ++c) {
    for (const Line& line : lines) widths[c] = std::max(widths[c], line[c].size());
    left += widths[c] + 2;
  }
  const std::string token = row_token(inspection, row, kToken);
  const bool named = !inspection.tokens.empty() && inspection.queries == inspection.keys;
  std::string text = numbered("Row ", row) + (named ? " \"" + token + "\"" : "") +
                     numbered(": what its ", static_cast<std::int64_t>(listed)) +
                     (listed == 1 ? " largest weight covers" : " largest weights cover");
  text = styled(text, "1", terminal.colour) + "\n";
  const auto width = static_cast<std::size_t>(std::max(terminal.width, 0));
  for (std::size_t n = 0; n < lines.size(); ++n) {
    std::string line;
    for (std::size_t c = 0; c < widths.size(); ++c) {
      line += std::string(widths[c] - lines[n][c].size(), ' ') + lines[n][c] + "  ";
    }
    const std::size_t room = width > left ? width - left : 0;
    line += n == 0 ? "keys and weights" : keys_text(inspection, *tops[n], room);
    text += (n == 0 ? styled(line, "1", terminal.colour) : line) + "\n";
  }
  return text;
}

}  // namespace

std::string rows_text(const Inspection& inspection, const Terminal& terminal) {
  std::string text;
  for (const std::int64_t row : inspection.rows_asked) {
    const std::string table = row_text(inspection, row, terminal);
    if (!table.empty()) text += "\n" + table;
  }
  return text;
}

}  // namespace heed::cli

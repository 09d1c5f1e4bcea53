// Everything that is drawn from an inspection: files, the page, and maps for terminals.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "inspection.h"
#include "terminal.h"

namespace heed::cli {

/// A file: its name without a folder, and what is in it.
struct Picture {
  std::string name;
  std::string bytes;
};

/// A head that pictures of single heads are made of, and why.
struct ChosenHead {
  std::int64_t layer = 0, head = 0;
  std::string reason{};
};

/// The heads that were asked for. Without any, all heads if there are at most four; else up to six,
/// one after the other the one that is most so of those left: sharp, uniform, with saturated rows,
/// resting on one key, keeping one distance, and with wide scores, in the order of layers and
/// heads.
[[nodiscard]] std::vector<ChosenHead> interesting_heads(const Inspection& inspection);

/// SVG for charts and text, PNG for maps, and beside each a CSV of the same numbers: the poster of
/// all heads, entropy and saturation of all rows, histogram of scores, distance, mask; for each
/// chosen head its maps, arcs and the stories of the rows that were asked for, or of up to five
/// told ones.
[[nodiscard]] std::vector<Picture> pictures_of(const Inspection& inspection,
                                               const std::vector<ChosenHead>& chosen);
[[nodiscard]] std::vector<Picture> pictures_of(const Inspection& inspection);

/// What changed from one run to another: lift of the second less that of the first, head by head,
/// and a table of the numbers that changed. Throws std::invalid_argument if their heads, rows, keys
/// or maps are not equally many.
[[nodiscard]] std::vector<Picture> difference_of(const Inspection& first, const Inspection& second);

/// One page that holds all it needs, for any browser, below 5 MB whatever was inspected.
[[nodiscard]] std::string html_report(const Inspection& inspection);

/// Lift of all heads as small maps, with each head's mean entropy share, no wider than the
/// terminal.
[[nodiscard]] std::string poster_text(const Inspection& inspection, const Terminal& terminal);

/// Where one row looks: a bar for each of its largest weights, and what they add up to. Empty if
/// the inspection does not hold the row.
[[nodiscard]] std::string arcs_text(const Inspection& inspection, const ChosenHead& head,
                                    std::int64_t row, const Terminal& terminal);

/// A table for each row that was asked for, a line for each head: how even its weights are, the
/// largest ones, as many as fit, and what the --top largest add up to. Empty if no row was asked
/// for.
[[nodiscard]] std::string rows_text(const Inspection& inspection, const Terminal& terminal);

}  // namespace heed::cli

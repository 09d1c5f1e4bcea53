// How studies are printed and stored: tables, charts, CSV, JSON, SVG.
#pragma once

#include <string>
#include <vector>

#include "bench_output.h"
#include "study_result.h"

namespace heed::cli {

/// One for each study, every figure with all its digits.
[[nodiscard]] Json json_of(const Study& study);

/// All rows of all tables of the studies, whose columns stand beside each other after `study` and
/// `table`; what a row does not have is empty.
[[nodiscard]] std::string csv_of(const std::vector<Study>& studies);

/// Prints in any of the formats.
void print_studies(const std::vector<Study>& studies, Format format);

/// NAME.svg, NAME.csv and NAME.json of a study in a folder.
[[nodiscard]] std::vector<std::string> files_of(const std::string& study,
                                                const std::string& folder);

/// Writes them, and returns their paths.
std::vector<std::string> write_study(const Study& study, const std::string& folder);

}  // namespace heed::cli

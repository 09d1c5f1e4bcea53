// What the pictures of an inspection share: scales, maps as images, names, lines of CSV.
#pragma once

#include <string>
#include <vector>

#include "inspection.h"
#include "json.h"
#include "pictures.h"
#include "png_file.h"
#include "svg.h"

namespace heed::cli {

/// Lift from -log2(columns) to log2(columns): the upper end is a cell that holds its rows' whole
/// weight.
[[nodiscard]] Scale lift_scale(const Inspection& inspection);

/// A decimal's worth of digits: the double that prints as the shortest text that is this float.
[[nodiscard]] double shortest(float value);

/// The scores that a histogram shows: -4 to 4, where N(0, 1) lies, and whole bins further out as
/// far as all but 0.1 % of the scores reach.
struct ScoreReach {
  double low = -4, high = 4;
};
[[nodiscard]] ScoreReach reach_of_scores(const Inspection& inspection,
                                         const std::vector<std::int64_t>& counts);

/// The mean density of N(0, 1) between two scores.
[[nodiscard]] double normal_density(double low, double high);

/// Cells as pixels.
[[nodiscard]] Image image_of(const CellMap& map, const Scale& scale);

/// A map within a box, hidden cells hatched.
void draw_map(Svg& svg, const CellMap& map, const Scale& scale, const Box& box);

/// A strip of all colours with its ends and middle written below.
void draw_colours(Svg& svg, const Scale& scale, const Box& box, const std::string& title);

/// Fewer cells: each holds log2 of the mean of 2^x over the cells with a number that it covers.
[[nodiscard]] CellMap pooled_lift(const CellMap& map, int rows, int columns);

/// The first of `count` things that lie in this one of `cells` cells, and one past the last.
struct Reach {
  std::int64_t first, end;
};
[[nodiscard]] Reach reach_of(int cell, int cells, std::int64_t count);

/// "3", or "3-5" for cells of several.
[[nodiscard]] std::string name_of(const Reach& reach);

/// One line of a CSV file.
[[nodiscard]] std::string csv_line(const std::vector<Json>& cells);

/// Somebody else's text as a cell that no spreadsheet computes: with "'" before it where it begins
/// as a formula does.
[[nodiscard]] std::string csv_text(std::string text);

/// A word and a number.
[[nodiscard]] std::string numbered(const char* word, std::int64_t number);

/// "L3 H1" for people, "l3_h1" for files.
[[nodiscard]] std::string head_name(std::int64_t layer, std::int64_t head);
[[nodiscard]] std::string head_file(std::int64_t layer, std::int64_t head);

/// A key's token, safe to show, of at most `most` characters.
[[nodiscard]] std::string token_of(const Inspection& inspection, std::int64_t key,
                                   std::size_t most);

/// The same for a label that has room for so many letters.
[[nodiscard]] std::string key_label(const Inspection& inspection, std::int64_t key,
                                    std::size_t most);
[[nodiscard]] std::string row_label(const Inspection& inspection, std::int64_t row,
                                    std::size_t most);

/// The token of a query row where rows and keys are the same tokens, else its number.
[[nodiscard]] std::string row_token(const Inspection& inspection, std::int64_t row,
                                    std::size_t most);

/// "1 query" or "2 queries": a count and its word.
[[nodiscard]] std::string count_text(std::int64_t count, const char* one, const char* more);

/// What was inspected, in a line.
[[nodiscard]] std::string subject_of(const Inspection& inspection);

// Each adds its pictures to the list.
void add_poster(std::vector<Picture>& pictures, const Inspection& inspection);
void add_row_maps(std::vector<Picture>& pictures, const Inspection& inspection);
void add_charts(std::vector<Picture>& pictures, const Inspection& inspection,
                const std::vector<ChosenHead>& chosen);
void add_mask(std::vector<Picture>& pictures, const Inspection& inspection);
void add_head_map(std::vector<Picture>& pictures, const Inspection& inspection,
                  const ChosenHead& chosen);
void add_arcs(std::vector<Picture>& pictures, const Inspection& inspection,
              const ChosenHead& chosen);
void add_stories(std::vector<Picture>& pictures, const Inspection& inspection,
                 const ChosenHead& chosen);

}  // namespace heed::cli

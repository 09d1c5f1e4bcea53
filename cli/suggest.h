// Did you mean: the nearest of the words that would have been right.
#pragma once

#include <string>
#include <vector>

namespace heed::cli {

/// The candidate nearest to the word, or "" if none is near: at most 2 edits, and a third of the
/// word without the dashes of a flag.
[[nodiscard]] std::string nearest(const std::string& word,
                                  const std::vector<std::string>& candidates);

/// "run, inspect or demo"
[[nodiscard]] std::string alternatives(const std::vector<std::string>& words);

}  // namespace heed::cli

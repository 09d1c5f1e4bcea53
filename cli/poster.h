// A grid of small maps, one for each layer and head, in one image.
#pragma once

#include <string>
#include <vector>

#include "inspection.h"
#include "png_file.h"
#include "svg.h"

namespace heed::cli {

struct PosterText {
  std::string title, reads, subject, colours;
};

/// What stands below a map: a bar of this share, and a text, or a brief one where maps are narrow.
struct PosterLabel {
  double share = 0;
  const char* style = "f0";
  std::string text{}, brief{}, title{};
};

class Poster {
 public:
  Poster(std::int64_t layer_count, std::int64_t head_count, int rows, int columns);

  void put(std::int64_t layer, std::int64_t head, const CellMap& map, const Scale& scale);

  /// The maps alone, small ones enlarged.
  [[nodiscard]] Image raster() const;

  /// An SVG document: the maps with their names and labels, one label for each head of each layer.
  [[nodiscard]] std::string document(const PosterText& text, const Scale& scale,
                                     const std::vector<PosterLabel>& labels) const;

 private:
  /// Of a map in the grid.
  struct Place {
    int line = 0, column = 0;
  };
  [[nodiscard]] Place place(std::int64_t layer, std::int64_t head) const;
  [[nodiscard]] Box box(const Place& place) const;

  int layers_, heads_, rows_, columns_;
  int lines_, in_line_;            ///< of a layer, and maps in each
  double width_ = 0, height_ = 0;  ///< of a map in the document
  double cell_ = 0, row_ = 0;      ///< of a pixel there
  int gap_x_ = 0, gap_y_ = 0;      ///< between maps, in pixels
  Image image_{};
};

}  // namespace heed::cli

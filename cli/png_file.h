// PNG files in memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "palette.h"

namespace heed::cli {

/// A picture of 8-bit indices into a palette, row by row; index 0 is transparent.
struct Image {
  int width = 0, height = 0;
  std::vector<std::uint8_t> pixels{};

  Image() = default;
  Image(int w, int h)
      : width(w), height(h), pixels(static_cast<std::size_t>(w) * static_cast<std::size_t>(h)) {}

  [[nodiscard]] std::uint8_t& at(int x, int y) {
    return pixels[static_cast<std::size_t>(y) * static_cast<std::size_t>(width) +
                  static_cast<std::size_t>(x)];
  }
  [[nodiscard]] std::uint8_t at(int x, int y) const {
    return pixels[static_cast<std::size_t>(y) * static_cast<std::size_t>(width) +
                  static_cast<std::size_t>(x)];
  }
};

/// Each pixel as so many.
[[nodiscard]] Image enlarged(const Image& image, int across, int down);

/// A map of few cells to about 512 pixels, squares but where that would be a sliver.
[[nodiscard]] Image enlarged(const Image& image);

/// The file. An image without pixels becomes one transparent pixel, since PNG knows no empty ones.
/// Throws std::bad_alloc, and nothing else.
[[nodiscard]] std::string png_of(const Image& image, const Palette& colours);

}  // namespace heed::cli

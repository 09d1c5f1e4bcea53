// Colour maps: what a number looks like on a light and on a dark ground.
#pragma once

#include <array>
#include <cstdint>

namespace heed::cli {

struct Rgb {
  std::uint8_t red = 0, green = 0, blue = 0;
  friend bool operator==(const Rgb&, const Rgb&) = default;
};

enum class Theme : std::uint8_t { light, dark };

/// lift: 0 is close to the ground, what is below it blue, what is above it orange and far from the
/// ground. share: from the ground away. Blue and orange differ for all kinds of colour vision, and
/// in both maps more stands out more, so that they read without colours too.
enum class ColourMap : std::uint8_t { lift, share };

/// 1 to 255 from low to high, 128 the middle; 0 is for cells without a number, and not drawn.
using Palette = std::array<Rgb, 256>;
[[nodiscard]] const Palette& palette(ColourMap map, Theme theme);

/// Where numbers stand in a palette.
struct Scale {
  double low = 0, high = 1;
  ColourMap colours = ColourMap::share;

  /// What is beyond an end counts as the end; NaN is 0.
  [[nodiscard]] std::uint8_t index(double value) const noexcept;
};

/// What stands for an index of the map of lift, which is not 0, among a terminal's 256 colours. A
/// list of its own: the nearest of their few colours are mostly greys.
[[nodiscard]] int indexed_lift(std::uint8_t index, Theme theme);

}  // namespace heed::cli

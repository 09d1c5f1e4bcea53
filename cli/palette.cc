// A few colours by hand and all between them in Oklab, where equal steps look equal.
#include "palette.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace heed::cli {
namespace {

struct Stop {
  double place;  // 0 .. 1
  unsigned colour;
};

using Lab = std::array<double, 3>;

Rgb rgb_of(unsigned hex) {
  return {static_cast<std::uint8_t>(hex >> 16U & 255U), static_cast<std::uint8_t>(hex >> 8U & 255U),
          static_cast<std::uint8_t>(hex & 255U)};
}

double to_linear(std::uint8_t byte) {
  const double x = byte / 255.0;
  return x <= 0.04045 ? x / 12.92 : std::pow((x + 0.055) / 1.055, 2.4);
}

std::uint8_t to_byte(double x) {
  x = std::clamp(x, 0.0, 1.0);
  const double y = x <= 0.0031308 ? 12.92 * x : 1.055 * std::pow(x, 1 / 2.4) - 0.055;
  return static_cast<std::uint8_t>(std::lround(255.0 * y));
}

// B. Ottosson, "A perceptual color space for image processing" (2020).
Lab lab_of(Rgb colour) {
  const double r = to_linear(colour.red);
  const double g = to_linear(colour.green);
  const double b = to_linear(colour.blue);
  const double l = std::cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const double m = std::cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const double s = std::cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return {0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s,
          1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
          0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s};
}

Rgb rgb_of(const Lab& lab) {
  const double l = std::pow(lab[0] + 0.3963377774 * lab[1] + 0.2158037573 * lab[2], 3);
  const double m = std::pow(lab[0] - 0.1055613458 * lab[1] - 0.0638541728 * lab[2], 3);
  const double s = std::pow(lab[0] - 0.0894841775 * lab[1] - 1.2914855480 * lab[2], 3);
  return {to_byte(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
          to_byte(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
          to_byte(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s)};
}

Palette between(const std::vector<Stop>& stops) {
  Palette colours{};
  for (int i = 1; i < 256; ++i) {
    const double place = (i - 1) / 254.0;
    std::size_t next = 1;
    while (next + 1 < stops.size() && stops[next].place < place) ++next;
    const Stop& from = stops[next - 1];
    const Stop& to = stops[next];
    const double share = std::clamp((place - from.place) / (to.place - from.place), 0.0, 1.0);
    const Lab a = lab_of(rgb_of(from.colour));
    const Lab b = lab_of(rgb_of(to.colour));
    Lab mixed{};
    for (std::size_t j = 0; j < 3; ++j) mixed[j] = a[j] + share * (b[j] - a[j]);
    colours[static_cast<std::size_t>(i)] = rgb_of(mixed);
  }
  return colours;
}

}  // namespace

const Palette& palette(ColourMap map, Theme theme) {
  static const Palette kLiftLight = between({{0, 0x86aeda},
                                             {0.25, 0xbdd2ea},
                                             {0.5, 0xf4f2ed},
                                             {0.68, 0xf3a95a},
                                             {0.84, 0xc9481a},
                                             {1, 0x5c1004}});
  static const Palette kLiftDark = between({{0, 0x2a5486},
                                            {0.25, 0x253d59},
                                            {0.5, 0x24262b},
                                            {0.68, 0x9a5414},
                                            {0.84, 0xeb9a2d},
                                            {1, 0xfff3c4}});
  static const Palette kShareLight =
      between({{0, 0xf4f3ee}, {0.25, 0xb5d3e2}, {0.5, 0x5c9bc2}, {0.75, 0x285f9c}, {1, 0x131f4a}});
  static const Palette kShareDark =
      between({{0, 0x1f2126}, {0.25, 0x1f4669}, {0.5, 0x2f80a7}, {0.75, 0x74c3b6}, {1, 0xf5f8c9}});
  if (map == ColourMap::lift) return theme == Theme::light ? kLiftLight : kLiftDark;
  return theme == Theme::light ? kShareLight : kShareDark;
}

std::uint8_t Scale::index(double value) const noexcept {
  if (std::isnan(value)) return 0;
  const double share = std::clamp((value - low) / (high - low), 0.0, 1.0);
  return static_cast<std::uint8_t>(1 + std::lround(254.0 * share));
}

int indexed_lift(std::uint8_t index, Theme theme) {
  using Ramp = std::array<int, 11>;
  constexpr Ramp kLight{110, 146, 153, 189, 254, 255, 223, 215, 202, 124, 52};
  constexpr Ramp kDark{25, 25, 24, 238, 236, 235, 94, 130, 172, 214, 230};
  const Ramp& ramp = theme == Theme::light ? kLight : kDark;
  return ramp[static_cast<std::size_t>(index - 1) * ramp.size() / 255];
}

}  // namespace heed::cli

// PNG files, colours and base64: read back, or compared with what is known.
#include <gtest/gtest.h>
#include <png.h>

#include <array>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "base64.h"
#include "palette.h"
#include "png_file.h"

namespace heed::cli {
namespace {

struct Decoded {
  int width = 0, height = 0;
  std::vector<std::uint8_t> rgba;
};

Decoded decode(const std::string& file) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  EXPECT_NE(png_image_begin_read_from_memory(&image, file.data(), file.size()), 0);
  image.format = PNG_FORMAT_RGBA;
  Decoded decoded{static_cast<int>(image.width), static_cast<int>(image.height), {}};
  decoded.rgba.resize(PNG_IMAGE_SIZE(image));
  EXPECT_NE(png_image_finish_read(&image, nullptr, decoded.rgba.data(), 0, nullptr), 0);
  return decoded;
}

TEST(png, decodes_to_the_pixels_that_were_given) {
  Image image(37, 21);
  for (int y = 0; y < 21; ++y) {
    for (int x = 0; x < 37; ++x) image.at(x, y) = static_cast<std::uint8_t>((x * 7 + y * 13) % 256);
  }
  const Palette& colours = palette(ColourMap::lift, Theme::light);
  const Decoded decoded = decode(png_of(image, colours));
  ASSERT_EQ(std::pair(decoded.width, decoded.height), std::pair(37, 21));
  for (std::size_t i = 0; i < image.pixels.size(); ++i) {
    const std::uint8_t* pixel = &decoded.rgba[4 * i];
    if (image.pixels[i] == 0) {
      EXPECT_EQ(pixel[3], 0);
      continue;
    }
    EXPECT_EQ((Rgb{pixel[0], pixel[1], pixel[2]}), colours[image.pixels[i]]);
    EXPECT_EQ(pixel[3], 255);
  }
}

TEST(png, image_without_pixels_is_one_transparent_pixel) {
  const Decoded decoded = decode(png_of(Image(), palette(ColourMap::share, Theme::dark)));
  EXPECT_EQ(std::pair(decoded.width, decoded.height), std::pair(1, 1));
  EXPECT_EQ(decoded.rgba[3], 0);
}

TEST(png, enlarged_pixels_are_rectangles_and_no_map_is_a_sliver) {
  Image image(2, 1);
  image.at(0, 0) = 5;
  image.at(1, 0) = 9;
  const Image large = enlarged(image, 3, 2);
  EXPECT_EQ(large.width, 6);
  EXPECT_EQ(large.height, 2);
  EXPECT_EQ(large.at(2, 1), 5);
  EXPECT_EQ(large.at(3, 0), 9);
  const auto size = [](int width, int height) {
    const Image whole = enlarged(Image(width, height));
    return std::pair{whole.width, whole.height};
  };
  EXPECT_EQ(size(96, 1), (std::pair{480, 128}));
  EXPECT_EQ(size(1, 500), (std::pair{128, 500}));
  EXPECT_EQ(size(7, 7), (std::pair{511, 511}));
  EXPECT_EQ(size(600, 300), (std::pair{600, 300}));
}

TEST(scale, ends_clamp_and_nan_is_no_colour) {
  const Scale scale{-4, 4, ColourMap::lift};
  EXPECT_EQ(scale.index(NAN), 0);
  EXPECT_EQ(scale.index(-4), 1);
  EXPECT_EQ(scale.index(-HUGE_VAL), 1);
  EXPECT_EQ(scale.index(0), 128);
  EXPECT_EQ(scale.index(HUGE_VAL), 255);
}

double luminance(Rgb colour) {
  const auto linear = [](std::uint8_t byte) { return std::pow(byte / 255.0, 2.2); };
  return 0.2126 * linear(colour.red) + 0.7152 * linear(colour.green) + 0.0722 * linear(colour.blue);
}

// So that the maps read without colours: what is larger is further from the ground.
TEST(palette, larger_stands_out_more) {
  for (const ColourMap map : {ColourMap::lift, ColourMap::share}) {
    const std::size_t first = map == ColourMap::lift ? 128 : 1;
    for (const Theme theme : {Theme::light, Theme::dark}) {
      const Palette& colours = palette(map, theme);
      for (std::size_t i = first + 1; i < 256; ++i) {
        const double step = luminance(colours[i]) - luminance(colours[i - 1]);
        EXPECT_GE(theme == Theme::dark ? step : -step, -0.004) << i;
      }
      EXPECT_GT(std::abs(luminance(colours[255]) - luminance(colours[first])), 0.6);
    }
  }
}

TEST(palette, ends_of_lift_differ_for_all_kinds_of_colour_vision) {
  // Blue less red tells them apart, which protanopes and deuteranopes see too.
  for (const Theme theme : {Theme::light, Theme::dark}) {
    const Palette& colours = palette(ColourMap::lift, theme);
    EXPECT_GT(colours[20].blue, colours[20].red + 20);
    EXPECT_GT(colours[200].red, colours[200].blue + 20);
  }
}

TEST(palette, even_weight_is_the_middle_of_256_colours_too) {
  EXPECT_EQ(indexed_lift(128, Theme::dark), 235);
  EXPECT_EQ(indexed_lift(128, Theme::light), 255);
  EXPECT_NE(indexed_lift(1, Theme::dark), indexed_lift(255, Theme::dark));
}

TEST(base64, agrees_with_rfc_4648) {
  const std::array<std::pair<const char*, const char*>, 7> known{{{"", ""},
                                                                  {"f", "Zg=="},
                                                                  {"fo", "Zm8="},
                                                                  {"foo", "Zm9v"},
                                                                  {"foob", "Zm9vYg=="},
                                                                  {"fooba", "Zm9vYmE="},
                                                                  {"foobar", "Zm9vYmFy"}}};
  for (const auto& [bytes, text] : known) EXPECT_EQ(base64(bytes), text);
  EXPECT_EQ(base64("\xff\xff\xff"), "////");
}

}  // namespace
}  // namespace heed::cli

// libpng, writing into a string.
#include "png_file.h"

#include <png.h>

#include <algorithm>
#include <array>
#include <new>

namespace heed::cli {

Image enlarged(const Image& image, int across, int down) {
  Image large(image.width * across, image.height * down);
  for (int y = 0; y < large.height; ++y) {
    for (int x = 0; x < large.width; ++x) {
      large.at(x, y) = image.at(x / across, y / down);
    }
  }
  return large;
}

Image enlarged(const Image& image) {
  constexpr int kWanted = 512;
  const int factor = std::max(1, kWanted / std::max({image.width, image.height, 1}));
  const auto no_sliver = [&](int side) {
    return std::max(factor, kWanted / 4 / std::max(side, 1));
  };
  return enlarged(image, no_sliver(image.width), no_sliver(image.height));
}

std::string png_of(const Image& image, const Palette& colours) {
  if (image.pixels.empty()) return png_of(Image(1, 1), colours);
  std::array<png_byte, std::size_t{4} * 256> map{};
  for (std::size_t i = 0; i < 256; ++i) {
    map[4 * i] = colours[i].red;
    map[4 * i + 1] = colours[i].green;
    map[4 * i + 2] = colours[i].blue;
    map[4 * i + 3] = i == 0 ? 0 : 255;
  }
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.width);
  header.height = static_cast<png_uint_32>(image.height);
  header.format = PNG_FORMAT_RGBA_COLORMAP;
  header.colormap_entries = 256;
  // The size first, then the bytes: with valid arguments libpng fails for want of memory only.
  png_alloc_size_t size = 0;
  const auto write = [&](void* memory) {
    return png_image_write_to_memory(&header, memory, &size, 0, image.pixels.data(), 0,
                                     map.data()) != 0;
  };
  if (!write(nullptr)) throw std::bad_alloc();
  std::string bytes(size, '\0');
  if (!write(bytes.data())) throw std::bad_alloc();
  bytes.resize(size);
  return bytes;
}

}  // namespace heed::cli

// The pieces of an SVG document.
#pragma once

#include <cstdint>
#include <string>

#include "png_file.h"

namespace heed::cli {

enum class Anchor : std::uint8_t { start, middle, end };

struct Box {
  double x, y, width, height;
};

/// The text with what XML reserves, and control characters, made harmless.
[[nodiscard]] std::string xml(const std::string& text);

/// Elements one after the other; `style` is a class of the style sheet.
class Svg {
 public:
  void text(double x, double y, const char* style, Anchor anchor, const std::string& content);
  void line(double x0, double y0, double x1, double y1, const char* style);
  void path(const std::string& points, const std::string& style);

  /// A line of some width and opacity that shows `title` under the pointer.
  void curve(const std::string& points, const std::string& style, double width, double opacity,
             const std::string& title);

  /// A rectangle, or a marker of one of four shapes, that shows `title` under the pointer.
  void rectangle(double x, double y, double width, double height, const std::string& style,
                 double opacity, const std::string& title);
  void marker(std::size_t shape, double x, double y, const std::string& style,
              const std::string& title);

  /// Text that is turned up by `degrees` around its anchor.
  void turned_text(double x, double y, double degrees, const char* style, Anchor anchor,
                   const std::string& content);

  /// An image stretched over a rectangle, each pixel sharp, in the colours of the reader's scheme.
  void image(double x, double y, double width, double height, const Image& pixels,
             ColourMap colours);

  /// A rectangle of thin stripes: nothing is known or seen here.
  void hatched(double x, double y, double width, double height);

  /// The document around the elements.
  [[nodiscard]] std::string document(double width, double height, const std::string& title,
                                     const std::string& description) const;

 private:
  std::string body_;
  bool hatches_ = false;
};

}  // namespace heed::cli

// Elements, escapes and the style sheet: light, and dark where the reader prefers it.
#include "svg.h"

#include <array>
#include <cstdint>

#include "base64.h"
#include "terminal.h"

namespace heed::cli {
namespace {

// Colours of Okabe and Ito, which differ for all kinds of colour vision; in the dark, lighter ones.
constexpr const char* kStyle = R"(
  svg { background: #ffffff;
        font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
  text { fill: #1c1c1c; font-size: 11px; }
  .title { font-size: 19px; font-weight: 600; }
  .formula { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 13px; }
  .prose { font-size: 13px; }
  .panel { font-size: 13px; font-weight: 600; }
  .quiet { fill: #5a5a5a; }
  .paper { fill: #ffffff; }
  .grid { stroke: #e2e2e2; stroke-width: 1; }
  .axis { stroke: #8a8a8a; stroke-width: 1; }
  .edge { fill: none; stroke: #b0b0b0; stroke-width: 0.5; }
  .stroke { fill: none; stroke-width: 2; stroke-linejoin: round; }
  .dashed { stroke-dasharray: 6 4; stroke-width: 1.5; }
  .f0 { fill: #0072b2; } .s0 { stroke: #0072b2; }
  .f1 { fill: #c04d00; } .s1 { stroke: #c04d00; }
  .f2 { fill: #007a5a; } .s2 { stroke: #007a5a; }
  .f3 { fill: #a8487e; } .s3 { stroke: #a8487e; }
  .f4 { fill: #6b6b6b; } .s4 { stroke: #6b6b6b; }
  text.full { fill: #ffffff; }
  image { image-rendering: pixelated; }
  .on-dark { display: none; }
  .ground { fill: #e9e9e6; } .stripe { stroke: #c2c2be; stroke-width: 1; }
  @media (prefers-color-scheme: dark) {
    svg { background: #16181c; }
    text { fill: #e8e8e8; }
    .quiet { fill: #a8acb3; }
    .paper { fill: #16181c; }
    .grid { stroke: #2c3037; }
    .axis { stroke: #7c828c; }
    .edge { stroke: #4a4f58; }
    .f0 { fill: #56b4e9; } .s0 { stroke: #56b4e9; }
    .f1 { fill: #f0a13c; } .s1 { stroke: #f0a13c; }
    .f2 { fill: #3fcf9f; } .s2 { stroke: #3fcf9f; }
    .f3 { fill: #e79bc6; } .s3 { stroke: #e79bc6; }
    .f4 { fill: #b4b8bf; } .s4 { stroke: #b4b8bf; }
    .on-dark { display: inline; }
    .on-light { display: none; }
    .ground { fill: #101215; } .stripe { stroke: #41464f; }
    text.half, text.full { fill: #10131a; }
  }
)";

constexpr const char* kHatch =
    "<defs><pattern id=\"hidden\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\"><rect width=\"5\" height=\"5\" class=\"ground\"/><line "
    "x1=\"0\" "
    "y1=\"0\" x2=\"0\" y2=\"5\" class=\"stripe\"/></pattern></defs>\n";

const char* word_of(Anchor anchor) {
  constexpr std::array<const char*, 3> kWords{"start", "middle", "end"};
  return kWords[static_cast<std::size_t>(anchor)];
}

}  // namespace

std::string xml(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else if (c == '>') {
      safe += "&gt;";
    } else if (c == '"') {
      safe += "&quot;";
    } else {
      safe += byte < 0x20 || byte == 0x7f ? ' ' : c;
    }
  }
  return safe;
}

void Svg::text(double x, double y, const char* style, Anchor anchor, const std::string& content) {
  body_ += format("<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">", x, y, style,
                  word_of(anchor)) +
           xml(content) + "</text>\n";
}

void Svg::line(double x0, double y0, double x1, double y1, const char* style) {
  body_ += format("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x0, y0,
                  x1, y1, style);
}

void Svg::path(const std::string& points, const std::string& style) {
  body_ += "<path d=\"" + points + "\" class=\"" + style + "\"/>\n";
}

void Svg::curve(const std::string& points, const std::string& style, double width, double opacity,
                const std::string& title) {
  body_ += "<path d=\"" + points + "\" fill=\"none\" class=\"" + style + "\" " +
           format("stroke-width=\"%.2f\" stroke-opacity=\"%.3f\"><title>", width, opacity) +
           xml(title) + "</title></path>\n";
}

void Svg::rectangle(double x, double y, double width, double height, const std::string& style,
                    double opacity, const std::string& title) {
  body_ += format(
      "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"%s\" "
      "fill-opacity=\"%.3f\">",
      x, y, width, height, style.c_str(), opacity);
  body_ += "<title>" + xml(title) + "</title></rect>\n";
}

void Svg::marker(std::size_t shape, double x, double y, const std::string& style,
                 const std::string& title) {
  constexpr double kSize = 4;
  const std::string end = " class=\"" + style + "\"><title>" + xml(title) + "</title></";
  if (shape % 4 == 0) {
    body_ += format("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"", x, y, kSize) + end + "circle>\n";
    return;
  }
  // Square, triangle, diamond.
  constexpr std::array<std::array<double, 8>, 3> kCorners{
      {{-0.9, -0.9, 0.9, -0.9, 0.9, 0.9, -0.9, 0.9},
       {0, -1.2, 1.1, 0.9, -1.1, 0.9, -1.1, 0.9},
       {0, -1.3, 1.3, 0, 0, 1.3, -1.3, 0}}};
  std::string points;
  const auto& corners = kCorners[shape % 4 - 1];
  for (std::size_t i = 0; i < corners.size(); i += 2) {
    points += format("%.1f,%.1f ", x + kSize * corners[i], y + kSize * corners[i + 1]);
  }
  points.pop_back();
  body_ += "<polygon points=\"" + points + "\"" + end + "polygon>\n";
}

void Svg::turned_text(double x, double y, double degrees, const char* style, Anchor anchor,
                      const std::string& content) {
  body_ += format(
               "<text transform=\"translate(%.1f %.1f) rotate(%.0f)\" class=\"%s\" "
               "text-anchor=\"%s\">",
               x, y, -degrees, style, word_of(anchor)) +
           xml(content) + "</text>\n";
}

void Svg::image(double x, double y, double width, double height, const Image& pixels,
                ColourMap colours) {
  for (const Theme theme : {Theme::light, Theme::dark}) {
    body_ += format(
        "<image x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" preserveAspectRatio=\"none\" "
        "class=\"%s\" href=\"data:image/png;base64,",
        x, y, width, height, theme == Theme::light ? "on-light" : "on-dark");
    body_ += base64(png_of(pixels, palette(colours, theme))) + "\"/>\n";
  }
}

void Svg::hatched(double x, double y, double width, double height) {
  hatches_ = true;
  body_ +=
      format("<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"url(#hidden)\"/>\n",
             x, y, width, height);
}

std::string Svg::document(double width, double height, const std::string& title,
                          const std::string& description) const {
  return format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
             "height=\"%.0f\" role=\"img\" aria-labelledby=\"title description\">\n",
             width, height, width, height) +
         "<title id=\"title\">" + xml(title) + "</title>\n<desc id=\"description\">" +
         xml(description) + "</desc>\n<style>" + kStyle + "</style>\n" + (hatches_ ? kHatch : "") +
         format("<rect width=\"%.0f\" height=\"%.0f\" class=\"paper\"/>\n", width, height) + body_ +
         "</svg>\n";
}

}  // namespace heed::cli

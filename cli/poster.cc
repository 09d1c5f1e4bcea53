// Where the maps of a grid stand, as pixels of one image and in a document.
#include "poster.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "picture_parts.h"
#include "plain_text.h"

namespace heed::cli {
namespace {

constexpr double kLeft = 52;
constexpr double kTop = 116;
constexpr double kFoot = 86;
constexpr int kMostInLine = 32;  // maps; a layer of more heads stands in lines of its own

/// How many pieces of that size at most a count makes, one where it is 0.
constexpr int pieces(int count, int most) { return std::max((count + most - 1) / most, 1); }

/// Text in lines from y down, none longer than the width; how far down that went.
double write_lines(Svg& svg, double y, double width, const char* style, double letter, double step,
                   const std::string& text) {
  const std::string lines = paragraph(text, static_cast<std::size_t>((width - 40) / letter));
  const double first = y;
  for (const std::string_view line : parts_of(lines, '\n')) {
    svg.text(20, y, style, Anchor::start, std::string(line));
    y += step;
  }
  return std::max(y - step - first, 0.0);
}

}  // namespace

Poster::Poster(std::int64_t layer_count, std::int64_t head_count, int rows, int columns)
    : layers_(static_cast<int>(layer_count)),
      heads_(static_cast<int>(head_count)),
      rows_(std::max(rows, 1)),
      columns_(std::max(columns, 1)),
      lines_(pieces(heads_, kMostInLine)),
      in_line_(pieces(heads_, lines_)) {
  // A map is 88 wide, less where there are many heads, and more where there are few.
  const double room = 1240.0 / in_line_ - 12;
  width_ = std::clamp(room, 28.0, heads_ < 8 ? 150.0 : 92.0);
  cell_ = width_ / columns_;
  height_ = std::clamp(width_ * rows_ / columns_, width_ / 4, 4 * width_);
  row_ = height_ / rows_;
  gap_x_ = std::max(1, static_cast<int>(std::lround(10 / cell_)));
  // Below a map its label, and above it, where layers have several lines, its number.
  gap_y_ = std::max(1, static_cast<int>(std::lround((lines_ > 1 ? 45 : 27) / row_)));
  image_ = Image(std::max(std::min(heads_, in_line_) * (columns_ + gap_x_) - gap_x_, 0),
                 std::max(layers_ * lines_ * (rows_ + gap_y_) - gap_y_, 0));
}

void Poster::put(std::int64_t layer, std::int64_t head, const CellMap& map, const Scale& scale) {
  const auto [line, column] = place(layer, head);
  const int left = column * (columns_ + gap_x_);
  const int top = line * (rows_ + gap_y_);
  for (int y = 0; y < std::min(rows_, map.rows); ++y) {
    for (int x = 0; x < std::min(columns_, map.columns); ++x) {
      image_.at(left + x, top + y) = scale.index(static_cast<double>(map.at(y, x)));
    }
  }
}

Poster::Place Poster::place(std::int64_t layer, std::int64_t head) const {
  return {static_cast<int>(layer) * lines_ + static_cast<int>(head) / in_line_,
          static_cast<int>(head) % in_line_};
}

Box Poster::box(const Place& place) const {
  return {kLeft + place.column * cell_ * (columns_ + gap_x_),
          kTop + place.line * row_ * (rows_ + gap_y_), width_, height_};
}

Image Poster::raster() const {
  constexpr double kWanted = 96;     // pixels of a map's longer side
  const double high = row_ / cell_;  // as the picture has it
  const double factor = kWanted / std::max<double>(columns_, rows_ * high);
  return enlarged(image_, std::max(1, static_cast<int>(factor)),
                  std::max(1, static_cast<int>(factor * high)));
}

std::string Poster::document(const PosterText& text, const Scale& scale,
                             const std::vector<PosterLabel>& labels) const {
  Svg svg;
  const double width = std::max(box({0, in_line_}).x - 10 + kLeft / 2, 760.0);
  svg.text(20, 36, "title", Anchor::start, text.title);
  // Few heads make a narrow picture, and lines of words that push the maps down.
  double down = write_lines(svg, 60, width, "prose", 7.2, 19, text.reads);
  down += write_lines(svg, 80 + down, width, "quiet", 6.4, 16, text.subject);
  const auto box_of = [&](std::int64_t layer, std::int64_t head) {
    Box at = box(place(layer, head));
    at.y += down;
    return at;
  };
  const double height = box_of(layers_, 0).y + kFoot;
  const bool roomy = width_ >= 52;
  for (int layer = 0; layer < (lines_ > 1 ? layers_ : std::min(layers_, 1)); ++layer) {
    for (int head = 0; head < heads_; ++head) {
      const Box at = box_of(layer, head);
      svg.text(at.x + at.width / 2, at.y - 8, "quiet", Anchor::middle,
               (roomy ? "head " : "") + std::to_string(head));
    }
  }
  for (int layer = 0; layer < layers_; ++layer) {
    const double top = box_of(layer, 0).y;
    const Box last = box_of(layer, std::max(heads_ - 1, 0));
    const double tall = last.y + last.height - top;
    svg.turned_text(kLeft - 16, top + tall / 2, 90, "quiet", Anchor::middle,
                    (tall > 44 ? "layer " : "") + std::to_string(layer));
    for (int head = 0; head < heads_; ++head) {
      const Box one = box_of(layer, head);
      svg.hatched(one.x, one.y, one.width, one.height);
    }
  }
  if (!image_.pixels.empty()) {
    svg.image(kLeft, kTop + down, cell_ * image_.width, row_ * image_.height, image_,
              scale.colours);
  }
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto count = static_cast<std::size_t>(heads_);
    const Box at =
        box_of(static_cast<std::int64_t>(i / count), static_cast<std::int64_t>(i % count));
    svg.path(format("M%.2f %.2fh%.2fv%.2fh%.2fz", at.x, at.y, at.width, at.height, -at.width),
             "edge");
    svg.rectangle(at.x, at.y, at.width, at.height, "f4", 0, labels[i].title);
    // The bar is as long as the share; its number stands below.
    const double bar = at.y + at.height + 3;
    svg.rectangle(at.x, bar, at.width, 3, "f4", 0.25, labels[i].title);
    if (std::isfinite(labels[i].share)) {
      svg.rectangle(at.x, bar, at.width * std::clamp(labels[i].share, 0.0, 1.0), 3, labels[i].style,
                    1, labels[i].title);
    }
    svg.text(at.x + at.width / 2, bar + 14, "quiet", Anchor::middle,
             roomy ? labels[i].text : labels[i].brief);
  }
  draw_colours(svg, scale, {kLeft, height - kFoot + 24, 300, 12}, text.colours);
  svg.hatched(kLeft + 330, height - kFoot + 24, 26, 12);
  svg.text(kLeft + 362, height - kFoot + 34, "quiet", Anchor::start,
           "hidden by the mask, or no number");
  return svg.document(width, height, text.title, text.reads + " " + text.subject);
}

}  // namespace heed::cli

// Estimates from shapes, each an upper one.
#include "inspect_bytes.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>

#include "exit_codes.h"
#include "gradient_bytes.h"
#include "heed/io.h"
#include "inspect_heads.h"
#include "inspect_writing.h"
#include "terminal.h"

namespace heed::cli {
namespace {

constexpr double kNumber = sizeof(double);
constexpr double kText = 16;  // of a number in a CSV file, at most: "-1.23456789e-05,"

/// What is to be drawn.
struct Drawing {
  bool page = false, pictures = false;
  bool difference = false;       ///< also what changed from another run
  bool rows_asked = false;       ///< all chosen rows have a story
  std::int64_t heads_asked = 0;  ///< to be drawn alone; 0: the interesting ones
  std::int64_t token_bytes = 0;  ///< of all tokens
};

/// What the estimates are made of.
struct Sizes {
  double rows, keys, heads, top, map_rows, map_columns, told;
  double gradients = 0;  ///< bytes that they take, of all heads

  Sizes(const Call& call, const InspectSettings& settings)
      : rows(static_cast<double>(call.queries())),
        keys(static_cast<double>(call.keys())),
        heads(static_cast<double>(call.layers() * call.heads())),
        top(static_cast<double>(std::min(settings.top, std::max<std::int64_t>(1, call.keys())))),
        map_rows(static_cast<double>(std::min(settings.map, call.queries()))),
        map_columns(static_cast<double>(std::min(settings.map, call.keys()))),
        told(static_cast<double>(chosen_rows(call, settings).size())) {}

  [[nodiscard]] double map() const { return map_rows * map_columns; }
  [[nodiscard]] double table_of_maps() const {
    return heads * map_rows * (40 + kText * map_columns);
  }
};

/// The page and its makings: lists with budgets (report_data.cc), as JSON, text, made safe, framed.
double page_bytes(const Sizes& n, double kept) {
  constexpr double kMostText = 8e6;  // of 1024 heads; a page that is too large is made of fewer
  constexpr double kCopies = 8;
  constexpr double kMostHeads = 1024;  // beyond, what is shown is picked from a copy
  const double lists = 30 * std::min(n.rows * n.top, 30'000.0) + 50 * n.told * n.keys;
  const double text = 200e3 + n.heads * (14 * n.map() + 16 * (n.map_rows + n.map_columns) + lists +
                                         8 * 64 * 64 + 8192);
  return kCopies * std::min(text, kMostText) + (n.heads > kMostHeads ? kept : 0);
}

/// All files at once, as they are before the first is written, and the largest once more.
double picture_bytes(const Sizes& n, const Drawing& drawing) {
  constexpr double kChart = 256 * 500;                            // a histogram and distances
  constexpr double kMask = 96 * 96 * 40 + 4096 * 40 + (4 << 20);  // and images as they are packed
  constexpr double kArcs = 48;                                    // rows of them
  constexpr double kWritten = 8;  // of a token's byte: "\\x01" in a text that doubles as it grows
  const double chosen =
      drawing.heads_asked > 0 ? static_cast<double>(drawing.heads_asked) : std::min(n.heads, 6.0);
  const double stories = std::min(n.told, drawing.rows_asked ? 64.0 : 5.0);
  const double token = static_cast<double>(drawing.token_bytes) / std::max(n.keys, 1.0);
  // All rows may list the same key, whose token may be the longest.
  const double arcs = kArcs * n.top * 400 +
                      kWritten * (kArcs + n.top) * static_cast<double>(drawing.token_bytes) +
                      64 * 400;
  const double story = n.keys * (100 + kWritten * token) + std::min(n.keys, 256.0) * 1000;
  const double alone = 100 * n.map() + arcs + stories * story + kChart;
  const double tables = (drawing.difference ? 2 : 1) * n.table_of_maps();
  const double rows = n.heads * (n.map_rows * 2 * 70 + 1024);
  // The poster's pixels: small maps are enlarged, to 190 of them at most with what is between.
  const double poster = n.heads * std::max(190.0 * 190, 1.5 * n.map());
  return 1.25 * (tables + rows + chosen * alone) + n.table_of_maps() + kMask + poster;
}

/// With --json: each number as a value and as a part of a text that doubles as it grows.
double json_bytes(const Sizes& n, bool stories) {
  constexpr double kOne = 16 + 2 * 36;  // a value, and its line in both texts
  constexpr double kRow = 1536;         // an object
  constexpr double kOfAHead = 258 + 129 + 128;
  const double listed = n.heads * n.rows * n.top <= 60'000 ? n.rows : n.told;
  return n.heads * ((kOfAHead + n.map_columns) * kOne + listed * (kRow + 2 * n.top * kOne) +
                    (stories ? n.told * (kRow + 4 * n.keys * kOne) : 0));
}

/// What stays of the results: maps, stories, a tile, lists.
double kept_of_a_head(const Sizes& n) {
  constexpr double kTile = 64.0 * 64.0 * sizeof(float);  // an exact one, see inspect_closer.cc
  return 2 * n.map() * sizeof(float) + n.told * n.keys * 3.25 * sizeof(float) + kTile +
         std::min(n.rows * n.top, 60'000.0) * 3 * kNumber + 8192;
}

/// Beside the inputs, until the results are read.
double inspection_bytes(const Sizes& n, double element) {
  constexpr double kSums = 8 << 20;  // of inspect_weights, with all histograms
  // The results of both passes.
  const double passes = n.rows * (8 * element + kNumber + n.top * (element + kNumber)) +
                        n.keys * element + 2 * n.map() * element;
  // One head at a time: its numbers in float64, and rows of scores and weights.
  const double at_a_time = n.rows * (24 + 2 * n.top) * kNumber + n.keys * kNumber +
                           2 * n.map() * kNumber + std::max(n.told, 64.0) * n.keys * 3 * kNumber;
  return n.heads * (passes + kept_of_a_head(n)) + at_a_time + kSums + n.gradients;
}

/// Rows of the mask, so many at a time: scores and weights, in float32 and in float64.
double mask_bytes(const Sizes& n) {
  return std::min(n.rows * n.keys, (1 << 20) + n.keys) * 3 * kNumber;
}

/// The most of both times: while it is looked at, with the inputs there, and while it is drawn.
double most_bytes(const Sizes& n, const Drawing& drawing, double inputs, double element) {
  const double kept = n.heads * kept_of_a_head(n);
  // Of another run, looked at while the result of this one is kept, and of the same shape.
  const double other = drawing.difference ? kept : 0;
  const bool drawn = drawing.page || drawing.pictures;
  const double looking =
      inputs + inspection_bytes(n, element) + (drawn ? mask_bytes(n) : 0) + other;
  if (!drawn) return looking;
  const double page = drawing.page ? page_bytes(n, kept) : 0;
  const double pictures = drawing.pictures ? picture_bytes(n, drawing) : 0;
  return std::max(looking, kept + other + page + pictures);
}

/// Output, dQ, dK, dV, and of each row lse and the norm of dS.
double gradient_elements(const RunInputs& inputs) {
  double elements = 0;
  for (const char* name : {"q", "k", "v", "d_output"}) {
    const Tensor& tensor = inputs.tensors.at(name);
    double count = 1;
    for (const std::int64_t size : tensor.shape) count *= static_cast<double>(size);
    elements += count * (name[0] == 'q' ? 3 : 1);
  }
  return elements;
}

/// What a byte of tokens takes: the text and its lines, or two lists and a label of one of them.
/// JSON has the list twice, and of a byte up to six, "\u0001", in a text that doubles as it grows.
double bytes_of_a_token_byte(const InspectFlags& flags) { return flags.json ? 2 + 2 * 6 : 4; }

/// Beside their bytes: strings of two lists and of JSON for each key, and of metadata whatever
/// values they are parsed to, of which each but the first of a list follows a comma.
double token_objects(const RunInputs& inputs, const InspectFlags& flags, double keys) {
  constexpr double kStrings = 256;
  constexpr double kValue = 192;  // of a member of an object, with its name and its node
  if (!flags.tokens.empty()) return kStrings * keys;
  const auto found = inputs.metadata.find("tokens");
  if (found == inputs.metadata.end()) return 0;
  const std::string& text = found->second;
  const auto values = std::count_if(text.begin(), text.end(),
                                    [](char c) { return c == ',' || c == '[' || c == '{'; });
  return kStrings * keys + kValue * static_cast<double>(values + 1) +
         bytes_of_a_token_byte(flags) * static_cast<double>(text.size());
}

Drawing drawing_of(const RunInputs& inputs, const InspectFlags& flags) {
  Drawing drawing{.page = !flags.html.empty(),
                  .pictures = !flags.pictures.empty(),
                  .difference = !flags.against.empty(),
                  .rows_asked = !flags.rows.empty()};
  if (const std::string& heads = flags.heads.words; !heads.empty()) {
    drawing.heads_asked = 1 + std::count(heads.begin(), heads.end(), ',');
  }
  const auto tokens = inputs.metadata.find("tokens");
  std::error_code error;
  if (!flags.tokens.empty()) {
    const auto size = std::filesystem::file_size(flags.tokens, error);
    drawing.token_bytes = error ? 0 : static_cast<std::int64_t>(size);
  } else if (tokens != inputs.metadata.end()) {
    drawing.token_bytes = static_cast<std::int64_t>(tokens->second.size());
  }
  return drawing;
}

}  // namespace

std::int64_t check_memory(const RunInputs& inputs, const InspectFlags& flags, DType dtype,
                          std::int64_t budget) {
  double bytes = 0;
  for (const auto& [name, tensor] : inputs.tensors)
    bytes += static_cast<double>(tensor.data.size());
  ConstTensorView q = input_view(inputs, "q", flags);
  ConstTensorView k = input_view(inputs, "k", flags);
  const bool widened = q.dtype != dtype;
  q.dtype = k.dtype = dtype;
  q.data = k.data = nullptr;
  for (const char* name : {"q", "k", "v", "d_output"}) {
    if (widened && inputs.tensors.contains(name))
      bytes += static_cast<double>(byte_count(inputs.tensors.at(name).shape, dtype));
  }
  const Call call{with_four_axes(q), with_four_axes(k), {}};
  const InspectSettings settings{
      .rows = flags.rows, .top = flags.top.value, .map = map_cells(flags, call)};
  Sizes n(call, settings);
  const auto element = static_cast<double>(size_of(dtype));
  if (inputs.tensors.contains("d_output")) {
    n.gradients = gradient_elements(inputs) * element +
                  gradient_scratch_bytes(q, k, input_view(inputs, "v", flags), {},
                                         PoolExecutor(flags.threads.value).workers());
  }
  const Drawing drawing = drawing_of(inputs, flags);
  bytes = most_bytes(n, drawing, bytes, element) + token_objects(inputs, flags, n.keys);
  if (flags.json) bytes += json_bytes(n, drawing.rows_asked);
  const double left = static_cast<double>(budget) - bytes;
  if (left >= 0) return 1 + static_cast<std::int64_t>(left / bytes_of_a_token_byte(flags));
  const bool drawn = drawing.page || drawing.pictures;
  throw Failure(ExitCode::memory,
                std::string("the inspection ") +
                    (drawn ? "and what is drawn of it take " : "takes ") + human_bytes(bytes) +
                    ", more than the " + human_bytes(static_cast<double>(budget)) +
                    (flags.max_bytes.count > 0 ? " of --max-bytes" : ", 80 % of what is free"));
}

}  // namespace heed::cli

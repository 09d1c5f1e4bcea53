// The character model: what it computes, and how it goes on where it stopped.
#include "training/character_model.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <system_error>
#include <type_traits>
#include <utility>

namespace heed::training {
namespace {

// Options that a file keeps, by their names.
template <typename Options, typename Use>
void each_option(Options& o, const Use& use) {
  use("d_model", o.d_model);
  use("layers", o.layers);
  use("heads", o.heads);
  use("context", o.context);
  use("batch", o.batch);
  use("seed", o.seed);
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += "0123456789abcdef"[byte >> 4U];
    text += "0123456789abcdef"[byte & 15U];
  }
  return text;
}

/// A number to its last bit, which std::to_string would lose.
std::string exactly(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%a", number);
  return text;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

/// What a checkpoint says of its model, each field looked at before it is used.
class Metadata {
 public:
  Metadata(const std::string& path, const TensorFile& file) : path_(path), file_(file) {}

  template <typename Number>
  [[nodiscard]] Number whole(const char* name, Number least, Number most) const {
    const std::string& text = this->text(name);
    Number number{};
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc() || rest != end || number < least || number > most) {
      refuse(name, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return number;
  }

  /// As exactly() wrote it, in decimals too.
  [[nodiscard]] double real(const char* name, double end, const char* expected) const {
    const std::string& text = this->text(name);
    char* rest = nullptr;
    const double number = std::strtod(text.c_str(), &rest);
    const bool whole = !text.empty() && std::isspace(static_cast<unsigned char>(text[0])) == 0 &&
                       rest == text.data() + text.size();
    if (!whole || !(number >= 0 && number < end)) refuse(name, expected);
    return number;
  }

  [[nodiscard]] std::string bytes(const char* name) const {
    const std::string& text = this->text(name);
    const bool digits = text.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (text.empty() || text.size() % 2 != 0 || !digits) {
      refuse(name, "two hexadecimal digits for each byte");
    }
    std::string bytes;
    for (std::size_t i = 0; i < text.size(); i += 2) {
      bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
    }
    return bytes;
  }

  /// Nothing in the metadata makes the model larger than the tensors of the file are.
  void check_shape(const char* names, const std::string& tensor, std::int64_t rows,
                   std::int64_t columns) const {
    const auto found = file_.tensors.find(tensor);
    const std::vector<std::int64_t> shape{rows, columns};
    if (found != file_.tensors.end() && found->second.shape == shape) return;
    throw Error(path_ + ": metadata " + names + ": expected " + tensor + " of shape " +
                shape_text(shape) + ", found " +
                (found == file_.tensors.end() ? "none" : shape_text(found->second.shape)));
  }
  void check_layers(std::int64_t layers) const {
    std::int64_t found = 0;
    const auto has = [this](std::int64_t layer) {
      const std::string name = "layers." + std::to_string(layer) + ".";
      const auto at = file_.tensors.lower_bound(name);
      return at != file_.tensors.end() && at->first.starts_with(name);
    };
    while (has(found)) ++found;
    if (layers == found) return;
    refuse("layers", std::to_string(found) + ", of which the file has tensors");
  }

 private:
  [[nodiscard]] const std::string& text(const char* name) const {
    const auto found = file_.metadata.find(name);
    if (found == file_.metadata.end()) {
      throw Error(path_ + ": expected a checkpoint of this model; its metadata lacks " + name);
    }
    return found->second;
  }

  [[noreturn]] void refuse(const char* name, const std::string& expected) const {
    constexpr std::size_t kMostShown = 40;
    const std::string& text = this->text(name);
    const bool shown =
        text.size() <= kMostShown &&
        std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
    const std::string found =
        shown ? "'" + text + "'" : "a text of " + std::to_string(text.size()) + " bytes";
    throw Error(path_ + ": metadata " + name + ": expected " + expected + ", found " + found);
  }

  const std::string& path_;
  const TensorFile& file_;
};

void add(std::vector<float>& to, const std::vector<float>& more) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += more[i];
}

TensorView rows(std::vector<float>& of, std::int64_t count) {
  return view(of.data(), {count, static_cast<std::int64_t>(of.size()) / count});
}

}  // namespace

std::string vocabulary_of(std::string_view text) {
  std::string bytes(text);
  // char has a sign on some CPUs, and the tokens shall be the same on all.
  std::ranges::sort(bytes, {}, [](char byte) { return static_cast<unsigned char>(byte); });
  bytes.erase(std::unique(bytes.begin(), bytes.end()), bytes.end());
  return bytes;
}

std::vector<std::int64_t> tokens_of(std::string_view text, std::string_view vocabulary) {
  std::vector<std::int64_t> tokens;
  for (const char c : text) {
    const std::size_t token = vocabulary.find(c);
    if (token == std::string_view::npos) {
      throw Error("the text has byte " + hex({&c, 1}) + ", which the model does not know");
    }
    tokens.push_back(static_cast<std::int64_t>(token));
  }
  return tokens;
}

CharacterModel::Layer::Layer(const CharacterOptions& o, std::uint64_t seed)
    : before_attention(o.d_model),
      before_map(o.d_model),
      attention({.d_model = o.d_model,
                 .heads = o.heads,
                 .dropout = o.dropout,
                 .initialisation = {.seed = seed}}),
      up({.inputs = o.d_model,
          .outputs = 4 * o.d_model,
          .bias = true,
          .initialisation = {.seed = seed + 1}}),
      down({.inputs = 4 * o.d_model,
            .outputs = o.d_model,
            .bias = true,
            .initialisation = {.seed = seed + 2}}) {}

CharacterModel::CharacterModel(std::string vocabulary, const CharacterOptions& options)
    : vocabulary_(std::move(vocabulary)),
      options_(options),
      tokens_(static_cast<std::int64_t>(vocabulary_.size()), options.d_model, 0.1,
              options.seed + 1),
      places_(options.context, options.d_model, 0.1, options.seed + 2),
      layers_([&] {
        std::vector<Layer> layers;
        for (std::int64_t n = 0; n < options.layers; ++n) {
          layers.emplace_back(options, options.seed + 1000 * static_cast<std::uint64_t>(n + 1));
        }
        return layers;
      }()),
      last_(options.d_model),
      logits_({.inputs = options.d_model,
               .outputs = static_cast<std::int64_t>(vocabulary_.size()),
               .initialisation = {.seed = options.seed + 3}}),
      adam_(parameters(), {.rate = options.rate}) {}

std::vector<Parameter> CharacterModel::parameters() {
  std::vector<Parameter> all = prefixed("tokens.", tokens_.parameters());
  append(all, prefixed("places.", places_.parameters()));
  for (std::size_t n = 0; n < layers_.size(); ++n) {
    const std::string name = "layers." + std::to_string(n) + ".";
    append(all, prefixed(name + "before_attention.", layers_[n].before_attention.parameters()));
    append(all, prefixed(name + "attention.", layers_[n].attention.parameters()));
    append(all, prefixed(name + "before_map.", layers_[n].before_map.parameters()));
    append(all, prefixed(name + "up.", layers_[n].up.parameters()));
    append(all, prefixed(name + "down.", layers_[n].down.parameters()));
  }
  append(all, prefixed("last.", last_.parameters()));
  append(all, prefixed("logits.", logits_.parameters()));
  return all;
}

/// m = x + attention(norm(x)), then m + down(relu(up(norm(m)))) in stream_.
void CharacterModel::layer_forward(Layer& layer, std::int64_t batch, std::uint64_t seed) {
  const std::size_t count = stream_.size();
  const std::int64_t all = static_cast<std::int64_t>(place_.size());
  const std::int64_t T = all / batch;
  for (auto* of : {&layer.normal, &layer.attended, &layer.normal_middle, &layer.narrow}) {
    of->resize(count);
  }
  layer.wide.resize(4 * count);
  layer.x = stream_;
  layer.before_attention.forward(layer.x, layer.normal);
  const auto sequences = [&](std::vector<float>& of) {
    return view(of.data(), {batch, T, options_.d_model});
  };
  layer.attention.forward({.x = sequences(layer.normal)},
                          {.output = sequences(layer.attended), .saved = &layer.saved},
                          {.mask = {.causal = true}, .dropout = {.seed = seed}});
  layer.middle = layer.x;
  add(layer.middle, layer.attended);
  layer.before_map.forward(layer.middle, layer.normal_middle);
  layer.up.forward(rows(layer.normal_middle, all), rows(layer.wide, all));
  for (float& h : layer.wide) h = std::max(h, 0.0F);
  layer.down.forward(rows(layer.wide, all), rows(layer.narrow, all));
  stream_ = layer.middle;
  add(stream_, layer.narrow);
}

/// d_stream_ from that of the layer's output to that of its input.
void CharacterModel::layer_backward(Layer& layer, std::int64_t batch) {
  const std::int64_t all = static_cast<std::int64_t>(place_.size());
  d_wide_.resize(layer.wide.size());
  layer.down.backward(rows(layer.wide, all), rows(d_stream_, all), rows(d_wide_, all));
  for (std::size_t i = 0; i < d_wide_.size(); ++i) {
    if (layer.wide[i] == 0) d_wide_[i] = 0;
  }
  layer.up.backward(rows(layer.normal_middle, all), rows(d_wide_, all), rows(d_rows_, all));
  layer.before_map.backward(layer.middle, d_rows_, d_stream_);
  const auto sequences = [&](std::vector<float>& of) {
    return view(of.data(), {batch, all / batch, options_.d_model});
  };
  layer.attention.backward({.x = sequences(layer.normal)}, layer.saved, sequences(d_stream_),
                           {.dx = sequences(d_rows_)}, {.mask = {.causal = true}});
  layer.before_attention.backward(layer.x, d_rows_, d_stream_);
}

void CharacterModel::forward(std::span<const std::int64_t> tokens, std::int64_t batch,
                             std::uint64_t seed) {
  const std::size_t length = tokens.size() / static_cast<std::size_t>(batch);
  place_.resize(tokens.size());
  for (std::size_t n = 0; n < tokens.size(); ++n) {
    place_[n] = static_cast<std::int64_t>(n % length);
  }
  stream_.assign(tokens.size() * static_cast<std::size_t>(options_.d_model), 0.0F);
  tokens_.add(tokens, stream_);
  places_.add(place_, stream_);
  for (Layer& layer : layers_) layer_forward(layer, batch, seed++);
  normal_.resize(stream_.size());
  last_.forward(stream_, normal_);
  out_.resize(tokens.size() * vocabulary_.size());
  const auto all = static_cast<std::int64_t>(tokens.size());
  logits_.forward(rows(normal_, all), rows(out_, all));
}

/// From the logits' gradient in out_.
void CharacterModel::backward(std::span<const std::int64_t> tokens, std::int64_t batch) {
  const auto all = static_cast<std::int64_t>(tokens.size());
  d_rows_.resize(stream_.size());
  d_stream_.assign(stream_.size(), 0.0F);
  logits_.backward(rows(normal_, all), rows(out_, all), rows(d_rows_, all));
  last_.backward(stream_, d_rows_, d_stream_);
  for (std::size_t n = layers_.size(); n-- > 0;) layer_backward(layers_[n], batch);
  tokens_.backward(tokens, d_stream_);
  places_.backward(place_, d_stream_);
}

Loss CharacterModel::train(std::span<const std::int64_t> text) {
  const std::int64_t T = options_.context;
  if (static_cast<std::int64_t>(text.size()) < T + 1) {
    throw Error("the text has " + std::to_string(text.size()) + " bytes; expected at least " +
                std::to_string(T + 1) + ", the context and one more");
  }
  const auto step = static_cast<std::uint64_t>(adam_.steps());
  Random random(options_.seed * 0x9e3779b97f4a7c15U + step);
  std::vector<std::int64_t> tokens, targets;
  for (std::int64_t b = 0; b < options_.batch; ++b) {
    const auto at = text.begin() + random.below(static_cast<std::int64_t>(text.size()) - T);
    tokens.insert(tokens.end(), at, at + T);
    targets.insert(targets.end(), at + 1, at + T + 1);
  }
  for (Layer& layer : layers_) layer.attention.set_mode(Mode::training);
  forward(tokens, options_.batch, random.bits());
  const Loss loss = cross_entropy(out_, targets);
  backward(tokens, options_.batch);
  adam_.step();
  return loss;
}

std::int64_t drawn_token(std::span<const float> logits, double temperature, Random& random) {
  const auto top = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  std::vector<double> weights;
  double sum = 0;
  for (const float logit : logits) {
    sum += weights.emplace_back(std::exp((static_cast<double>(logit) - top) / temperature));
  }
  double left = random.uniform() * sum;
  std::size_t token = 0;
  while (token + 1 < weights.size() && (left -= weights[token]) >= 0) ++token;
  return static_cast<std::int64_t>(token);
}

std::vector<std::int64_t> CharacterModel::continued(std::vector<std::int64_t> tokens, int count,
                                                    double temperature, std::uint64_t seed) {
  for (Layer& layer : layers_) layer.attention.set_mode(Mode::evaluation);
  Random random(seed);
  for (int n = 0; n < count; ++n) {
    const std::size_t length = std::min(tokens.size(), static_cast<std::size_t>(options_.context));
    forward(std::span(tokens).last(length), 1, 0);
    const auto logits = std::span<const float>(out_).last(vocabulary_.size());
    tokens.push_back(drawn_token(logits, temperature, random));
  }
  return tokens;
}

void CharacterModel::save(const std::string& path) {
  TensorFile file;
  put_parameters(file, adam_.state());
  file.metadata["vocabulary"] = hex(vocabulary_);
  file.metadata["steps"] = std::to_string(adam_.steps());
  each_option(options_,
              [&](const char* name, auto value) { file.metadata[name] = std::to_string(value); });
  file.metadata["dropout"] = exactly(options_.dropout);
  file.metadata["rate"] = exactly(options_.rate);
  write_tensors(path, file);
}

CharacterModel CharacterModel::load(const std::string& path) {
  const TensorFile file = read_tensors(path);
  const Metadata metadata(path, file);
  constexpr std::int64_t kMostCount = 1 << 20;
  CharacterOptions options;
  each_option(options, [&](const char* name, auto& value) {
    using Number = std::remove_reference_t<decltype(value)>;
    if constexpr (std::is_signed_v<Number>) {
      value = metadata.whole<Number>(name, 1, kMostCount);
    } else {
      value = metadata.whole<Number>(name, 0, std::numeric_limits<Number>::max());
    }
  });
  options.dropout = metadata.real("dropout", 1, "a number from 0 to below 1");
  options.rate = metadata.real("rate", HUGE_VAL, "a finite number from 0 on");
  constexpr std::int64_t kMostSteps = std::int64_t{1} << 53;  // Adam counts on, and as a double
  const auto steps = metadata.whole<std::int64_t>("steps", 0, kMostSteps);
  const std::string vocabulary = metadata.bytes("vocabulary");
  metadata.check_shape("d_model and vocabulary", "tokens.weight", std::ssize(vocabulary),
                       options.d_model);
  metadata.check_shape("d_model and context", "places.weight", options.context, options.d_model);
  metadata.check_layers(options.layers);
  try {
    CharacterModel model(vocabulary, options);
    get_parameters(file, model.adam_.state());
    model.adam_.set_steps(steps);
    return model;
  } catch (const Error& error) {
    throw Error(error.kind(), path + ": " + error.what());
  }
}

}  // namespace heed::training

// The forward pass: products and attention are heed's modules, what stands between is row by row.
#include "examples/minilm/encoder.h"

#include <heed/modules_io.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <map>
#include <numbers>
#include <string>

namespace minilm {
namespace {

using heed::Parameter;

std::size_t size_of(std::int64_t size) { return static_cast<std::size_t>(size); }

std::vector<Parameter> together(std::initializer_list<std::vector<Parameter>> lists) {
  std::vector<Parameter> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

std::vector<Parameter> with_names_of_bert(std::vector<Parameter> attention) {
  static const std::map<std::string, const char*> kNames{
      {"W_q", "self.query.weight"},   {"b_q", "self.query.bias"},   {"W_k", "self.key.weight"},
      {"b_k", "self.key.bias"},       {"W_v", "self.value.weight"}, {"b_v", "self.value.bias"},
      {"W_o", "output.dense.weight"}, {"b_o", "output.dense.bias"}};
  for (Parameter& p : attention) p.name = kNames.at(p.name);
  return attention;
}

/// gelu(x) = x Phi(x), with Phi as it is, not its approximation by tanh.
float gelu(float x) {
  constexpr float kInverseRoot2 = 0.5F * std::numbers::sqrt2_v<float>;
  return 0.5F * x * (1.0F + std::erf(x * kInverseRoot2));
}

/// Calls use(row) for each row, on all threads.
template <typename Use>
void each_row(std::vector<float>& rows, std::size_t size, const Use& use) {
  constexpr std::size_t kTogether = 16;
  struct Work {
    std::span<float> rows;
    std::size_t size;
    const Use& use;
  } work{rows, size, use};
  const auto task = [](void* context, std::int64_t index, int) {
    const Work& w = *static_cast<const Work*>(context);
    const std::size_t begin = size_of(index) * kTogether * w.size;
    const std::size_t end = std::min(begin + kTogether * w.size, w.rows.size());
    for (std::size_t at = begin; at < end; at += w.size)
      w.use(at / w.size, w.rows.subspan(at, w.size));
  };
  const std::size_t count = rows.size() / size;
  heed::PoolExecutor().run(static_cast<std::int64_t>((count + kTogether - 1) / kTogether), task,
                           &work);
}

void add(std::span<float> to, const std::vector<float>& more, std::size_t row) {
  const float* const from = more.data() + row * to.size();
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

/// "(40, 24)", "(24,)": as the library's own messages about files.
std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (const std::int64_t size : shape) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

/// Memory is taken for sizes of config.json only where a tensor of the file has them.
void expect_shape(const heed::TensorFile& file, const std::string& name,
                  const std::vector<std::int64_t>& shape) {
  const auto found = file.tensors.find(name);
  if (found == file.tensors.end()) {
    throw heed::Error(heed::ErrorKind::format,
                      "the file has no " + name + "; expected it with shape " + text_of(shape));
  }
  if (found->second.shape != shape) {
    throw heed::Error(heed::ErrorKind::format, name + " has shape " + text_of(found->second.shape) +
                                                   "; expected " + text_of(shape));
  }
}

std::vector<float> table_of(const heed::TensorFile& file, const std::string& name,
                            std::int64_t rows, std::int64_t columns) {
  const std::string tensor = "embeddings." + name + "_embeddings.weight";
  expect_shape(file, tensor, {rows, columns});
  std::vector<float> table(size_of(rows) * size_of(columns));
  heed::get_parameters(file, {{tensor, {rows, columns}, table, {}}});
  return table;
}

}  // namespace

Normalisation::Normalisation(std::int64_t size, double epsilon)
    : epsilon_(epsilon), gain_(size_of(size)), bias_(size_of(size)) {}

void Normalisation::apply(std::span<float> row) const {
  const auto size = static_cast<double>(row.size());
  double sum = 0, squares = 0;
  for (const float x : row) sum += static_cast<double>(x);
  const double mean = sum / size;
  for (const float x : row) {
    const double centred = static_cast<double>(x) - mean;
    squares += centred * centred;
  }
  const auto middle = static_cast<float>(mean);
  const auto inverse = static_cast<float>(1 / std::sqrt(squares / size + epsilon_));
  for (std::size_t i = 0; i < row.size(); ++i) {
    row[i] = (row[i] - middle) * inverse * gain_[i] + bias_[i];
  }
}

std::vector<Parameter> Normalisation::parameters() {
  const auto size = static_cast<std::int64_t>(gain_.size());
  return {{"weight", {size}, gain_, {}}, {"bias", {size}, bias_, {}}};
}

Encoder::Layer::Layer(const EncoderSizes& sizes)
    : attention({.d_model = sizes.d_model, .heads = sizes.heads, .bias = true}),
      after_attention(sizes.d_model, sizes.epsilon),
      up({.inputs = sizes.d_model, .outputs = sizes.d_wide, .bias = true}),
      down({.inputs = sizes.d_wide, .outputs = sizes.d_model, .bias = true}),
      after_map(sizes.d_model, sizes.epsilon) {}

std::vector<Parameter> Encoder::Layer::parameters() {
  return together({heed::prefixed("attention.", with_names_of_bert(attention.parameters())),
                   heed::prefixed("attention.output.LayerNorm.", after_attention.parameters()),
                   heed::prefixed("intermediate.dense.", up.parameters()),
                   heed::prefixed("output.dense.", down.parameters()),
                   heed::prefixed("output.LayerNorm.", after_map.parameters())});
}

Encoder::Encoder(const heed::TensorFile& file, const EncoderSizes& sizes)
    : sizes_(sizes),
      words_(table_of(file, "word", sizes.vocabulary, sizes.d_model)),
      places_(table_of(file, "position", sizes.positions, sizes.d_model)),
      types_(table_of(file, "token_type", sizes.types, sizes.d_model)),
      first_(sizes.d_model, sizes.epsilon) {
  heed::get_parameters(file, heed::prefixed("embeddings.LayerNorm.", first_.parameters()));
  for (std::int64_t n = 0; n < sizes.layers; ++n) {
    const std::string name = "encoder.layer." + std::to_string(n) + ".";
    expect_shape(file, name + "intermediate.dense.weight", {sizes.d_wide, sizes.d_model});
    layers_.emplace_back(sizes);
    heed::get_parameters(file, heed::prefixed(name, layers_.back().parameters()));
  }
}

std::vector<float> Encoder::first_rows(std::span<const std::int64_t> tokens,
                                       std::int64_t length) const {
  const std::size_t size = size_of(sizes_.d_model);
  std::vector<float> x(tokens.size() * size);
  assert(length <= sizes_.positions);
  each_row(x, size, [&](std::size_t row, std::span<float> to) {
    assert(tokens[row] >= 0 && tokens[row] < sizes_.vocabulary);
    add(to, words_, size_of(tokens[row]));
    add(to, types_, 0);
    add(to, places_, row % size_of(length));
    first_.apply(to);
  });
  return x;
}

std::vector<float> Encoder::embed(std::span<const Tokens> batch, std::int64_t padding) const {
  const auto B = static_cast<std::int64_t>(batch.size());
  const std::int64_t d = sizes_.d_model;
  std::vector<std::int64_t> lengths, tokens;
  for (const Tokens& sentence : batch) lengths.push_back(std::ssize(sentence));
  const std::int64_t T = batch.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  for (const Tokens& sentence : batch) {
    tokens.insert(tokens.end(), sentence.begin(), sentence.end());
    tokens.insert(tokens.end(), size_of(T) - sentence.size(), padding);
  }

  std::vector<float> x = first_rows(tokens, T), y(x.size()),
                     wide(tokens.size() * size_of(sizes_.d_wide));
  const auto rows = [&](std::vector<float>& of, std::int64_t size) {
    return heed::view(of.data(), {B, T, size});
  };
  const heed::Mask own{.key_lengths = heed::view(lengths.data(), {B}),
                       .query_lengths = heed::view(lengths.data(), {B})};
  for (const Layer& layer : layers_) {
    const auto add_and_normalise = [&](const Normalisation& normalisation) {
      each_row(x, size_of(d), [&](std::size_t row, std::span<float> to) {
        add(to, y, row);
        normalisation.apply(to);
      });
    };
    layer.attention.forward({.x = rows(x, d)}, {.output = rows(y, d)}, {.mask = own});
    add_and_normalise(layer.after_attention);
    layer.up.forward(rows(x, d), rows(wide, sizes_.d_wide));
    each_row(wide, size_of(sizes_.d_wide), [](std::size_t, std::span<float> row) {
      for (float& h : row) h = gelu(h);
    });
    layer.down.forward(rows(wide, sizes_.d_wide), rows(y, d));
    add_and_normalise(layer.after_map);
  }

  std::vector<float> embeddings(size_of(B * d));
  each_row(embeddings, size_of(d), [&](std::size_t n, std::span<float> e) {
    // Padding is left out by its place: its rows are never read.
    for (std::size_t t = 0; t < batch[n].size(); ++t) add(e, x, n * size_of(T) + t);
    double squares = 0;
    for (const float v : e) squares += static_cast<double>(v) * static_cast<double>(v);
    // The mean's divisor cancels, but for a sum of zeros, which stays zero.
    const auto inverse = static_cast<float>(squares > 0 ? 1 / std::sqrt(squares) : 0.0);
    for (float& v : e) v *= inverse;
  });
  return embeddings;
}

}  // namespace minilm

// What does "it" look at? Attention of a real model, read from a file; every head in one call.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>
#include <string>
#include <vector>

#include "heed/heed.h"
#include "heed/io.h"

namespace {

constexpr const char* kUsage =
    "example_it [FILE.safetensors]  the sample that belongs to heed "
    "(examples/data/it.safetensors)\n";
constexpr std::int64_t kLayers = 6, kHeads = 12, kTokens = 16, kSize = 32;

/// Finite float16 to float32, exact: one multiplication by 2^112 makes up for the exponents'
/// biases.
std::vector<float> widen(const heed::Tensor& tensor) {
  if (tensor.dtype != heed::DType::f16 ||
      tensor.shape != std::vector<std::int64_t>{kLayers, kHeads, kTokens, kSize}) {
    throw heed::Error("expected float16 [6, 12, 16, 32]");
  }
  std::vector<float> result(tensor.data.size() / 2);
  for (std::size_t i = 0; i < result.size(); ++i) {
    std::uint16_t half;
    std::memcpy(&half, &tensor.data[2 * i], 2);
    const std::uint32_t bits = (half & 0x8000U) << 16 | (half & 0x7fffU) << 13;
    std::memcpy(&result[i], &bits, 4);
    result[i] *= 0x1p112F;
  }
  return result;
}

/// The words of ["a", "b", ..], a JSON list of strings without escapes.
std::vector<std::string> words_of(const std::string& json) {
  if (json.find('\\') != std::string::npos) throw heed::Error("tokens: a word has an escape");
  std::vector<std::string> words;
  for (std::size_t begin = json.find('"'); begin != std::string::npos;) {
    const std::size_t end = json.find('"', begin + 1);
    if (end == std::string::npos) throw heed::Error("tokens: a word has no end");
    words.push_back(json.substr(begin + 1, end - begin - 1));
    begin = json.find('"', end + 1);
  }
  return words;
}

void show(const char* path) {
  const auto file = heed::read_tensors(path);
  for (const char* name : {"sentence", "tokens"}) {
    if (!file.metadata.contains(name)) throw heed::Error(std::string("no metadata ") + name);
  }
  for (const char* name : {"q", "k", "v"}) {
    if (!file.tensors.contains(name)) throw heed::Error(std::string("no tensor ") + name);
  }
  const auto words = words_of(file.metadata.at("tokens"));
  const auto it = std::find(words.begin(), words.end(), "it") - words.begin();
  if (std::ssize(words) != kTokens || it == kTokens) {
    throw heed::Error("tokens: expected 16 words, \"it\" among them");
  }
  const auto q = widen(file.tensors.at("q"));
  const auto k = widen(file.tensors.at("k"));
  const auto v = widen(file.tensors.at("v"));

  // The layers stand at the place of the batch: 6 x 12 heads at once.
  std::vector<float> output(q.size()), weights(kLayers * kHeads * kTokens * kTokens);
  const auto shaped = [](auto* data) {
    return heed::view(data, {kLayers, kHeads, kTokens, kSize});
  };
  heed::attention_forward(
      shaped(q.data()), shaped(k.data()), shaped(v.data()),
      {.output = shaped(output.data()),
       .weights = heed::view(weights.data(), {kLayers, kHeads, kTokens, kTokens})});

  constexpr int layer = 3, head = 1;
  const float* row =
      &weights[static_cast<std::size_t>(((layer * kHeads + head) * kTokens + it) * kTokens)];
  std::printf("%s\nlayer %d, head %d: \"it\" looks at\n", file.metadata.at("sentence").c_str(),
              layer, head);
  for (std::size_t j = 0; j < words.size(); ++j) {
    const std::string bar(row[j] > 0 ? static_cast<std::size_t>(60 * row[j]) : 0, '#');
    std::printf("  %-8s %.3f %s\n", words[j].c_str(), static_cast<double>(row[j]), bar.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string path = argc > 1 ? argv[1] : "examples/data/it.safetensors";
    if (path == "--help" || path == "-h") {
      std::fputs(kUsage, stdout);
      return 0;
    }
    if (argc > 2) throw heed::Error(std::string("unexpected argument '") + argv[2] + "'");
    show(path.c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "it: %s\n", error.what());
    return 1;
  }
}

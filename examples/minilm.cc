// Sentences as vectors: the MiniLM sentence encoder, from its files to how alike sentences are.
//
//     example_minilm MODEL_FOLDER "A man eats." "Somebody has lunch." "The sky is blue."
//     example_minilm MODEL_FOLDER --embeddings out.npy < sentences.txt
#include <heed/heed.h>
#include <heed/io.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "examples/minilm/encoder.h"
#include "examples/minilm/model_folder.h"
#include "examples/minilm/word_piece.h"

namespace {

using heed::Error;
using minilm::Tokens;

constexpr const char* kUsage =
    "usage: example_minilm MODEL_FOLDER [--embeddings FILE.npy] [--batch N] [--tokens] [--] "
    "[SENTENCE ..]\n"
    "Without sentences, each line of the standard input is one. --tokens prints their tokens "
    "only.\nOf up to 12 sentences a table tells how alike they are; of more, --embeddings is "
    "needed.\n";

constexpr std::size_t kLargestTable = 12;  // sentences whose similarities fit a terminal

struct Arguments {
  std::string folder, embeddings;
  std::size_t batch = 32;  // sentences; changes no bit
  bool tokens = false, help = false;
  std::vector<std::string> sentences;
};

Arguments read(std::span<char* const> words) {
  Arguments a;
  bool options = true;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string word = words[i];
    const auto next = [&] {
      if (i + 1 == words.size()) throw Error(word + " takes a value\n" + kUsage);
      return std::string(words[++i]);
    };
    if (options && word == "--") {
      options = false;
    } else if (options && word == "--tokens") {
      a.tokens = true;
    } else if (options && (word == "--help" || word == "-h")) {
      a.help = true;
    } else if (options && word == "--embeddings") {
      a.embeddings = next();
      if (!a.embeddings.ends_with(".npy")) {
        throw Error("--embeddings is '" + a.embeddings + "'; expected a name that ends in .npy");
      }
    } else if (options && word == "--batch") {
      const std::string number = next();
      const bool digits = number.find_first_not_of("0123456789") == std::string::npos;
      a.batch = digits && !number.empty() && number.size() < 7 ? std::stoul(number) : 0;
      if (a.batch == 0) throw Error("--batch is '" + number + "'; expected 1 to 999999");
    } else if (options && word.starts_with("--")) {
      throw Error(word + " is none of --embeddings, --batch, --tokens and --help\n" + kUsage);
    } else if (a.folder.empty()) {
      a.folder = word;
    } else {
      a.sentences.push_back(word);
    }
  }
  if (a.help) return a;
  if (a.folder.empty()) throw Error(kUsage);
  if (a.tokens && !a.embeddings.empty()) {
    throw Error("--tokens and --embeddings exclude each other: tokens alone have no embeddings");
  }
  if (a.sentences.empty()) {
    for (std::string line; std::getline(std::cin, line);) a.sentences.push_back(line);
  }
  if (!a.tokens && a.embeddings.empty() && a.sentences.size() > kLargestTable) {
    throw Error(std::to_string(a.sentences.size()) +
                " sentences are too many for a table, which has " + std::to_string(kLargestTable) +
                " at most; give --embeddings FILE.npy");
  }
  return a;
}

std::vector<Tokens> tokens_of(const std::vector<std::string>& sentences,
                              const minilm::WordPiece& words, std::int64_t longest) {
  std::vector<Tokens> tokens;
  for (const std::string& sentence : sentences) {
    try {
      tokens.push_back(words.tokens_of(sentence, longest));
    } catch (const Error& error) {
      throw Error("sentence " + std::to_string(tokens.size() + 1) + ": " + error.what());
    }
  }
  return tokens;
}

/// In batches of like lengths: none has more rows than 16, or twice those of its shortest sentence.
heed::Tensor embeddings_of(const std::vector<Tokens>& sentences, const minilm::Encoder& encoder,
                           std::int64_t padding, std::size_t batch) {
  const auto length = [&](std::size_t n) { return sentences[n].size(); };
  std::vector<std::size_t> order(sentences.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return length(a) < length(b); });
  heed::Tensor all =
      heed::make_tensor(heed::DType::f32, {std::ssize(sentences), encoder.d_model()});
  const auto size = static_cast<std::size_t>(encoder.d_model());
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    const std::size_t longest = std::max<std::size_t>(16, 2 * length(order[begin]));
    std::vector<Tokens> together;
    for (; end < order.size() && end - begin < batch && length(order[end]) <= longest; ++end) {
      together.push_back(sentences[order[end]]);
    }
    const std::vector<float> embeddings = encoder.embed(together, padding);
    for (std::size_t n = begin; n < end; ++n) {
      std::memcpy(all.data.data() + order[n] * size * sizeof(float),
                  embeddings.data() + (n - begin) * size, size * sizeof(float));
    }
  }
  return all;
}

/// Cosines: embeddings have length 1.
void print_similarities(const heed::Tensor& embeddings, const std::vector<std::string>& sentences) {
  const auto size = static_cast<std::size_t>(embeddings.shape[1]);
  std::vector<float> rows(sentences.size() * size);
  std::memcpy(rows.data(), embeddings.data.data(), embeddings.data.size());
  for (std::size_t n = 0; n < sentences.size(); ++n) {
    std::printf("%3zu ", n + 1);
    for (std::size_t m = 0; m < sentences.size(); ++m) {
      const double cosine =
          std::inner_product(&rows[n * size], &rows[n * size] + size, &rows[m * size], 0.0);
      std::printf(" %6.3f", cosine);
    }
    std::printf("  %s\n", sentences[n].c_str());
  }
}

}  // namespace

int main(int count, char** words) try {
  const Arguments a = read({words + 1, static_cast<std::size_t>(std::max(count - 1, 0))});
  if (a.help) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (!a.embeddings.empty()) heed::check_writable(a.embeddings);
  const minilm::ModelFolder folder = minilm::read_model_folder(a.folder);
  const minilm::WordPiece pieces(folder.vocabulary);
  if (a.tokens) {
    for (const Tokens& tokens : tokens_of(a.sentences, pieces, folder.longest)) {
      std::string line;
      for (const std::int64_t token : tokens) line += pieces.name_of(token) + ' ';
      line.back() = '\n';
      std::fputs(line.c_str(), stdout);
    }
    return 0;
  }
  if (pieces.size() > folder.sizes.vocabulary) {
    throw Error("vocab.txt has " + std::to_string(pieces.size()) + " tokens; expected at most " +
                std::to_string(folder.sizes.vocabulary) + ", as many as config.json says");
  }
  const std::string path = (std::filesystem::path(a.folder) / "model.safetensors").string();
  const minilm::Encoder encoder = [&] {
    const heed::TensorFile file = heed::read_tensors(path);
    try {
      return minilm::Encoder(file, folder.sizes);
    } catch (const Error& error) {
      throw Error(error.kind(), path + ": " + error.what());
    }
  }();

  const auto begin = std::chrono::steady_clock::now();
  const std::vector<Tokens> tokens = tokens_of(a.sentences, pieces, folder.longest);
  heed::Tensor embeddings = embeddings_of(tokens, encoder, pieces.padding(), a.batch);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;

  if (a.sentences.size() <= kLargestTable) print_similarities(embeddings, a.sentences);
  const std::size_t all = std::accumulate(tokens.begin(), tokens.end(), std::size_t{0},
                                          [](std::size_t n, auto& t) { return n + t.size(); });
  std::fprintf(stderr, "%zu sentence%s, %zu tokens in %.3f s: %.0f sentences/s\n", tokens.size(),
               tokens.size() == 1 ? "" : "s", all, seconds.count(),
               static_cast<double>(tokens.size()) / seconds.count());
  if (!a.embeddings.empty()) {
    heed::TensorFile file;
    file.tensors[""] = std::move(embeddings);
    heed::write_tensors(a.embeddings, file);
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "example_minilm: %s\n", error.what());
  return 1;
}

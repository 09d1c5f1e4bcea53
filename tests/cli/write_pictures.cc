// Writes every picture of an inspection into a folder, for people and browsers to look at.
//
//     write_pictures FOLDER file.safetensors
//     write_pictures FOLDER causal | hostile | long | large | empty | broken | hollow
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "heed/io.h"
#include "made_inspection.h"
#include "pictures.h"

namespace {

using heed::cli::Inspection;
using heed::cli::Sight;

Inspection of_file(const std::string& path) {
  const heed::TensorFile file = heed::read_tensors(path);
  const auto q = heed::convert(file.tensors.at("q"), heed::DType::f32);
  const auto k = heed::convert(file.tensors.at("k"), heed::DType::f32);
  heed::cli::Operands in{q.shape[0], q.shape[1], q.shape[2], k.shape[2], q.shape[3], {}, {}};
  const auto numbers = [](const heed::Tensor& tensor) {
    std::vector<float> values(tensor.data.size() / sizeof(float));
    std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
    return values;
  };
  in.q = numbers(q);
  in.k = numbers(k);
  Inspection made = made_inspection(in, Sight::all, 96);
  made.source = std::filesystem::path(path).filename().string();
  made.sentence = file.metadata.at("sentence");
  made.tokens = nlohmann::json::parse(file.metadata.at("tokens")).get<std::vector<std::string>>();
  return made;
}

Inspection of_kind(const std::string& kind) {
  using heed::cli::random_operands;
  if (kind == "causal") return made_inspection(random_operands(2, 5, 40, 16), Sight::causal, 96);
  if (kind == "long") return made_inspection(random_operands(2, 6, 300, 32), Sight::causal, 96);
  if (kind == "large") return heed::cli::large_inspection(6, 12, 2048, 96);
  if (kind == "empty") return Inspection{};
  if (kind == "broken") return heed::cli::broken_inspection();
  if (kind == "hollow") {
    Inspection made{.source = kind, .settings = "", .layers = 1, .heads = 1, .bins = 40};
    made.found.resize(1);
    return made;
  }
  if (kind == "hostile") {
    Inspection made = made_inspection(random_operands(1, 3, 14, 8), Sight::causal, 96);
    made.tokens = heed::cli::hostile_tokens(14);
    made.source = made.sentence = made.settings = made.tokens[0] + made.tokens[3] + made.tokens[5];
    made.found[0].remarks = {{heed::cli::Severity::warning, made.source, made.source}};
    made.found[1].entropy_share.mean = NAN;
    return made;
  }
  return of_file(kind);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: write_pictures FOLDER FILE|causal|hostile|long|large|empty|broken|hollow\n",
               stderr);
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  const Inspection made = of_kind(argv[2]);
  auto pictures = heed::cli::pictures_of(made);
  for (auto& one : difference_of(made, made)) pictures.push_back(std::move(one));
  pictures.push_back({"report.html", heed::cli::html_report(made)});
  for (const auto& [name, bytes] : pictures) {
    std::ofstream(folder / name, std::ios::binary) << bytes;
    std::printf("%9zu %s\n", bytes.size(), name.c_str());
  }
  return 0;
}

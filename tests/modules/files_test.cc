// Parameters to files and back, by heed's names and by PyTorch's.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "called.h"
#include "heed/modules_io.h"
#include "refusals.h"

namespace heed_test {
namespace {

using heed::MultiHeadAttention;
using heed::Names;
using heed::TensorFile;

std::vector<std::vector<float>> values_of(const std::vector<heed::Parameter>& parameters) {
  std::vector<std::vector<float>> all;
  for (const auto& p : parameters) all.emplace_back(p.values.begin(), p.values.end());
  return all;
}

MultiHeadAttention drawn(const heed::MultiHeadAttentionOptions& options, std::uint64_t seed = 2) {
  MultiHeadAttention module(options);
  draw_parameters(module.parameters(), seed);
  return module;
}

/// Of this process alone: ctest runs tests of one file side by side.
std::string path() {
  return testing::TempDir() + "heed_modules_" + std::to_string(getpid()) + ".safetensors";
}

const heed::MultiHeadAttentionOptions kSmall{.d_model = 6, .heads = 2, .bias = true};

TEST(parameters, come_back_from_a_file) {
  for (const Names names : {Names::heed, Names::torch}) {
    auto saved = drawn(kSmall), loaded = drawn(kSmall, 3);
    heed::save_parameters(path(), saved.parameters(), {.prefix = "a.", .names = names});
    heed::load_parameters(path(), loaded.parameters(), {.prefix = "a.", .names = names});
    EXPECT_EQ(values_of(saved.parameters()), values_of(loaded.parameters()));
    std::filesystem::remove(path());
  }
}

TEST(parameters, that_a_file_lacks_are_told_with_its_name) {
  heed::save_parameters(path(), drawn(kSmall).parameters(), {.prefix = "a."});
  auto loaded = drawn(kSmall, 3);
  EXPECT_EQ(message_of([&] { heed::load_parameters(path(), loaded.parameters()); }),
            "load_parameters: " + path() + ": the file has no W_k; expected it with shape (6, 6)");
  std::filesystem::remove(path());
}

/// One parameter is what a .npy file could hold, but not the name to find it by.
TEST(parameters, are_saved_where_names_are_kept) {
  heed::Linear linear({.inputs = 2, .outputs = 2});
  const std::string npy = path() + ".npy";
  EXPECT_EQ(message_of([&] { heed::save_parameters(npy, linear.parameters()); }),
            "save_parameters: " + npy + ": .npy holds no names; write .npz or .safetensors");
  EXPECT_FALSE(std::filesystem::exists(npy));
}

TEST(parameters, of_several_modules_share_a_file) {
  auto attention = drawn({.d_model = 6,
                          .heads = 3,
                          .kv_heads = 1,
                          .value_size = 5,
                          .temperature = heed::Temperature::per_head});
  heed::Linear linear({.inputs = 3, .outputs = 4, .bias = true});
  draw_parameters(linear.parameters(), 5);
  auto all = heed::prefixed("block.0.", attention.parameters());
  for (const auto& p : heed::prefixed("out.", linear.parameters())) all.push_back(p);
  TensorFile file;
  heed::put_parameters(file, all);
  EXPECT_EQ(file.tensors.size(), 7u);
  EXPECT_EQ(file.tensors.at("block.0.W_v").shape, (std::vector<std::int64_t>{5, 6}));
  EXPECT_EQ(file.tensors.at("block.0.temperature").shape, (std::vector<std::int64_t>{3}));
  const auto wanted = values_of(all);
  for (const auto& p : all) std::fill(p.values.begin(), p.values.end(), 0.0f);
  heed::get_parameters(file, linear.parameters(), {.prefix = "out."});
  heed::get_parameters(file, attention.parameters(), {.prefix = "block.0."});
  EXPECT_EQ(values_of(all), wanted);
}

const float* floats(const TensorFile& file, const std::string& name) {
  return reinterpret_cast<const float*>(file.tensors.at(name).data.data());
}

TEST(parameters, have_the_names_and_places_of_torch) {
  auto module = drawn(kSmall);
  TensorFile file;
  heed::put_parameters(file, module.parameters(), {.names = Names::torch});
  ASSERT_EQ(file.tensors.size(), 4u);
  EXPECT_EQ(file.tensors.at("in_proj_weight").shape, (std::vector<std::int64_t>{18, 6}));
  EXPECT_EQ(file.tensors.at("in_proj_bias").shape, (std::vector<std::int64_t>{18}));
  EXPECT_EQ(file.tensors.at("out_proj.weight").shape, (std::vector<std::int64_t>{6, 6}));
  EXPECT_EQ(file.tensors.at("out_proj.bias").shape, (std::vector<std::int64_t>{6}));
  const auto parameters = module.parameters();  // W_q b_q W_k b_k W_v b_v W_o b_o
  for (std::size_t part = 0; part < 3; ++part) {
    EXPECT_EQ(std::memcmp(floats(file, "in_proj_weight") + 36 * part,
                          parameters[2 * part].values.data(), 144),
              0);
    EXPECT_EQ(std::memcmp(floats(file, "in_proj_bias") + 6 * part,
                          parameters[2 * part + 1].values.data(), 24),
              0);
  }
}

TEST(parameters, of_other_key_sizes_are_separate_in_torch) {
  auto module = drawn({.d_model = 6, .heads = 2, .d_keys = 4, .d_values = 5});
  TensorFile file;
  heed::put_parameters(file, module.parameters(), {.names = Names::torch});
  EXPECT_EQ(file.tensors.size(), 4u);
  EXPECT_EQ(file.tensors.at("q_proj_weight").shape, (std::vector<std::int64_t>{6, 6}));
  EXPECT_EQ(file.tensors.at("k_proj_weight").shape, (std::vector<std::int64_t>{6, 4}));
  EXPECT_EQ(file.tensors.at("v_proj_weight").shape, (std::vector<std::int64_t>{6, 5}));
  auto loaded = drawn(module.options(), 9);
  heed::get_parameters(file, loaded.parameters(), {.names = Names::torch});
  EXPECT_EQ(values_of(loaded.parameters()), values_of(module.parameters()));
}

/// Two values of the same weights in one file would leave open which ones a reader takes.
TEST(parameters, stand_in_one_layout_of_torch) {
  auto module = drawn(kSmall);
  const heed::ParameterNames torch{.names = Names::torch};
  TensorFile file;
  for (const char* name : {"q_proj_weight", "k_proj_weight", "v_proj_weight"}) {
    file.tensors[name] = heed::make_tensor(heed::DType::f32, {6, 6});
  }
  heed::put_parameters(file, module.parameters(), torch);
  EXPECT_EQ(file.tensors.size(), 4u);
  auto loaded = drawn(kSmall, 9);
  heed::get_parameters(file, loaded.parameters(), torch);
  EXPECT_EQ(values_of(loaded.parameters()), values_of(module.parameters()));

  const auto before = values_of(module.parameters());
  for (const std::string letter : {"q", "k", "v"}) {
    TensorFile both = file;
    both.tensors[letter + "_proj_weight"] = heed::make_tensor(heed::DType::f32, {6, 6});
    EXPECT_EQ(message_of([&] { heed::get_parameters(both, module.parameters(), torch); }),
              "get_parameters: the file has in_proj_weight and " + letter +
                  "_proj_weight; expected one of the two, for both hold W_" + letter);
    EXPECT_EQ(values_of(module.parameters()), before);
  }
  auto narrow = drawn({.d_model = 6, .heads = 2, .d_keys = 4, .bias = true});
  heed::put_parameters(file, narrow.parameters(), torch);
  EXPECT_EQ(file.tensors.size(), 6u);
  EXPECT_EQ(file.tensors.count("in_proj_weight"), 0u);
}

TEST(parameters, are_read_from_other_floating_types_and_of_any_rank) {
  auto module = drawn(kSmall), loaded = drawn(kSmall, 3);
  TensorFile file;
  heed::put_parameters(file, module.parameters());
  for (auto& [name, tensor] : file.tensors) tensor = heed::convert(tensor, heed::DType::f64);
  heed::get_parameters(file, loaded.parameters());
  EXPECT_EQ(values_of(module.parameters()), values_of(loaded.parameters()));
  // A parameter of somebody else may have more axes than a view.
  std::vector<float> numbers(6, 1.0f);
  const heed::Parameter deep{"deep", {1, 2, 1, 3, 1}, numbers, {}};
  heed::put_parameters(file, {deep});
  std::fill(numbers.begin(), numbers.end(), 0.0f);
  heed::get_parameters(file, {deep});
  EXPECT_EQ(numbers, std::vector<float>(6, 1.0f));
}

TEST(parameters, of_no_numbers_come_back_among_others) {
  std::vector<float> numbers{1, 2};
  const std::vector<heed::Parameter> all{{"none", {0, 3}, {}, {}}, {"two", {2}, numbers, {}}};
  TensorFile file;
  heed::put_parameters(file, all);
  EXPECT_EQ(file.tensors.at("none").shape, (std::vector<std::int64_t>{0, 3}));
  numbers = {0, 0};
  heed::get_parameters(file, all);
  EXPECT_EQ(numbers, (std::vector<float>{1, 2}));
}

TEST(parameters, that_do_not_fit_change_nothing) {
  auto module = drawn(kSmall);
  const auto before = values_of(module.parameters());
  const auto refused = [&](const char* what, Names names, const auto& change) {
    auto other = drawn(kSmall, 3);
    TensorFile file;
    heed::put_parameters(file, other.parameters(), {.names = names});
    change(file);
    EXPECT_EQ(
        message_of([&] { heed::get_parameters(file, module.parameters(), {.names = names}); }),
        std::string("get_parameters: ") + what);
    EXPECT_EQ(values_of(module.parameters()), before);
  };
  refused("the file has no b_v; expected it with shape (6,)", Names::heed,
          [](TensorFile& file) { file.tensors.erase("b_v"); });
  refused("W_v has shape (6, 7); expected (6, 6)", Names::heed, [](TensorFile& file) {
    file.tensors["W_v"] = heed::make_tensor(heed::DType::f32, {6, 7});
  });
  refused("W_v has 3 bytes of data; expected 144, those of float32 (6, 6)", Names::heed,
          [](TensorFile& file) { file.tensors["W_v"].data.resize(3); });
  refused("W_v is int32; expected a floating-point type", Names::heed, [](TensorFile& file) {
    file.tensors["W_v"] = heed::make_tensor(heed::DType::i32, {6, 6});
  });
  refused("the file has temperature, but the module no such parameter", Names::heed,
          [](TensorFile& file) {
            file.tensors["temperature"] = heed::make_tensor(heed::DType::f32, {1});
          });
  refused("in_proj_weight has shape (12, 6); expected (18, 6)", Names::torch, [](TensorFile& file) {
    file.tensors["in_proj_weight"] = heed::make_tensor(heed::DType::f32, {12, 6});
  });
  refused("the file has no in_proj_bias; expected it with shape (18,)", Names::torch,
          [](TensorFile& file) { file.tensors.erase("in_proj_bias"); });
  refused("the file has bias_k, but the module no such parameter", Names::torch,
          [](TensorFile& file) {
            file.tensors["bias_k"] = heed::make_tensor(heed::DType::f32, {1, 1, 6});
          });
}

TEST(parameters, are_told_of_in_one_short_line) {
  const std::string strange = path() + "\n\x1b[31m.safetensors";
  TensorFile file;
  file.tensors["weight"] =
      heed::make_tensor(heed::DType::f32, std::vector<std::int64_t>(30'000, 1));
  heed::write_tensors(strange, file);
  float number = 0;
  const std::vector<heed::Parameter> all{{"weight", {1}, std::span(&number, 1), {}}};
  EXPECT_EQ(
      message_of([&] { heed::load_parameters(strange, all); }),
      "load_parameters: " + path() +
          "\\n\\x1b[31m.safetensors: weight has shape (1, 1, 1, 1, 1, 1, 1, 1, and 29992 axes "
          "more); expected (1,)");
  EXPECT_EQ(message_of([&] { heed::save_parameters("a\nb.npy", all); }),
            "save_parameters: a\\nb.npy: .npy holds no names; write .npz or .safetensors");
  EXPECT_EQ(
      message_of([&] { heed::load_parameters(strange, all, {.prefix = "a\n"}); }),
      "load_parameters: " + path() +
          "\\n\\x1b[31m.safetensors: the file has no a\\nweight; expected it with shape (1,)");
  std::filesystem::remove(strange);
}

TEST(parameters, that_torch_cannot_have_are_refused) {
  const auto refusal = [](const heed::MultiHeadAttentionOptions& options) {
    TensorFile file;
    const std::string message = message_of(
        [&] { heed::put_parameters(file, drawn(options).parameters(), {.names = Names::torch}); });
    EXPECT_TRUE(file.tensors.empty());
    return message;
  };
  EXPECT_EQ(refusal({.d_model = 8, .heads = 4, .kv_heads = 2}),
            "put_parameters: W_k has shape (4, 8); expected (8, 8) of PyTorch's "
            "nn.MultiheadAttention");
  EXPECT_EQ(refusal({.d_model = 8, .heads = 2, .temperature = heed::Temperature::one}),
            "put_parameters: temperature has shape (1,); expected none, since PyTorch's "
            "nn.MultiheadAttention has weights and biases alone");
  auto other = drawn(kSmall).parameters();
  const auto refused = [](const std::vector<heed::Parameter>& parameters) {
    TensorFile file;
    return message_of([&] { heed::put_parameters(file, parameters, {.names = Names::torch}); });
  };
  auto flat = other;
  flat[0].shape = {36};
  EXPECT_EQ(refused(flat),
            "put_parameters: W_q has shape (36,); expected (36, 36) of PyTorch's "
            "nn.MultiheadAttention");
  for (const auto& [n, name, size] : {std::tuple{0, "W_q", "0, 0"}, {2, "W_k", "6, 6"}}) {
    auto scalar = other;
    auto& one = scalar[static_cast<std::size_t>(n)];
    one.shape = {};
    one.values = one.values.first(1);
    EXPECT_EQ(refused(scalar), "put_parameters: " + std::string(name) +
                                   " has shape (); expected (" + size +
                                   ") of PyTorch's nn.MultiheadAttention");
  }
  for (std::size_t n = 0; n < 8; ++n) {  // W_q, b_q, W_k ..
    auto fewer = other;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(n));
    EXPECT_EQ(refused(fewer), "put_parameters: " + other[n].name + " is missing; expected all " +
                                  (n % 2 == 0 ? "weights" : "biases, or none,") +
                                  " of PyTorch's nn.MultiheadAttention");
  }
  auto more = other;
  more.push_back(other[1]);
  more.back().name = "gain";
  EXPECT_EQ(refused(more),
            "put_parameters: gain has shape (6,); expected none, since PyTorch's "
            "nn.MultiheadAttention has weights and biases alone");
  auto biased = drawn(kSmall);
  auto plain = drawn({.d_model = 6, .heads = 2});
  TensorFile file;
  heed::put_parameters(file, biased.parameters(), {.names = Names::torch});
  EXPECT_EQ(
      message_of([&] { heed::get_parameters(file, plain.parameters(), {.names = Names::torch}); }),
      "get_parameters: the file has in_proj_bias, but the module no such parameter");
}

TEST(parameters, that_no_file_can_hold_are_refused_both_ways) {
  std::vector<float> numbers(6, 1.0f);
  TensorFile file;
  file.tensors["kept"] = heed::make_tensor(heed::DType::f32, {1});
  const auto refused = [&](const std::string& what, const std::vector<heed::Parameter>& parameters,
                           Names names) {
    EXPECT_EQ(message_of([&] { heed::put_parameters(file, parameters, {.names = names}); }),
              "put_parameters: " + what);
    EXPECT_EQ(message_of([&] { heed::get_parameters(file, parameters, {.names = names}); }),
              "get_parameters: " + what);
    EXPECT_EQ(file.tensors.size(), 1u);
    EXPECT_EQ(numbers, std::vector<float>(6, 1.0f));
  };
  const std::int64_t huge = std::int64_t{1} << 40;
  using Shape = std::vector<std::int64_t>;
  const auto text = [](const Shape& shape) {
    std::string all;
    for (const auto n : shape) all += (all.empty() ? "" : ", ") + std::to_string(n);
    return "(" + all + (shape.size() == 1 ? ",)" : ")");
  };
  for (const auto& shape : {Shape{2, 2}, {7}, {}, {0, 3}}) {
    refused("weight has 6 numbers; expected those of shape " + text(shape),
            {{"weight", shape, numbers, {}}}, Names::heed);
  }
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const auto& shape :
       {Shape{-2, -3}, {huge, huge}, {0, huge, huge}, {huge, huge, 0}, {0, most}, {-1, 0}}) {
    for (const std::size_t count : {std::size_t{0}, numbers.size()}) {
      refused("weight has shape " + text(shape) +
                  "; expected sizes of 0 or more that fit 63 bits of bytes together",
              {{"weight", shape, std::span(numbers).first(count), {}}}, Names::heed);
    }
  }
  const heed::Parameter p{"a.weight", {2, 3}, numbers, {}};
  refused("names is 7, which is no Names", {p}, static_cast<Names>(7));
  refused(
      "two parameters are called a.weight; expected names that differ, as prefixed() makes them",
      {p, p}, Names::heed);
  // A module's tensor under PyTorch's names, and one that has such a name already.
  std::vector<heed::Parameter> all;
  for (const char* name : {"W_q", "W_k", "W_v", "W_o"}) {
    all.push_back({name, {1, 1}, std::span(numbers).first(1), {}});
  }
  all.push_back({"out_proj.weight", {1, 1}, std::span(numbers).first(1), {}});
  refused(
      "two parameters would be out_proj.weight; expected names that differ, as prefixed() makes "
      "them",
      all, Names::torch);
}

}  // namespace
}  // namespace heed_test

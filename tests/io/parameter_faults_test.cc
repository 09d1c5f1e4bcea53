// Parameters of modules and files, where each allocation fails in turn: all is kept, or all is
// there.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "files.h"
#include "forward/failing_allocation.h"
#include "heed/modules_io.h"

namespace heed::test {
namespace {

/// Saving leaves the old file, loading from float64, which is converted first, leaves all
/// parameters.
TEST(faults, every_allocation_for_parameters_may_fail) {
  const Directory directory;
  const std::string path = directory / "x.safetensors";
  MultiHeadAttention module({.d_model = 6, .heads = 2, .bias = true});
  const std::vector<Parameter> parameters = module.parameters();
  const auto fill = [&](float x) {
    for (const Parameter& p : parameters) std::fill(p.values.begin(), p.values.end(), x);
  };
  const auto all_are = [&](float x) {
    return std::all_of(parameters.begin(), parameters.end(), [x](const Parameter& p) {
      return std::all_of(p.values.begin(), p.values.end(), [x](float y) { return y == x; });
    });
  };
  for (const Names kind : {Names::heed, Names::torch}) {
    const ParameterNames names{.prefix = "encoder.layers.0.self_attn.", .names = kind};
    const auto file_of = [&](float x, DType dtype) {
      TensorFile file;
      fill(x);
      put_parameters(file, parameters, names);
      for (auto& [name, tensor] : file.tensors) tensor = convert(tensor, dtype);
      return file;
    };
    for (const bool saves : {false, true}) {
      const TensorFile before = file_of(1, saves ? DType::f32 : DType::f64);
      const std::string old = written("x.safetensors", before);
      const std::string fresh = written("x.safetensors", file_of(2, DType::f32));
      long count = 0;
      int messages = 0;
      for (bool reached = true; reached; ++count) {
        write_tensors(path, before);
        bool failed = false;
        failing = count + 1;
        try {
          if (saves) save_parameters(path, parameters, names);
          if (!saves) load_parameters(path, parameters, names);
        } catch (const Error& error) {
          failed = true;
          ++messages;
          EXPECT_EQ(error.kind(), ErrorKind::memory) << error.what();
          const std::string said = error.what();
          EXPECT_TRUE(said.find(" bytes") != std::string::npos ||
                      said.ends_with("_parameters: no memory for lists of parameters"))
              << said;
        }
        reached = failing.load() == 0;
        failing = 0;
        EXPECT_EQ(get(path), saves && !failed ? fresh : old) << count;
        EXPECT_TRUE(all_are(saves || failed ? 2 : 1)) << count;
        EXPECT_EQ(directory.entries(), 1U);
        fill(2);
      }
      EXPECT_GT(count, 20);
      EXPECT_GT(messages, 3);
    }
  }
}

TEST(faults, parameters_are_put_into_a_file_all_or_none) {
  MultiHeadAttention module({.d_model = 6, .heads = 2, .bias = true});
  const std::vector<Parameter> parameters = module.parameters();
  long count = 0;
  bool reached = true;
  for (; reached; ++count) {
    TensorFile file;
    file.tensors["another"] = make_tensor(DType::f32, {1});
    file.tensors["W_q"] = make_tensor(DType::f32, {2});
    std::string message;
    failing = count + 1;
    try {
      put_parameters(file, parameters);
    } catch (const Error& error) {
      message = error.what();
    }
    reached = failing.load() == 0;
    failing = 0;
    EXPECT_EQ(file.tensors.size(), reached ? 2U : 9U) << count;
    EXPECT_EQ(file.tensors["W_q"].shape.size(), reached ? 1U : 2U) << count;
    EXPECT_EQ(reached, !message.empty()) << count;
  }
  EXPECT_GT(count, 20);
}

}  // namespace
}  // namespace heed::test

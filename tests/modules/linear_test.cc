// Linear maps: each element beside its sum in double, within the bound that its chain of roundings
// gives.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "called.h"
#include "forward/guarded.h"
#include "forward/support.h"
#include "forward/tensors.h"
#include "heed/heed.h"
#include "known.h"
#include "sanitized.h"

namespace heed_test {
namespace {

struct Sizes {
  std::int64_t rows, inputs, outputs;
};

const std::vector<Sizes>& sizes() {
  static const std::vector<Sizes> all{{1, 1, 1},      {1, 5, 3},       {3, 7, 100},
                                      {17, 16, 96},   {64, 64, 97},    {65, 128, 48},
                                      {129, 33, 31},  {200, 384, 7},   {130, 129, 193},
                                      {70, 512, 260}, {300, 257, 129}, {2, 1024, 33}};
  return all;
}

std::vector<double> doubles(std::span<const float> from) { return {from.begin(), from.end()}; }

std::vector<float> normals(std::int64_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) number = static_cast<float>(random.normal());
  return numbers;
}

/// A layer whose numbers are all drawn, and its inputs.
struct Layer {
  explicit Layer(const Sizes& s, bool bias = true)
      : size(s),
        linear({.inputs = s.inputs, .outputs = s.outputs, .bias = bias}),
        x(normals(s.rows * s.inputs, 11)),
        dy(normals(s.rows * s.outputs, 12)),
        y(dy.size(), NAN),
        dx(x.size(), NAN) {
    draw_parameters(linear.parameters(), 13);
  }
  void run(const heed::Execution& execution = {}) {
    linear.forward(heed::view(std::as_const(x).data(), {size.rows, size.inputs}),
                   heed::view(y.data(), {size.rows, size.outputs}), execution);
    linear.backward(heed::view(x.data(), {size.rows, size.inputs}),
                    heed::view(dy.data(), {size.rows, size.outputs}),
                    heed::view(dx.data(), {size.rows, size.inputs}), execution);
  }
  Sizes size;
  heed::Linear linear;
  std::vector<float> x, dy, y, dx;
};

std::vector<float> copied(std::span<const float> from) { return {from.begin(), from.end()}; }

TEST(linear, is_within_the_bounds_of_its_chains) {
  double worst = 0;
  for (const heed::Isa isa : isas_for_races(runnable_isas())) {
    const Forced forced(isa);
    for (const Sizes& s : sizes()) {
      SCOPED_TRACE(testing::Message() << name_of(isa) << " " << s.rows << " rows, " << s.inputs
                                      << " -> " << s.outputs);
      Layer layer(s);
      layer.run();
      const Known x(s.rows, s.inputs, doubles(layer.x)), dy(s.rows, s.outputs, doubles(layer.dy));
      const Known w(s.outputs, s.inputs, doubles(layer.linear.weight()));
      Known y = product(x, w, roundings(s.inputs));
      for (std::size_t i = 0; i < y.value.size(); ++i) {
        y.value[i] +=
            static_cast<double>(layer.linear.bias()[i % static_cast<std::size_t>(s.outputs)]);
      }
      const double shares[] = {
          worst_share(layer.y, y),
          worst_share(layer.dx, product(dy, transposed(w), roundings(s.outputs))),
          worst_share(layer.linear.weight_gradient(),
                      product(transposed(dy), transposed(x), roundings(s.rows))),
          worst_share(layer.linear.bias_gradient(), column_sums(dy))};
      for (const double share : shares) {
        EXPECT_LE(share, 1);
        worst = std::max(worst, share);
      }
    }
  }
  EXPECT_GT(worst, 0.02) << "the bounds are too wide to say anything";
}

TEST(linear, has_the_bits_of_the_scalar_path_on_every_instruction_set) {
  for (const Sizes& s : sizes()) {
    Layer scalar(s);
    {
      const Forced forced(heed::Isa::scalar);
      scalar.run({.threads = 1});
    }
    for (const heed::Isa isa : isas_for_races(runnable_isas())) {
      const Forced forced(isa);
      for (const int threads : {1, 2, 5}) {
        SCOPED_TRACE(testing::Message() << name_of(isa) << ", threads " << threads << ", " << s.rows
                                        << " x " << s.inputs << " -> " << s.outputs);
        Layer layer(s);
        layer.run({.threads = threads});
        EXPECT_TRUE(same_bits(layer.y, scalar.y));
        EXPECT_TRUE(same_bits(layer.dx, scalar.dx));
        EXPECT_TRUE(same_bits(copied(layer.linear.weight_gradient()),
                              copied(scalar.linear.weight_gradient())));
        EXPECT_TRUE(
            same_bits(copied(layer.linear.bias_gradient()), copied(scalar.linear.bias_gradient())));
      }
    }
  }
}

TEST(linear, gives_a_row_the_same_bits_alone_and_among_others) {
  const Sizes s{200, 130, 100};
  Layer all(s);
  all.run();
  for (const std::int64_t row : {0, 1, 63, 64, 199}) {
    std::vector<float> y(100, NAN), dx(130, NAN);
    all.linear.forward(heed::view(all.x.data() + row * 130, {1, 130}),
                       heed::view(y.data(), {1, 100}));
    EXPECT_EQ(std::memcmp(y.data(), all.y.data() + row * 100, 400), 0);
    all.linear.backward(heed::view(all.x.data() + row * 130, {1, 130}),
                        heed::view(all.dy.data() + row * 100, {1, 100}),
                        heed::view(dx.data(), {1, 130}));
    EXPECT_EQ(std::memcmp(dx.data(), all.dx.data() + row * 130, 520), 0);
  }
}

TEST(linear, gives_the_same_bits_in_every_layout) {
  const std::int64_t kBatch = 2, kHeads = 3, kRows = 11, kIn = 37, kOut = 50;
  Random random(5);
  Tensor<float> x({kBatch, kHeads, kRows, kIn}), dy({kBatch, kHeads, kRows, kOut});
  fill_normal(x, random);
  fill_normal(dy, random);
  const auto run = [&](Layout layout) {
    heed::Linear linear({.inputs = kIn, .outputs = kOut, .bias = true});
    draw_parameters(linear.parameters(), 6);
    const Tensor<float> from = laid_out(x, layout), gradient = laid_out(dy, layout);
    Tensor<float> y(dy.shape, layout), dx(x.shape, layout);
    linear.forward(from.view(), y.out());
    linear.backward(from.view(), gradient.view(), dx.out());
    std::vector<float> all;
    for (const Tensor<float>* t : {&y, &dx}) {
      t->each([&](auto b, auto h, auto i, auto c) { all.push_back(t->at(b, h, i, c)); });
    }
    for (const heed::Parameter& p : linear.parameters()) {
      all.insert(all.end(), p.gradient.begin(), p.gradient.end());
    }
    return all;
  };
  const std::vector<float> plain = run(Layout::bhtd);
  for (int n = 0; n < kLayouts; ++n) {
    const auto layout = static_cast<Layout>(n);
    if (!writable(layout)) continue;
    EXPECT_TRUE(same_bits(run(layout), plain)) << name_of(layout);
  }
}

TEST(linear, adds_to_its_gradients_until_they_are_zeroed) {
  const Sizes s{40, 20, 30};
  Layer once(s), twice(s);
  once.run();
  twice.run();
  twice.run();
  const auto first = once.linear.parameters(), second = twice.linear.parameters();
  ASSERT_EQ(first.size(), 2U);  // weight and bias
  for (std::size_t p = 0; p < first.size(); ++p) {
    for (std::size_t i = 0; i < first[p].gradient.size(); ++i)
      EXPECT_EQ(second[p].gradient[i], 2 * first[p].gradient[i]) << first[p].name << ' ' << i;
  }
  twice.linear.zero_gradients();
  for (const heed::Parameter& p : twice.linear.parameters()) {
    for (const float g : p.gradient) EXPECT_EQ(g, 0);
  }
}

TEST(linear, keeps_a_nan_in_its_row) {
  Layer clean({70, 40, 50}), dirty({70, 40, 50});
  dirty.x[5 * 40 + 3] = NAN;
  dirty.dy[7 * 50 + 1] = NAN;
  clean.run();
  dirty.run();
  for (std::size_t r = 0; r < 70; ++r) {
    EXPECT_EQ(std::isnan(dirty.y[r * 50]), r == 5);
    EXPECT_EQ(std::isnan(dirty.dx[r * 40]), r == 7);
    EXPECT_TRUE(r == 5 || std::memcmp(&dirty.y[r * 50], &clean.y[r * 50], 200) == 0);
    EXPECT_TRUE(r == 7 || std::memcmp(&dirty.dx[r * 40], &clean.dx[r * 40], 160) == 0);
  }
}

TEST(linear, takes_no_rows) {
  heed::Linear linear({.inputs = 3, .outputs = 2, .bias = true});
  float x = 0, y = 0;
  linear.forward(heed::view(&x, {0, 3}), heed::view(&y, {0, 2}));
  linear.backward(heed::view(&x, {0, 3}), heed::view(&y, {0, 2}));
  for (const float g : linear.weight_gradient()) EXPECT_EQ(g, 0);
}

TEST(linear, touches_nothing_beyond_a_tensor_and_writes_no_input) {
  for (const heed::Isa isa : isas_for_races(runnable_isas())) {
    const Forced forced(isa);
    for (const bool at_end : {false, true}) {
      for (const Sizes& s : sizes()) {
        if (s.rows * s.inputs * s.outputs > 2000000) continue;
        Layer expected(s), layer(s);
        expected.run();
        GuardedCopies copies(at_end);
        const auto x = copies.of(heed::view(std::as_const(layer.x).data(), {s.rows, s.inputs}));
        const auto dy = copies.of(heed::view(std::as_const(layer.dy).data(), {s.rows, s.outputs}));
        const auto y = copies.of(heed::view(layer.y.data(), {s.rows, s.outputs}));
        const auto dx = copies.of(heed::view(layer.dx.data(), {s.rows, s.inputs}));
        layer.linear.forward(x, y);
        layer.linear.backward(x, dy, dx);
        const auto same = [](const heed::TensorView& got, const std::vector<float>& want) {
          return std::memcmp(got.data, want.data(), want.size() * sizeof(float)) == 0;
        };
        EXPECT_TRUE(same(y, expected.y)) << s.rows << ", " << s.inputs << ", " << s.outputs;
        EXPECT_TRUE(same(dx, expected.dx)) << s.rows << ", " << s.inputs << ", " << s.outputs;
      }
    }
  }
}

}  // namespace
}  // namespace heed_test

// Every public function that computes, called in strange floating-point environments.
// Goal: the caller's rounding mode and flushing change no bit, and are there again afterwards.
// Method: each call once as usual, then in each environment; sizes and scales that no power of two
// hides.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "float_control.h"
#include "heed/heed.h"

namespace heed {
namespace {

using testing::Control;
using testing::kStrangeControls;
using testing::read_control;

constexpr std::int64_t B = 1, H = 4, Hk = 2, Tq = 21, Tk = 130, Dv = 9;

/// Results side by side; every function writes to memory that is zero before.
using Results = std::vector<std::vector<std::byte>>;

/// What a function computes. `inside` runs what it is given in the environment that is tried.
using Inside = std::function<void(const std::function<void()>&)>;
using Computation = std::function<Results(const Inside&)>;

/// Numbers of (-2, 2) in the given type, from a fixed seed; no libm, no rounding that matters.
std::vector<std::byte> drawn(DType dtype, std::int64_t count, std::uint64_t seed) {
  std::vector<std::byte> bytes;
  for (std::int64_t n = 0; n < count; ++n) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    const float number = static_cast<float>(static_cast<std::int32_t>(seed >> 32)) * 0x1p-30F;
    const double wide = number;
    std::uint32_t bits;
    std::memcpy(&bits, &number, 4);
    // sign, exponent, mantissa cut off; below 2^-14 float16 gets 0
    const std::uint32_t exponent = bits >> 23 & 0xFF;
    const auto half = static_cast<std::uint16_t>(
        exponent < 113 ? 0 : (bits >> 16 & 0x8000) | (exponent - 112) << 10 | (bits >> 13 & 0x3FF));
    const auto brain = static_cast<std::uint16_t>(bits >> 16);
    const std::size_t size = size_of(dtype);
    const void* const from = dtype == DType::f64   ? static_cast<const void*>(&wide)
                             : dtype == DType::f32 ? static_cast<const void*>(&number)
                             : dtype == DType::f16 ? static_cast<const void*>(&half)
                                                   : static_cast<const void*>(&brain);
    const auto* const begin = static_cast<const std::byte*>(from);
    bytes.insert(bytes.end(), begin, begin + size);
  }
  return bytes;
}

/// A tensor with its memory.
struct Held {
  DType dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;

  Held(DType type, std::vector<std::int64_t> sizes, std::uint64_t seed = 0)
      : dtype(type), shape(std::move(sizes)) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    bytes = seed == 0 ? std::vector<std::byte>(static_cast<std::size_t>(count) * size_of(type))
                      : drawn(type, count, seed);
  }
  [[nodiscard]] ConstTensorView view() const { return out(const_cast<std::byte*>(bytes.data())); }
  TensorView out() { return out(bytes.data()); }

 private:
  [[nodiscard]] TensorView out(std::byte* data) const {
    TensorView v = heed::view(data, dtype, {1});
    v.rank = static_cast<int>(shape.size());
    std::int64_t stride = 1;
    for (std::size_t a = shape.size(); a-- > 0; stride *= shape[a]) {
      v.shape[a] = shape[a];
      v.stride[a] = stride;
    }
    return v;
  }
};

/// What attention is told in every pass: all that is rounded before a task sees it.
struct Told {
  std::int64_t D;
  DType dtype, wide;
  Held q{dtype, {B, H, Tq, D}, 1}, k{dtype, {B, Hk, Tk, D}, 2}, v{dtype, {B, Hk, Tk, Dv}, 3};
  Held slopes{DType::f64, {H}, 4}, bias{DType::f64, {1, 1, Tq, Tk}, 5}, sinks{DType::f64, {H}, 6};
  AttentionOptions options;

  Told(DType type, std::int64_t size, OneOrEach<double> scale, bool all)
      : D(size), dtype(type), wide(type == DType::f64 ? type : DType::f32) {
    options.scale = scale;
    options.mask.causal = true;
    options.mask.query_start = Tk - Tq;
    if (!all) return;
    options.softcap = 3.3;
    options.alibi = slopes.view();
    options.bias = bias.view();
    options.sinks = sinks.view();
    options.dropout = {.p = 0.3, .seed = 7};
  }
};

Results forward(const Told& t, const Inside& inside, Held* o, Held* lse) {
  Held weights(t.wide, {B, H, Tq, Tk}), entropy(t.wide, {B, H, Tq}), variance(t.wide, {B, H, Tq});
  const RowStatistics statistics{.entropy = entropy.out(), .score_variance = variance.out()};
  inside([&] {
    attention_forward(t.q.view(), t.k.view(), t.v.view(),
                      {.output = o->out(),
                       .lse = lse->out(),
                       .weights = weights.out(),
                       .statistics = &statistics},
                      t.options, {.executor = nullptr, .threads = 2});
  });
  return {o->bytes, lse->bytes, weights.bytes, entropy.bytes, variance.bytes};
}

/// The forward pass, in the environment, and what needs its results, each once more in it.
Computation attention(DType dtype, std::int64_t D, const OneOrEach<double>& scale, bool all) {
  return [=](const Inside& inside) {
    const Told t(dtype, D, scale, all);
    Held o(dtype, {B, H, Tq, Dv}), lse(t.wide, {B, H, Tq});
    Results results = forward(t, inside, &o, &lse);
    // From here on with results of the usual environment, so that each function stands alone.
    forward(
        t, [](const auto& f) { f(); }, &o, &lse);

    const Held g(dtype, {B, H, Tq, Dv}, 8);
    Held dq(dtype, t.q.shape), dk(dtype, t.k.shape), dv(dtype, t.v.shape), dscale(t.wide, {H});
    inside([&] {
      attention_backward({.q = t.q.view(),
                          .k = t.k.view(),
                          .v = t.v.view(),
                          .output = o.view(),
                          .lse = lse.view(),
                          .d_output = g.view()},
                         {.dq = dq.out(), .dk = dk.out(), .dv = dv.out(), .dscale = dscale.out()},
                         t.options);
    });

    const Held moved(dtype, t.q.shape, 9);
    Held o_moved(dtype, o.shape), lse_moved(t.wide, lse.shape);
    inside([&] {
      attention_jvp({.q = t.q.view(),
                     .k = t.k.view(),
                     .v = t.v.view(),
                     .output = o.view(),
                     .lse = lse.view()},
                    {.q = moved.view()}, {.output = o_moved.out(), .lse = lse_moved.out()},
                    t.options);
    });

    Held sums(t.wide, {B, H, Tk}), map(t.wide, {B, H, 3, 7});
    inside([&] {
      inspect_weights({.q = t.q.view(), .k = t.k.view(), .lse = lse.view()},
                      {.column_sums = sums.out(), .mean_map = map.out()}, t.options);
    });
    for (const Held* held : {&dq, &dk, &dv, &dscale, &o_moved, &lse_moved, &sums, &map}) {
      results.push_back(held->bytes);
    }
    return results;
  };
}

Results decoding(const Inside& inside) {
  const Told t(DType::f32, 20, {}, false);
  KvCache cache({.kv_heads = Hk, .head_size = 20, .value_size = Dv, .pages = 2});
  const SequenceId sequence = cache.create();
  Held o(DType::f32, {B, H, Tq, Dv});
  inside([&] {
    cache.append(sequence, t.k.view(), t.v.view());
    attention_decode(t.q.view(), cache, {&sequence, 1}, {.output = o.out()},
                     {.mask = {.causal = true}});
  });
  return {o.bytes};
}

/// Both with the highest scale that float32 takes: rounded upward it would be infinite, and
/// refused.
Results explaining(const Inside& inside) {
  float highest = 0x1.7p127F;  // its product with log2(e) is beyond float32
  while (!std::isfinite(highest * 1.4426950408889634F)) highest = std::nextafter(highest, 0.0F);
  Told t(DType::f32, 20, {}, false);
  t.options.scale = std::nextafter(double{highest}, HUGE_VAL);
  KvCache cache({.kv_heads = Hk, .head_size = 20, .value_size = Dv, .pages = 2});
  const SequenceId sequence = cache.create();
  cache.append(sequence, t.k.view(), t.v.view());
  std::string told;
  inside([&] {
    told = explain(t.q.view(), t.k.view(), t.v.view(), t.options).path +
           explain(t.q.view(), cache, {&sequence, 1}, {.scale = t.options.scale}).path;
  });
  const auto bytes = std::as_bytes(std::span(told));
  return {{bytes.begin(), bytes.end()}};
}

Results merging(const Inside& inside) {
  const Held a(DType::f32, {B, H, Tq, Dv}, 11), b(DType::f32, a.shape, 12);
  const Held lse_a(DType::f32, {B, H, Tq}, 13), lse_b(DType::f32, {B, H, Tq}, 14);
  Held o(DType::f32, a.shape), lse(DType::f32, lse_a.shape);
  inside([&] {
    merge(a.view(), lse_a.view(), b.view(), lse_b.view(), {.output = o.out(), .lse = lse.out()});
  });
  return {o.bytes, lse.bytes};
}

Results summaries(const Inside& inside) {
  const Held numbers(DType::f32, {B, H, Tq}, 15);
  std::vector<double> found;
  inside([&] {
    for (const Summary& one : summarize(numbers.view())) {
      found.push_back(one.mean);
      found.insert(found.end(), one.quantiles.begin(), one.quantiles.end());
    }
    for (const double share : saturation(numbers.view())) found.push_back(share);
  });
  const auto* const begin = reinterpret_cast<const std::byte*>(found.data());
  return {{begin, begin + found.size() * sizeof(double)}};
}

/// Parameters and their gradients, behind results.
void add_parameters(const std::vector<Parameter>& parameters, Results* results) {
  for (const Parameter& one : parameters) {
    for (const std::span<float> numbers : {one.values, one.gradient}) {
      const auto bytes = std::as_bytes(numbers);
      results->emplace_back(bytes.begin(), bytes.end());
    }
  }
}

Results layers(const Inside& inside) {
  const Held x(DType::f32, {2, 17, 20}, 16), dy(DType::f32, {2, 17, 20}, 17);
  Held y(DType::f32, x.shape), dx(DType::f32, x.shape), z(DType::f32, x.shape);
  Results results;
  inside([&] {  // drawn, used and taught in the environment
    MultiHeadAttention module({.d_model = 20,
                               .heads = 4,
                               .bias = true,
                               .dropout = 0.1,
                               .temperature = Temperature::per_head,
                               .initialisation = {.draw = Draw::xavier_normal}});
    SavedAttention saved;
    module.forward({.x = x.view()}, {.output = y.out(), .saved = &saved}, {.dropout = {.seed = 3}});
    module.backward({.x = x.view()}, saved, dy.view(), {.dx = dx.out()});
    Linear linear({.inputs = 20, .outputs = 20, .bias = true});
    linear.forward(x.view(), z.out());
    linear.backward(x.view(), dy.view());
    add_parameters(module.parameters(), &results);
    add_parameters(linear.parameters(), &results);
  });
  for (const Held* held : {&y, &dx, &z}) results.push_back(held->bytes);
  return results;
}

struct Case {
  std::string name;
  Computation compute;
};

std::vector<Case> cases() {
  std::vector<Case> all{{"decoding", decoding},
                        {"explaining", explaining},
                        {"merging", merging},
                        {"summaries", summaries},
                        {"layers", layers}};
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    const std::string type(name_of(dtype));
    for (const std::int64_t D : {16, 20, 128}) {
      const std::string name = type + " of size " + std::to_string(D);
      all.push_back({name, attention(dtype, D, {}, false)});
      all.push_back({name + ", scale 0.3, all options", attention(dtype, D, 0.3, true)});
    }
    all.push_back({type + ", a subnormal scale", attention(dtype, 20, 1e-40, false)});
  }
  return all;
}

TEST(callers, of_any_rounding_mode_get_the_same_bits_and_their_environment_back) {
  for (const Case& one : cases()) {
    const Results usual = one.compute([](const auto& f) { f(); });
    for (const Control& control : kStrangeControls) {
      const Results strange = one.compute([&](const auto& f) {  // of each function of heed
        const testing::RestoredControl restored(control);
        f();
        const Control::Word after = testing::read_control();
        EXPECT_EQ(after, control.word) << one.name << ", " << control.name;
      });
      ASSERT_EQ(strange.size(), usual.size());
      for (std::size_t n = 0; n < usual.size(); ++n) {
        EXPECT_TRUE(strange[n] == usual[n])
            << one.name << ", " << control.name << ": result " << n << " has other bits";
      }
    }
  }
}

/// Where a core has such traps: an Arm one need not, and then reads back another word.
#if defined(__x86_64__)
constexpr Control kInterrupting{"invalid operations interrupt", 0x1F00};
#else
constexpr Control kInterrupting{"invalid operations interrupt", 0x0100};
#endif

TEST(callers, whom_invalid_operations_interrupt_get_an_error_of_what_is_no_number) {
  const auto refused = [](const auto& call) {
    const testing::RestoredControl restored(kInterrupting);
    const Control::Word before = read_control();
    try {
      call();
    } catch (const Error&) {
      return read_control() == before;
    }
    return false;
  };
  std::vector<float> weight(6);
  for (const double no_number :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::signaling_NaN()}) {
    const Initialisation drawn{.deviation = no_number};
    EXPECT_TRUE(
        refused([&] { MultiHeadAttention({.d_model = 4, .heads = 2, .dropout = no_number}); }));
    EXPECT_TRUE(refused([&] { SelfAttention({.d_model = 4, .dropout = no_number}); }));
    EXPECT_TRUE(
        refused([&] { MultiHeadAttention({.d_model = 4, .heads = 2, .initialisation = drawn}); }));
    EXPECT_TRUE(refused([&] { Linear({.inputs = 4, .outputs = 2, .initialisation = drawn}); }));
    EXPECT_TRUE(refused([&] { initialise(weight, 2, 3, drawn); }));
  }
}

}  // namespace
}  // namespace heed

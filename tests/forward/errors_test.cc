// Every error of attention_forward: it fires, says who complains, what came and what was expected,
// and not one byte of any output has changed.
// Method: one good call, one change each.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <span>

#include "forward/support.h"
#include "heed/inspect.h"
#include "heed/kv_cache.h"

namespace heed_test {
namespace {

struct ZeroWorkers final : heed::Executor {
  [[nodiscard]] int workers() const override { return 0; }
  void run(std::int64_t, void (*)(void*, std::int64_t, int), void*) override {}
};

/// B 2, H 4, Hk 2, Tq 3, Tk 5, D 6, Dv 7; all that a change may need beside it.
struct Good {
  Call<float> call = plain_call<float>({2, 4, 2, 3, 5, 6, 7}, 81);
  Tensor<float> o{{2, 4, 3, 7}}, row{{2, 4, 3, 1}}, w{{2, 4, 3, 5}};
  std::vector<float> numbers = std::vector<float>(4096, 1.0F);
  std::vector<std::int64_t> integers = std::vector<std::int64_t>(64, 1);
  std::vector<std::uint8_t> bytes = std::vector<std::uint8_t>(4096, 1);
  ZeroWorkers nobody;
  heed::PoolExecutor pool{2};

  heed::ConstTensorView q = call.q.view(), k = call.k.view(), v = call.v.view();
  heed::TensorView output = o.out(), lse = heed::view(row.memory.data(), {2, 4, 3}),
                   weights = w.out();
  std::vector<float> entropies = std::vector<float>(24, std::bit_cast<float>(0xFFFFFFFFU));
  std::vector<std::int64_t> counts = std::vector<std::int64_t>(24, -1);
  heed::RowStatistics statistics{.entropy = heed::view(entropies.data(), {2, 4, 3}),
                                 .visible_keys = heed::view(counts.data(), {2, 4, 3})};
  heed::AttentionOptions options;
  heed::Execution execution;

  [[nodiscard]] heed::ConstTensorView floats(std::initializer_list<std::int64_t> shape) const {
    return heed::view(static_cast<const float*>(numbers.data()), shape);
  }
  [[nodiscard]] heed::ConstTensorView flags(std::initializer_list<std::int64_t> shape) const {
    return heed::view(static_cast<const std::uint8_t*>(bytes.data()), shape);
  }
  [[nodiscard]] heed::ConstTensorView longs(std::initializer_list<std::int64_t> shape) const {
    return heed::view(static_cast<const std::int64_t*>(integers.data()), shape);
  }
  void forward() const {
    heed::attention_forward(
        q, k, v, {.output = output, .lse = lse, .weights = weights, .statistics = &statistics},
        options, execution);
  }
};

struct ErrorCase {
  const char* message;
  std::function<void(Good&)> change;
};

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr std::int64_t kFar = std::int64_t{1} << 62;

using heed::DType;

const ErrorCase kInputs[] = {
    {"q is int32; expected float16, bfloat16, float32 or float64",
     [](Good& g) { g.q.dtype = DType::i32; }},
    {"k is float32, q is float16; they must be equal", [](Good& g) { g.q.dtype = DType::f16; }},
    {"k is float64, q is float32; they must be equal", [](Good& g) { g.k.dtype = DType::f64; }},
    {"v is bool, q is float32; they must be equal", [](Good& g) { g.v.dtype = DType::boolean; }},
    {"q has rank 0; expected 2 [T, D], 3 [B, T, D] or 4 [B, H, T, D]",
     [](Good& g) { g.q.rank = 0; }},
    {"q has rank 1; expected 2 [T, D], 3 [B, T, D] or 4 [B, H, T, D]",
     [](Good& g) { g.q.rank = 1; }},
    {"q is absent; expected a view to read from", [](Good& g) { g.q = {}; }},
    {"k is absent; expected a view to read from", [](Good& g) { g.k = {}; }},
    {"v is absent; expected a view to read from", [](Good& g) { g.v = {}; }},
    {"q has rank 5; expected at most 4", [](Good& g) { g.q.rank = 5; }},
    {"v has rank -1; expected 0 or more", [](Good& g) { g.v.rank = -1; }},
    {"rank of k is 3, of q 4; they must be equal", [](Good& g) { g.k.rank = 3; }},
    {"rank of v is 0, of q 4; they must be equal", [](Good& g) { g.v.rank = 0; }},
    {"batch size of k is 1, of q 2; they must be equal", [](Good& g) { g.k.shape[0] = 1; }},
    {"batch size of v is 1, of q 2; they must be equal", [](Good& g) { g.v.shape[0] = 1; }},
    {"number of heads of v is 1, of k 2; they must be equal", [](Good& g) { g.v.shape[1] = 1; }},
    {"number of keys of v is 4, of k 5; they must be equal", [](Good& g) { g.v.shape[2] = 4; }},
    {"head size of k is 5, of q 6; they must be equal", [](Good& g) { g.k.shape[3] = 5; }},
    {"number of heads of q is 3, of k 2; the first must be a multiple of the second",
     [](Good& g) { g.q.shape[1] = 3; }},
    {"number of heads of q is 4, of k 0; the first must be a multiple of the second",
     [](Good& g) { g.k.shape[1] = g.v.shape[1] = 0; }},
    {"q has shape [2, -4, 3, 6]; sizes must not be negative", [](Good& g) { g.q.shape[1] = -4; }},
    {"k has shape [2, 2, 5, 6] and strides [4611686018427387904, 30, 6, 1]; its extent must fit 63 "
     "bits of bytes",
     [](Good& g) { g.k.stride[0] = kFar; }},
    {"v has shape [2, 2, 5, 7] and strides [-9223372036854775808, 35, 7, 1]; its extent must fit "
     "63 bits of bytes",
     [](Good& g) { g.v.stride[0] = std::numeric_limits<std::int64_t>::min(); }},
    {"q has shape [2, 4, 3, 6] but no data; expected a pointer that is not null",
     [](Good& g) { g.q.data = nullptr; }},
    {"k has shape [2, 2, 5, 6] but no data; expected a pointer that is not null",
     [](Good& g) { g.k.data = nullptr; }},
};

const ErrorCase kOutputs[] = {
    {"output is absent; expected a view to write to", [](Good& g) { g.output = {}; }},
    {"output is float64; expected float32, the type of q",
     [](Good& g) { g.output.dtype = DType::f64; }},
    {"lse is int32; expected float32, the type of q", [](Good& g) { g.lse.dtype = DType::i32; }},
    {"weights is float64; expected float32, the type of q",
     [](Good& g) { g.weights.dtype = DType::f64; }},
    {"output has shape [2, 4, 3, 6]; expected [2, 4, 3, 7]",
     [](Good& g) { g.output.shape[3] = 6; }},
    {"output has shape [2, 4, 3]; expected [2, 4, 3, 7]", [](Good& g) { g.output.rank = 3; }},
    {"lse has shape [2, 4, 2]; expected [2, 4, 3]", [](Good& g) { g.lse.shape[2] = 2; }},
    {"lse has shape [2, 4, 3, 1]; expected [2, 4, 3]", [](Good& g) { g.lse = g.row.out(); }},
    {"weights has shape [2, 1, 3, 5]; expected [2, 4, 3, 5]",
     [](Good& g) { g.weights.shape[1] = 1; }},
    {"output has shape [2, 4, 3, 7] but no data; expected a pointer that is not null",
     [](Good& g) { g.output.data = nullptr; }},
    {"output has shape [2, 4, 3, 7] and strides [84, 21, 0, 1]; no two of its elements may share "
     "memory",
     [](Good& g) { g.output.stride[2] = 0; }},
    {"output has shape [2, 4, 3, 7] and strides [84, 21, 6, 1]; no two of its elements may share "
     "memory",
     [](Good& g) { g.output.stride[2] = 6; }},
    {"lse has shape [2, 4, 3] and strides [0, 3, 1]; no two of its elements may share memory",
     [](Good& g) { g.lse.stride[0] = 0; }},
    {"output overlaps q in memory; expected memory of its own",
     [](Good& g) {
       g.q = heed::view(static_cast<const float*>(g.o.memory.data()), {2, 4, 3, 6});
     }},
    {"output overlaps v in memory; expected memory of its own",
     [](Good& g) {
       g.v = heed::view(g.o.memory.data() + 167, {2, 2, 5, 7});
       g.v.stride = {0, 0, 0, 0};
     }},
    {"output overlaps bias in memory; expected memory of its own",
     [](Good& g) { g.options.bias = heed::view(g.o.memory.data() + 10, {5}); }},
    {"lse overlaps sinks in memory; expected memory of its own",
     [](Good& g) { g.options.sinks = heed::view(g.row.memory.data(), {4}); }},
    {"weights overlaps mask.keep in memory; expected memory of its own",
     [](Good& g) {
       g.options.mask.keep =
           heed::view(static_cast<const void*>(g.w.memory.data()), DType::boolean, {5});
     }},
    {"output overlaps lse in memory; expected memory of its own",
     [](Good& g) { g.lse.data = g.o.memory.data() + 160; }},
    {"lse overlaps weights in memory; expected memory of its own",
     [](Good& g) { g.lse.data = g.w.memory.data(); }},
    {"statistics.entropy is int64; expected float32, the type of q",
     [](Good& g) { g.statistics.entropy = g.statistics.visible_keys; }},
    {"statistics.visible_keys is float32; expected int64",
     [](Good& g) { g.statistics.visible_keys = g.statistics.entropy; }},
    {"statistics.entropy has shape [2, 4, 2]; expected [2, 4, 3]",
     [](Good& g) { g.statistics.entropy.shape[2] = 2; }},
    {"statistics.max_score has shape [2, 4, 3] but no data; expected a pointer that is not null",
     [](Good& g) {
       g.statistics.max_score = heed::view(static_cast<float*>(nullptr), {2, 4, 3});
     }},
    {"lse overlaps statistics.entropy in memory; expected memory of its own",
     [](Good& g) { g.statistics.entropy.data = g.row.memory.data(); }},
};

const ErrorCase kOptions[] = {
    {"scale is int64; expected float32 or float64",
     [](Good& g) { g.options.scale = g.longs({4}); }},
    {"scale has shape [3]; expected [4], one for each query head",
     [](Good& g) { g.options.scale = g.floats({3}); }},
    {"scale has shape [1, 4]; expected [4], one for each query head",
     [](Good& g) {
       g.options.scale = g.floats({1, 4});
     }},
    {"scale is nan; expected a number that is finite as float32, also times log2(e)",
     [](Good& g) { g.options.scale = kNaN; }},
    {"scale is -inf; expected a number that is finite as float32, also times log2(e)",
     [](Good& g) { g.options.scale = -kInf; }},
    {"scale is 1e+39; expected a number that is finite as float32, also times log2(e)",
     [](Good& g) { g.options.scale = 1e39; }},
    {"scale[2] is inf; expected a number that is finite as float32, also times log2(e)",
     [](Good& g) { g.numbers[2] = INFINITY, g.options.scale = g.floats({4}); }},
    {"head size is 0 and scale absent; expected a scale, since 1 / sqrt(0) is none",
     [](Good& g) { g.q.shape[3] = g.k.shape[3] = 0; }},
    {"softcap is 0; expected 2^-100 .. 2^100", [](Good& g) { g.options.softcap = 0; }},
    {"softcap is -30; expected 2^-100 .. 2^100", [](Good& g) { g.options.softcap = -30; }},
    {"softcap is 2e+30; expected 2^-100 .. 2^100", [](Good& g) { g.options.softcap = 2e30; }},
    {"softcap is nan; expected 2^-100 .. 2^100", [](Good& g) { g.options.softcap = kNaN; }},
    {"alibi is bool; expected float32 or float64",
     [](Good& g) { g.options.alibi = g.flags({4}), g.options.alibi.dtype = DType::boolean; }},
    {"alibi has shape [2]; expected [4], one for each query head",
     [](Good& g) { g.options.alibi = g.floats({2}); }},
    {"bias is uint8; expected a floating type (a boolean mask is a keep-mask or a drop-mask)",
     [](Good& g) {
       g.options.bias = g.flags({3, 5});
     }},
    {"bias has shape [2, 1, 3, 4]; expected one that broadcasts to [2, 4, 3, 5]",
     [](Good& g) {
       g.options.bias = g.floats({2, 1, 3, 4});
     }},
    {"bias has shape [2, 3, 5]; expected one that broadcasts to [2, 4, 3, 5]",
     [](Good& g) {
       g.options.bias = g.floats({2, 3, 5});
     }},
    {"score_mod has no function for float32, the type of q",
     [](Good& g) { g.options.score_mod.f64 = [](const heed::ScoreTile64&, const void*) {}; }},
    {"score_mod has no function for float32, the type of q",
     [](Good& g) {
       g.options.score_mod.derivative_f32 = [](const heed::ScoreTile&, const void*) {};
     }},
    {"scale has both one and each; expected one of them",
     [](Good& g) {
       g.options.scale = 1;
       g.options.scale.each = g.floats({4});
     }},
    {"mask.key_lengths has both one and each; expected one of them",
     [](Good& g) {
       g.options.mask.key_lengths = 1;
       g.options.mask.key_lengths.each = g.longs({2});
     }},
    {"score_mod has no function for float32, the type of scores",
     [](Good& g) {
       g.q.dtype = g.k.dtype = g.v.dtype = g.output.dtype = g.weights.dtype = DType::bf16;
       g.options.score_mod.f64 = [](const heed::ScoreTile64&, const void*) {};
     }},
    {"mask.query_start is float32; expected int32 or int64",
     [](Good& g) { g.options.mask.query_start = g.floats({2}); }},
    {"mask.query_start has shape [3]; expected [2], one for each batch entry",
     [](Good& g) { g.options.mask.query_start = g.longs({3}); }},
    {"mask.window.left is -1; expected 0 or more",
     [](Good& g) { g.options.mask.window.left = -1; }},
    {"mask.window.right is -7; expected 0 or more",
     [](Good& g) { g.options.mask.window.right = -7; }},
    {"mask.key_lengths is 6; expected 0 .. 5", [](Good& g) { g.options.mask.key_lengths = 6; }},
    {"mask.key_lengths is -1; expected 0 .. 5", [](Good& g) { g.options.mask.key_lengths = -1; }},
    {"mask.key_lengths[1] is 9; expected 0 .. 5",
     [](Good& g) { g.integers[1] = 9, g.options.mask.key_lengths = g.longs({2}); }},
    {"mask.key_lengths has shape [4]; expected [2], one for each batch entry",
     [](Good& g) { g.options.mask.key_lengths = g.longs({4}); }},
    {"mask.query_lengths is 4; expected 0 .. 3", [](Good& g) { g.options.mask.query_lengths = 4; }},
    {"mask.query_lengths[0] is -2; expected 0 .. 3",
     [](Good& g) { g.integers[0] = -2, g.options.mask.query_lengths = g.longs({2}); }},
    {"mask.keep is float32; expected bool or an integer type (an additive mask is a bias)",
     [](Good& g) {
       g.options.mask.keep = g.floats({3, 5});
     }},
    {"mask.keep has shape [3, 3, 5]; expected one that broadcasts to [2, 4, 3, 5]",
     [](Good& g) {
       g.options.mask.keep = g.flags({3, 3, 5});
     }},
    {"mask.drop is float32; expected bool or an integer type (an additive mask is a bias)",
     [](Good& g) {
       g.options.mask.drop = g.floats({3, 5});
     }},
    {"mask.drop has shape [4]; expected one that broadcasts to [2, 4, 3, 5]",
     [](Good& g) { g.options.mask.drop = g.flags({4}); }},
    {"mask.drop has shape [5] but no data; expected a pointer that is not null",
     [](Good& g) { g.options.mask.drop = g.flags({5}), g.options.mask.drop.data = nullptr; }},
    {"sinks is int64; expected float32 or float64",
     [](Good& g) { g.options.sinks = g.longs({4}); }},
    {"sinks has shape [8]; expected [4], one for each query head",
     [](Good& g) { g.options.sinks = g.floats({8}); }},
    {"dropout.p is 0.99999999; expected 0 <= p < 1, and 1 - p above 2^-17",
     [](Good& g) { g.options.dropout = {.p = 0.99999999}; }},
    {"dropout.p is -0.1; expected 0 <= p < 1, and 1 - p above 2^-17",
     [](Good& g) { g.options.dropout = {.p = -0.1, .seed = 1}; }},
    {"dropout.p is 1; expected 0 <= p < 1, and 1 - p above 2^-17",
     [](Good& g) { g.options.dropout = {.p = 1, .seed = 1}; }},
    {"dropout.p is nan; expected 0 <= p < 1, and 1 - p above 2^-17",
     [](Good& g) { g.options.dropout = {.p = std::nan(""), .seed = 1}; }},
    {"dropout.p is 0.1, but dropout.seed is absent; expected one, new for each training step",
     [](Good& g) { g.options.dropout = {.p = 0.1, .seed = {}}; }},
    {"dropout.first_query is -1; expected 0 or more",
     [](Good& g) { g.options.dropout = {.p = 0.1, .seed = 1, .first_query = -1}; }},
    {"dropout.first_key is -2; expected 0 or more",
     [](Good& g) { g.options.dropout = {.p = 0.1, .seed = 1, .first_key = -2}; }},
    {"dropout.first_batch is -3; expected 0 or more",
     [](Good& g) { g.options.dropout = {.p = 0.1, .seed = 1, .first_batch = -3}; }},
    {"dropout.first_head is -4; expected 0 or more",
     [](Good& g) { g.options.dropout = {.p = 0.1, .seed = 1, .first_head = -4}; }},
    {"dropout.heads is 0, first_head 2; expected at least the sum of first_head and the 4 of the "
     "call",
     [](Good& g) { g.options.dropout = {.p = 0.1, .seed = 1, .first_head = 2}; }},
    {"dropout.heads is -9223372036854775808, first_head 0; expected at least the sum of first_head "
     "and the 4 of the call",
     [](Good& g) {
       g.options.dropout = {.p = 0.1, .seed = 1, .heads = std::numeric_limits<std::int64_t>::min()};
     }},
    {"dropout.heads is 3, first_head 0; expected at least the sum of first_head and the 4 of the "
     "call",
     [](Good& g) { g.options.dropout = {.p = 0.1, .seed = 1, .heads = 3}; }},
    {"execution.threads is -1; expected 0 (all) .. 4096",
     [](Good& g) { g.execution.threads = -1; }},
    {"execution.threads is 5000; expected 0 (all) .. 4096",
     [](Good& g) { g.execution.threads = 5000; }},
    {"execution.decode_order is 9; expected DecodeOrder::of_prefill or DecodeOrder::key_by_key",
     [](Good& g) { g.execution.decode_order = static_cast<heed::DecodeOrder>(9); }},
    {"execution has an executor and threads = 2; expected one of the two",
     [](Good& g) { g.execution = {.executor = &g.pool, .threads = 2}; }},
    {"execution.executor has 0 workers; expected 1 or more",
     [](Good& g) { g.execution.executor = &g.nobody; }},
};

template <typename F>
std::string message_of(F call) {
  try {
    call();
  } catch (const heed::Error& error) {
    EXPECT_EQ(error.kind(), heed::ErrorKind::argument);
    return error.what();
  }
  return "(no error)";
}

template <std::size_t N>
void expect_errors(const ErrorCase (&cases)[N]) {
  for (const ErrorCase& c : cases) {
    Good g;
    c.change(g);
    EXPECT_EQ(message_of([&] { g.forward(); }), std::string("attention_forward: ") + c.message);
    for (const auto bytes :
         {std::as_bytes(std::span(g.o.memory)), std::as_bytes(std::span(g.row.memory)),
          std::as_bytes(std::span(g.w.memory)), std::as_bytes(std::span(g.entropies)),
          std::as_bytes(std::span(g.counts))}) {
      for (const std::byte byte : bytes)
        ASSERT_EQ(byte, std::byte{0xFF}) << "written in spite of: " << c.message;
    }
  }
}

TEST(error, the_call_that_is_changed_is_a_good_one) {
  Good g;
  EXPECT_EQ(message_of([&] { g.forward(); }), "(no error)");
  EXPECT_TRUE(std::isfinite(g.o.at(1, 3, 2, 6)));
}
TEST(error, every_misfit_of_q_k_and_v_is_refused) { expect_errors(kInputs); }
TEST(error, every_misfit_of_an_output_is_refused) { expect_errors(kOutputs); }
TEST(error, every_misfit_of_an_option_is_refused) { expect_errors(kOptions); }

TEST(error, explain_refuses_what_the_call_would_refuse) {
  for (const auto* cases : {kInputs, kOptions}) {
    const std::size_t n = cases == kInputs ? std::size(kInputs) : std::size(kOptions);
    for (std::size_t i = 0; i < n; ++i) {
      const std::string message = cases[i].message;
      Good g;
      cases[i].change(g);
      const std::string said =
          message_of([&] { (void)heed::explain(g.q, g.k, g.v, g.options, g.execution); });
      // explain reads no element of q, k, v or bias: only there may data be null.
      const bool may_be_null = message.find("q has shape [2, 4, 3, 6] but") == 0 ||
                               message.find("k has shape [2, 2, 5, 6] but") == 0;
      EXPECT_EQ(said, may_be_null ? "(no error)" : "explain: " + message);
    }
  }
}

TEST(error, broadcasting_is_in_the_rank_of_q) {
  Good g;
  g.q = g.call.q.view(2), g.k = g.call.k.view(2), g.v = g.call.v.view(2);
  g.output = g.o.out(2), g.lse = heed::view(g.row.memory.data(), {3}), g.weights = g.w.out(2);
  g.options.mask.keep = g.flags({1, 3, 5});
  EXPECT_EQ(
      message_of([&] { g.forward(); }),
      "attention_forward: mask.keep has shape [1, 3, 5]; expected one that broadcasts to [3, 5]");
  g.q = g.call.q.view(3), g.k = g.call.k.view(3), g.v = g.call.v.view(3);
  g.output = g.o.out(3), g.lse = heed::view(g.row.memory.data(), {2, 3}), g.weights = g.w.out(3);
  g.options.mask.keep = g.flags({4, 3, 5});
  EXPECT_EQ(message_of([&] { g.forward(); }),
            "attention_forward: mask.keep has shape [4, 3, 5]; expected one that broadcasts to "
            "[2, 3, 5]");
}

/// A number that no enumerator has, as from bytes of somebody else: no table is read beyond its
/// end.
TEST(error, a_type_that_is_none_is_refused_wherever_it_stands) {
  for (const int number : {13, 14, 200, 255}) {
    const auto none = static_cast<DType>(number);
    EXPECT_EQ(heed::size_of(none), 0U);
    EXPECT_EQ(heed::name_of(none), "no DType");
    EXPECT_FALSE(heed::is_floating(none) || heed::is_integral(none));
    const std::string text =
        " is of element type " + std::to_string(number) + ", which is no DType";
    const auto refused = [&](const char* name, const auto& change) {
      Good g;
      change(g);
      EXPECT_EQ(message_of([&] { g.forward(); }), "attention_forward: " + (name + text));
    };
    refused("q", [&](Good& g) { g.q.dtype = g.k.dtype = g.v.dtype = g.output.dtype = none; });
    refused("output", [&](Good& g) { g.output.dtype = none; });
    refused("lse", [&](Good& g) { g.lse.dtype = none; });
    const auto with = [&](auto member) {
      return [&, member](Good& g) {
        member(g.options) = heed::view(static_cast<const void*>(g.q.data), none, {1, 1});
      };
    };
    using O = heed::AttentionOptions;
    refused("bias", with([](O & o) -> auto& { return o.bias; }));
    refused("mask.keep", with([](O & o) -> auto& { return o.mask.keep; }));
    refused("mask.drop", with([](O & o) -> auto& { return o.mask.drop; }));
    refused("alibi", with([](O & o) -> auto& { return o.alibi; }));
    refused("sinks", with([](O & o) -> auto& { return o.sinks; }));
    refused("scale", with([](O & o) -> auto& { return o.scale.each; }));
    refused("mask.key_lengths", with([](O & o) -> auto& { return o.mask.key_lengths.each; }));
    EXPECT_EQ(message_of([&] {
                heed::KvCache({.kv_heads = 1, .head_size = 8, .dtype = none, .pages = 1});
              }),
              "KvCache: dtype is no DType; expected a floating type");
  }
}

TEST(error, interleaved_outputs_are_no_overlap) {
  Good g;
  std::vector<float> both(std::size_t{2} * 4 * 3 * 14);
  g.output = heed::view(both.data(), {2, 4, 3, 7});
  g.output.stride = {168, 42, 14, 2};  // even elements; lse takes odd ones
  g.lse = {both.data() + 1, DType::f32, 3, {2, 4, 3}, {168, 42, 14}};
  EXPECT_EQ(message_of([&] { g.forward(); }), "(no error)");
}

TEST(error, settings_are_looked_at_where_there_is_no_batch_entry) {
  const auto told = [](const auto& change) {
    Good g;
    g.q.shape[0] = g.k.shape[0] = g.v.shape[0] = 0;
    g.output.shape[0] = g.lse.shape[0] = g.weights.shape[0] = 0;
    g.statistics.entropy.shape[0] = g.statistics.visible_keys.shape[0] = 0;
    change(g.options.mask);
    return message_of([&] { g.forward(); });
  };
  EXPECT_EQ(told([](heed::Mask& mask) { mask.key_lengths = 5, mask.query_lengths = 3; }),
            "(no error)");
  EXPECT_EQ(told([](heed::Mask& mask) { mask.key_lengths = 6; }),
            "attention_forward: mask.key_lengths is 6; expected 0 .. 5");
  EXPECT_EQ(told([](heed::Mask& mask) { mask.query_lengths = -2; }),
            "attention_forward: mask.query_lengths is -2; expected 0 .. 3");
  EXPECT_EQ(told([](heed::Mask& mask) { mask.window.left = -1; }),
            "attention_forward: mask.window.left is -1; expected 0 or more");
}

TEST(error, empty_problems_are_no_errors) {
  for (const Dims d :
       {Dims{0, 2, 1, 3, 4, 5, 6}, Dims{1, 0, 0, 3, 4, 5, 6}, Dims{1, 2, 1, 0, 4, 5, 6},
        Dims{1, 2, 1, 3, 0, 5, 6}, Dims{1, 2, 1, 3, 4, 5, 0}}) {
    const auto call = plain_call<float>(d, 82);
    EXPECT_EQ(message_of([&] { expect_truth(call, {.lse = true, .weights = true}); }),
              "(no error)");
  }
  auto no_size = plain_call<double>({1, 2, 1, 3, 4, 0, 5}, 83);
  no_size.scale = {0.5};
  expect_truth(no_size, {.lse = true, .weights = true});
}

}  // namespace
}  // namespace heed_test

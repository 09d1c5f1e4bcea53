// Every error of attention_backward: it fires, says who complains, what came and what was expected,
// and not one byte of any gradient has changed.
// Method: one good call, one change each.
#include <gtest/gtest.h>

#include <functional>

#include "backward/support.h"
#include "heed/jvp.h"

namespace heed_test {
namespace {

using heed::DType;

/// B 2, H 4, Hk 2, Tq 3, Tk 5, D 6, Dv 7; all options that have a gradient are set.
struct Good {
  Call<float> call = plain_call<float>({2, 4, 2, 3, 5, 6, 7}, 81);
  Tensor<float> o{{2, 4, 3, 7}}, row{{2, 4, 3, 1}}, g = draw_d_output(call, 82);
  Tensor<float> dq{{2, 4, 3, 6}}, dk{{2, 2, 5, 6}}, dv{{2, 2, 5, 7}}, dbias{{1, 4, 3, 5}};
  Tensor<float> dscale{{1, 1, 1, 4}}, dalibi{{1, 1, 1, 4}}, dsinks{{1, 1, 1, 4}};
  Tensor<float> norms{{2, 4, 3, 1}};
  std::vector<float> numbers = std::vector<float>(4096, 1.0F);
  std::vector<std::int64_t> integers = std::vector<std::int64_t>(64, 1);
  heed::PoolExecutor pool{2};

  heed::BackwardInputs inputs;
  heed::Gradients gradients;
  heed::AttentionOptions options;
  heed::Execution execution;

  Good() {
    const heed::TensorView lse = heed::view(row.memory.data(), {2, 4, 3});
    options.alibi = floats({4});
    options.bias = floats({4, 3, 5});
    options.sinks = floats({4});
    heed::attention_forward(call.q.view(), call.k.view(), call.v.view(),
                            {.output = o.out(), .lse = lse}, options);
    inputs = {.q = call.q.view(),
              .k = call.k.view(),
              .v = call.v.view(),
              .output = o.view(),
              .lse = lse,
              .d_output = g.view()};
    gradients = {.dq = dq.out(),
                 .dk = dk.out(),
                 .dv = dv.out(),
                 .dscale = heed::view(dscale.memory.data(), {4}),
                 .dalibi = heed::view(dalibi.memory.data(), {4}),
                 .dbias = heed::view(dbias.memory.data(), {4, 3, 5}),
                 .dsinks = heed::view(dsinks.memory.data(), {4}),
                 .ds_norms = heed::view(norms.memory.data(), {2, 4, 3})};
  }
  Good(const Good&) = delete;
  Good& operator=(const Good&) = delete;

  [[nodiscard]] heed::ConstTensorView floats(std::initializer_list<std::int64_t> shape) const {
    return heed::view(static_cast<const float*>(numbers.data()), shape);
  }
  void backward() const { heed::attention_backward(inputs, gradients, options, execution); }
};

struct ErrorCase {
  const char* message;
  std::function<void(Good&)> change;
};

const ErrorCase kInputs[] = {
    {"q is int32; expected float16, bfloat16, float32 or float64",
     [](Good& g) { g.inputs.q.dtype = DType::i32; }},
    {"k is absent; expected a view to read from", [](Good& g) { g.inputs.k = {}; }},
    {"head size of k is 5, of q 6; they must be equal", [](Good& g) { g.inputs.k.shape[3] = 5; }},
    {"output is absent; expected a view to read from", [](Good& g) { g.inputs.output = {}; }},
    {"lse is absent; expected a view to read from", [](Good& g) { g.inputs.lse = {}; }},
    {"d_output is absent; expected a view to read from", [](Good& g) { g.inputs.d_output = {}; }},
    {"output is float64; expected float32, the type of q",
     [](Good& g) { g.inputs.output.dtype = DType::f64; }},
    {"lse is bfloat16; expected float32, the type of q",
     [](Good& g) { g.inputs.lse.dtype = DType::bf16; }},
    {"d_output is int64; expected float32, the type of q",
     [](Good& g) { g.inputs.d_output.dtype = DType::i64; }},
    {"output has shape [2, 4, 3, 6]; expected [2, 4, 3, 7]",
     [](Good& g) { g.inputs.output.shape[3] = 6; }},
    {"lse has shape [2, 4, 2]; expected [2, 4, 3]", [](Good& g) { g.inputs.lse.shape[2] = 2; }},
    {"d_output has shape [2, 4, 3]; expected [2, 4, 3, 7]",
     [](Good& g) { g.inputs.d_output.rank = 3; }},
    {"d_output has shape [2, 4, 3, 7] but no data; expected a pointer that is not null",
     [](Good& g) { g.inputs.d_output.data = nullptr; }},
};

const ErrorCase kGradients[] = {
    {"dq is float64; expected float32, the type of q",
     [](Good& g) { g.gradients.dq.dtype = DType::f64; }},
    {"dq has shape [2, 4, 3, 5]; expected [2, 4, 3, 6]",
     [](Good& g) { g.gradients.dq.shape[3] = 5; }},
    {"dk has shape [2, 4, 5, 6]; expected [2, 2, 5, 6]",
     [](Good& g) { g.gradients.dk.shape[1] = 4; }},
    {"dv has shape [2, 2, 5, 6]; expected [2, 2, 5, 7]",
     [](Good& g) { g.gradients.dv.shape[3] = 6; }},
    {"dv has shape [2, 2, 5, 7] and strides [0, 35, 7, 1]; no two of its elements may share memory",
     [](Good& g) { g.gradients.dv.stride[0] = 0; }},
    {"dscale is int64; expected float32, the type of q",
     [](Good& g) { g.gradients.dscale.dtype = DType::i64; }},
    {"dscale has shape [2]; expected [4], one for each query head, or [1]",
     [](Good& g) { g.gradients.dscale.shape[0] = 2; }},
    {"dalibi has shape [1]; expected [4], one for each query head",
     [](Good& g) { g.gradients.dalibi.shape[0] = 1; }},
    {"dsinks has shape [4] but no data; expected a pointer that is not null",
     [](Good& g) { g.gradients.dsinks.data = nullptr; }},
    {"dsinks has shape [4] and strides [0]; no two of its elements may share memory",
     [](Good& g) { g.gradients.dsinks.stride[0] = 0; }},
    {"dbias is float64; expected float32, the type of q",
     [](Good& g) { g.gradients.dbias.dtype = DType::f64; }},
    {"dbias has shape [4, 3, 4]; expected [4, 3, 5], the shape of bias",
     [](Good& g) { g.gradients.dbias.shape[2] = 4; }},
    {"dbias has shape [1, 4, 3, 5]; expected [4, 3, 5], the shape of bias",
     [](Good& g) { g.gradients.dbias = g.dbias.out(); }},
    {"dbias has shape [4, 3, 5] and strides [15, 0, 1]; no two of its elements may share memory",
     [](Good& g) { g.gradients.dbias.stride[1] = 0; }},
    {"dbias has shape [4, 3, 5] but no data; expected a pointer that is not null",
     [](Good& g) { g.gradients.dbias.data = nullptr; }},
    {"ds_norms is float64; expected float32, the type of q",
     [](Good& g) { g.gradients.ds_norms.dtype = DType::f64; }},
    {"ds_norms has shape [2, 4, 4]; expected [2, 4, 3]",
     [](Good& g) { g.gradients.ds_norms.shape[2] = 4; }},
    {"ds_norms overlaps lse in memory; expected memory of its own",
     [](Good& g) { g.gradients.ds_norms.data = g.row.memory.data(); }},
    {"dalibi is given, but not options.alibi; expected both",
     [](Good& g) { g.options.alibi = {}; }},
    {"dbias is given, but not options.bias; expected both", [](Good& g) { g.options.bias = {}; }},
    {"dsinks is given, but not options.sinks; expected both",
     [](Good& g) { g.options.sinks = {}; }},
    {"dq overlaps q in memory; expected memory of its own",
     [](Good& g) { g.inputs.q = g.dq.view(); }},
    {"dv overlaps d_output in memory; expected memory of its own",
     [](Good& g) {
       g.inputs.d_output = heed::view(g.dv.memory.data() + 139, {2, 4, 3, 7});
       g.inputs.d_output.stride = {0, 0, 0, 0};
     }},
    {"dk overlaps dv in memory; expected memory of its own",
     [](Good& g) { g.gradients.dk.data = g.dv.memory.data(); }},
    {"dbias overlaps bias in memory; expected memory of its own",
     [](Good& g) { g.options.bias = g.gradients.dbias; }},
};

const ErrorCase kOptions[] = {
    {"softcap is 0; expected 2^-100 .. 2^100", [](Good& g) { g.options.softcap = 0; }},
    {"mask.key_lengths is 6; expected 0 .. 5", [](Good& g) { g.options.mask.key_lengths = 6; }},
    {"score_mod has no derivative for float32, the type of q",
     [](Good& g) { g.options.score_mod.f32 = [](const heed::ScoreTile&, const void*) {}; }},
    {"execution.threads is -1; expected 0 (all) .. 4096",
     [](Good& g) { g.execution.threads = -1; }},
    {"execution has an executor and threads = 2; expected one of the two",
     [](Good& g) { g.execution = {.executor = &g.pool, .threads = 2}; }},
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
    EXPECT_EQ(message_of([&] { g.backward(); }), std::string("attention_backward: ") + c.message);
    for (const Tensor<float>* t :
         {&g.dq, &g.dk, &g.dv, &g.dbias, &g.dscale, &g.dalibi, &g.dsinks, &g.norms}) {
      const auto* at = reinterpret_cast<const unsigned char*>(t->memory.data());
      for (std::size_t n = 0; n < t->memory.size() * sizeof(float); ++n)
        ASSERT_EQ(at[n], 0xFF) << "written in spite of: " << c.message;
    }
  }
}

TEST(backward_error, the_call_that_is_changed_is_a_good_one) {
  Good g;
  EXPECT_EQ(message_of([&] { g.backward(); }), "(no error)");
  EXPECT_TRUE(std::isfinite(g.dq.at(1, 3, 2, 5)));
}
TEST(backward_error, every_misfit_of_an_input_is_refused) { expect_errors(kInputs); }
TEST(backward_error, every_misfit_of_a_gradient_is_refused) { expect_errors(kGradients); }
TEST(backward_error, every_misfit_of_an_option_is_refused) { expect_errors(kOptions); }

TEST(backward_error, no_gradient_at_all_is_none) {
  Good g;
  g.gradients = {};
  EXPECT_EQ(message_of([&] { g.backward(); }), "(no error)");
}

TEST(backward_error, empty_problems_are_none) {
  for (const Dims d :
       {Dims{0, 2, 1, 3, 4, 5, 6}, Dims{1, 0, 0, 3, 4, 5, 6}, Dims{1, 2, 1, 0, 4, 5, 6},
        Dims{1, 2, 1, 3, 0, 5, 6}, Dims{1, 2, 1, 3, 4, 5, 0}}) {
    auto call = plain_call<float>(d, 82);
    call.sinks = std::vector<double>(static_cast<std::size_t>(d.heads), 0.5);
    EXPECT_EQ(message_of([&] { (void)run_backward(call, draw_d_output(call, 83)); }), "(no error)");
  }
  // Packed sequences of no heads, which were divided by.
  const std::int64_t offsets[] = {0, 3};
  const auto nothing = [](std::initializer_list<std::int64_t> shape) {
    return heed::view(static_cast<void*>(nullptr), heed::DType::f32, shape);
  };
  const heed::TensorView rows = nothing({1, 0, 3, 4}), lse = nothing({1, 0, 3});
  heed::attention_backward(
      {.q = rows, .k = rows, .v = rows, .output = rows, .lse = lse, .d_output = rows},
      {.dq = rows, .dk = rows, .dv = rows},
      {.packing = {heed::view(offsets, {2}), heed::view(offsets, {2})}});
  auto no_size = plain_call<double>({1, 2, 1, 3, 4, 0, 5}, 84);
  no_size.scale = {0.5};
  (void)run_backward(no_size, draw_d_output(no_size, 85));
}

/// Values of size 0. With such strides an address was computed from no memory, which clang's UBSan
/// told of an input of fuzz_attention (it is in the corpus).
TEST(backward_error, tensors_without_elements_need_no_memory) {
  const auto s = plain_call<float>({1, 2, 1, 6, 7, 5, 0}, 88);
  const auto nothing = [](std::int64_t heads, std::int64_t rows) {
    return heed::TensorView{nullptr, heed::DType::f32, 4, {1, heads, rows, 0}, {400, 80, 10, 1}};
  };
  const auto read = [&](std::int64_t heads, std::int64_t rows) {
    const heed::TensorView t = nothing(heads, rows);
    return heed::ConstTensorView{t.data, t.dtype, t.rank, t.shape, t.stride};
  };
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    Tensor<float> lse({1, 2, 6, 1}), dq(s.q.shape), dk(s.k.shape);
    heed::TensorView of_rows = lse.out();
    --of_rows.rank;
    heed::attention_forward(s.q.view(), s.k.view(), read(1, 7),
                            {.output = nothing(2, 6), .lse = of_rows}, {.scale = 0.5});
    heed::attention_backward(
        {.q = s.q.view(),
         .k = s.k.view(),
         .v = read(1, 7),
         .output = read(2, 6),
         .lse = {of_rows.data, of_rows.dtype, of_rows.rank, of_rows.shape, of_rows.stride},
         .d_output = read(2, 6)},
        {.dq = dq.out(), .dk = dk.out(), .dv = nothing(1, 7)}, {.scale = 0.5});
    lse.each(
        [&](auto b, auto h, auto i, auto x) { EXPECT_TRUE(std::isfinite(lse.at(b, h, i, x))); });
    for (const float x : dq.memory) EXPECT_EQ(x, 0);
    for (const float x : dk.memory) EXPECT_EQ(x, 0);
  }
}

/// A small file may hold them. A task, or a look, for each batch entry or head took hours.
TEST(backward_error, batches_and_heads_that_no_memory_bounds_take_no_time) {
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  struct Case {
    std::int64_t batches, heads, queries, keys, size;
  };
  for (const Case c : {Case{kMany, 1, 0, 0, 4}, Case{1, kMany, 0, 0, 4}, Case{kMany, 1, 0, 5, 0}}) {
    const auto nothing = [&c](std::int64_t rows) {
      return heed::view(static_cast<void*>(nullptr), heed::DType::f32,
                        {c.batches, c.heads, rows, c.size});
    };
    const heed::TensorView q = nothing(c.queries), k = nothing(c.keys), v = nothing(c.keys);
    const heed::TensorView lse =
        heed::view(static_cast<void*>(nullptr), heed::DType::f32, {c.batches, c.heads, c.queries});
    const heed::TensorView scores = heed::view(static_cast<void*>(nullptr), heed::DType::f32,
                                               {c.batches, c.heads, c.queries, c.keys});
    float dscale = 1;
    const heed::AttentionOptions options{
        .scale = 0.5,
        .bias = scores,
        .mask = {.query_start = -3, .key_lengths = 0, .query_lengths = 0}};
    (void)heed::explain(q, k, v, options);
    heed::attention_forward(q, k, v, {.output = nothing(c.queries), .lse = lse}, options);
    for (const bool all : {true, false}) {
      heed::Gradients gradients;
      if (all) {
        gradients = {.dq = nothing(c.queries), .dk = nothing(c.keys), .dv = nothing(c.keys)};
        gradients.dscale = heed::view(&dscale, {1});
        gradients.dbias = scores;
      }
      heed::attention_backward({.q = q,
                                .k = k,
                                .v = v,
                                .output = nothing(c.queries),
                                .lse = lse,
                                .d_output = nothing(c.queries)},
                               gradients, options);
    }
    EXPECT_EQ(dscale, 0);
  }
  // Rows of size 0 have an lse, which may share one place.
  const float zero = 0;
  heed::ConstTensorView lse{&zero, heed::DType::f32, 3, {kMany, 1, 1}, {0, 0, 0}};
  const heed::TensorView rows =
      heed::view(static_cast<void*>(nullptr), heed::DType::f32, {kMany, 1, 1, 0});
  heed::attention_backward(
      {.q = rows, .k = rows, .v = rows, .output = rows, .lse = lse, .d_output = rows},
      {.dq = rows, .dk = rows, .dv = rows}, {.scale = 0.5});
  heed::attention_jvp({.q = rows, .k = rows, .v = rows, .output = rows, .lse = lse}, {.q = rows},
                      {.output = rows}, {.scale = 0.5});
  // Nor is a setting of each of them looked at more than once.
  const std::int64_t none = 0;
  const heed::ConstTensorView of_each{&none, heed::DType::i64, 1, {kMany}, {0}};
  const heed::ConstTensorView of_each_head{&zero, heed::DType::f32, 1, {kMany}, {0}};
  const auto empty = [](std::int64_t batches, std::int64_t heads) {
    return heed::view(static_cast<void*>(nullptr), heed::DType::f32, {batches, heads, 0, 4});
  };
  const heed::TensorView entries = empty(kMany, 1), heads = empty(1, kMany);
  heed::attention_forward(
      entries, entries, entries, {.output = entries},
      {.mask = {.query_start = of_each, .key_lengths = of_each, .query_lengths = of_each}});
  heed::attention_forward(heads, heads, heads, {.output = heads}, {.scale = of_each_head});
}

/// A score_mod's derivative that throws: the exception comes through, and the next call is as good
/// as any.
TEST(backward_error, an_exception_of_a_derivative_is_rethrown) {
  const auto s = plain_call<float>({1, 4, 4, 130, 900, 8, 8}, 86);
  const auto g = draw_d_output(s, 87);
  const auto forward = run(s);
  heed::AttentionOptions options;
  options.score_mod.f32 = [](const heed::ScoreTile&, const void*) {};
  options.score_mod.derivative_f32 = [](const heed::ScoreTile&, const void*) {
    throw std::runtime_error("no slope here");
  };
  Tensor<float> dq(s.q.shape);
  heed::ConstTensorView lse = forward.lse.view();
  --lse.rank;
  EXPECT_THROW(
      heed::attention_backward({.q = s.q.view(),
                                .k = s.k.view(),
                                .v = s.v.view(),
                                .output = forward.o.view(),
                                .lse = lse,
                                .d_output = g.view()},
                               {.dq = dq.out()}, options, {.executor = nullptr, .threads = 3}),
      std::runtime_error);
  EXPECT_TRUE(within_bounds(s, run_backward(s, forward, g), true_gradients(s, g)));
}

}  // namespace
}  // namespace heed_test

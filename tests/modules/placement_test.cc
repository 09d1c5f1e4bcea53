// Where tensors of MultiHeadAttention lie: against unreadable pages, ahead and behind, and with
// what axis 1 has far apart.
// Method: the same bytes as from ordinary memory, forward, backward and of the parameters'
// gradients; anything read or written outside faults. (Parameters and SavedAttention are
// allocations of their own: AddressSanitizer watches them.)
#include <gtest/gtest.h>

#include "called.h"
#include "forward/between_guards.h"

namespace heed_test {
namespace {

/// Sizes of a call; 0 in `module` as in MultiHeadAttentionOptions.
struct Shapes {
  heed::MultiHeadAttentionOptions module;
  std::int64_t batches, queries, keys = 0;  // keys 0: self-attention
  bool values = false;                      // of their own
};

/// Options with a list, a mask or a bias wherever there may be one.
Call<float> everything(const Shapes& c, std::int64_t keys, std::uint64_t seed) {
  Case all;
  all.dims = {c.batches, c.module.heads, 1, c.queries, keys, 1, 1};
  all.masking = Masking::everything;
  all.seed = seed;
  auto s = with_lists(make<float>(all), seed % 2 == 0);
  s.rank = 4;
  s.fewer_axes = false;
  return s;
}

void expect_same(Elsewhere where, const Shapes& c, bool plain, std::uint64_t seed) {
  heed::MultiHeadAttention module(c.module);
  draw_parameters(module.parameters(), 21);
  const heed::MultiHeadAttentionOptions& o = module.options();
  const bool self = c.keys == 0;
  const std::int64_t keys = self ? c.queries : c.keys;
  Random random(seed);
  const auto drawn = [&](std::int64_t rows, std::int64_t size) {
    Tensor<float> t({c.batches, 1, rows, size});
    fill_normal(t, random);
    return t;
  };
  const Tensor<float> x = drawn(c.queries, o.d_model), context = drawn(keys, o.d_keys),
                      values = drawn(keys, o.d_values), d_output = drawn(c.queries, o.d_model);
  const Call<float> s = everything(c, keys, seed);
  const Told<float> told(s);
  const Dims d{c.batches, o.heads, o.kv_heads, c.queries, keys, 1, 1};
  EXPECT_TRUE(same_elsewhere(
      where,
      [&](Memory& at) {
        heed::AttentionOptions options;
        if (!plain) options = at.options(told.options);
        options.dropout.seed = seed;  // counts where the module drops
        const auto rows_of = [&](const Tensor<float>& t) { return at.input(t.view(3)); };
        const auto result = [&](auto... shape) { return at.result(heed::DType::f32, {shape...}); };
        heed::AttendingRows rows{.x = rows_of(x)};
        if (!self) rows.context = rows_of(context);
        if (c.values) rows.values = rows_of(values);
        heed::SavedAttention saved;
        const heed::RowStatistics statistics = some_statistics(at, heed::DType::f32, d);
        module.forward(rows,
                       {.output = result(c.batches, c.queries, o.d_model),
                        .saved = &saved,
                        .weights = result(c.batches, o.heads, c.queries, keys),
                        .statistics = &statistics},
                       options);
        heed::MultiHeadGradients to{.dx = result(c.batches, c.queries, o.d_model)};
        if (!self) to.dcontext = result(c.batches, keys, o.d_keys);
        if (c.values) to.dvalues = result(c.batches, keys, o.d_values);
        if (options.alibi.present()) to.dalibi = result(o.heads);
        if (options.sinks.present()) to.dsinks = result(o.heads);
        if (options.bias.present())
          to.dbias = result(s.bias.shape[0], s.bias.shape[1], s.bias.shape[2], s.bias.shape[3]);
        module.zero_gradients();
        module.backward(rows, saved, rows_of(d_output), to, options);
        for (const heed::Parameter& p : module.parameters()) {
          const auto n = static_cast<std::int64_t>(p.gradient.size());
          each_element(result(n), heed::view(p.gradient.data(), {n}),
                       [](std::byte* kept, const std::byte* one) { std::memcpy(kept, one, 4); });
        }
      }))
      << "d_model " << o.d_model << ", " << o.heads << " heads, " << c.queries << " queries, "
      << keys << " keys" << (plain ? "" : ", all options");
}

void expect_same_of_all(Elsewhere where) {
  const std::vector<Shapes> all{
      {.module = {.d_model = 1, .heads = 1}, .batches = 1, .queries = 1},
      {.module = {.d_model = 6, .heads = 2, .bias = true}, .batches = 2, .queries = 17},
      {.module = {.d_model = 33, .heads = 4, .kv_heads = 2, .head_size = 7, .value_size = 13},
       .batches = 3,
       .queries = 65},
      {.module = {.d_model = 32, .heads = 2, .bias = true, .dropout = 0.25},
       .batches = 2,
       .queries = 33},
      {.module =
           {.d_model = 20, .heads = 2, .d_keys = 9, .temperature = heed::Temperature::per_head},
       .batches = 2,
       .queries = 5,
       .keys = 97},
      {.module = {.d_model = 16,
                  .heads = 2,
                  .value_size = 5,
                  .d_keys = 24,
                  .d_values = 9,
                  .bias = true,
                  .temperature = heed::Temperature::one},
       .batches = 2,
       .queries = 3,
       .keys = 770,
       .values = true},
      {.module = {.d_model = 128, .heads = 2}, .batches = 2, .queries = 1, .keys = 97},
  };
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    SCOPED_TRACE(heed::name_of(isa));
    std::uint64_t seed = 31;
    for (const Shapes& c : all)
      for (const bool plain : {true, false}) expect_same(where, c, plain, seed++);
  }
}

TEST(multi_head_placement, nothing_beyond_a_tensor_is_touched_and_no_input_written) {
  expect_same_of_all(Elsewhere::between_guards);
}

TEST(multi_head_placement, heads_and_rows_may_lie_further_apart_than_32_bits) {  // A20
  expect_same_of_all(Elsewhere::heads_far_apart);
}

}  // namespace
}  // namespace heed_test

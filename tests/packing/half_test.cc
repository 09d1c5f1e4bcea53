// Packed sequences in float16 and bfloat16: the bits of calls on each sequence alone, whatever
// instructions the CPU has for them.
#include "forward/half.h"

#include <gtest/gtest.h>

#include <array>

#include "heed/backward.h"
#include "packing/packed.h"

namespace heed_test {
namespace {

Tensor<float> written(Halves& t) { return t.written("a gradient"); }
Tensor<float> written(const Tensor<float>& t) { return t; }

Tensor<float> output_of_all(const Packed<float>& p, heed::DType dtype,
                            const heed::Execution& execution) {
  const Call<float>& c = p.call;
  const Dims d = c.dims();
  const Halves q(c.q, dtype), k(c.k, dtype), v(c.v, dtype);
  // Rows of no sequence have a number of their own: the type's NaN is what was never written.
  Tensor<float> before({1, d.heads, d.queries, d.value_size});
  std::fill(before.memory.begin(), before.memory.end(), 3.0F);
  Halves o(before, dtype);
  Told<float> told(c);
  told.options.packing = p.packing();
  heed::attention_forward(q.view(c.rank), k.view(c.rank), v.view(c.rank), {.output = o.out(c.rank)},
                          told.options, execution);
  return o.written("output");
}

void expect_forward(heed::DType dtype) {
  Random random(75);
  const std::vector<heed::Isa> isas = isas_of(dtype);
  const auto count = static_cast<std::int64_t>(isas.size());
  for (auto drawn = draws(20); drawn; ++drawn) {
    Packed<float> p = random_packed<float>(random);
    p.call = nearest(p.call, dtype);
    const Forced forced(isas[static_cast<std::size_t>(random.below(count))]);
    for (const heed::Execution& execution : {heed::Execution{.executor = nullptr, .threads = 1},
                                             {.executor = nullptr, .threads = 3}}) {
      const Tensor<float> all = output_of_all(p, dtype, execution);
      for (std::size_t s = 0; s < p.sequences(); ++s) {
        const Call<float> one = p.sequence(s);
        EXPECT_TRUE(same_bits(rows_of(all, p.query_offsets, s), run_half(one, dtype).o))
            << "sequence " << s << ": " << describe(one);
      }
      all.each([&](auto b, auto h, auto i, auto x) {
        if (i >= p.query_offsets.front() && i < p.query_offsets.back()) return;
        ASSERT_EQ(all.at(b, h, i, x), 3.0F) << "row " << i << " of no sequence was written";
      });
    }
  }
}

TEST(packing, has_the_bits_of_calls_on_each_sequence_in_float16) {
  expect_forward(heed::DType::f16);
}

TEST(packing, has_the_bits_of_calls_on_each_sequence_in_bfloat16) {
  expect_forward(heed::DType::bf16);
}

/// dq, dk and dv of a packed call, in the type of its tensors.
template <typename T, typename Made>
std::array<Tensor<float>, 3> gradients(const Packed<float>& p, const T& q, const T& k, const T& v,
                                       const T& o, const T& d_output, const Tensor<float>& lse,
                                       const Made& made) {
  auto dq = made(p.call.q.shape), dk = made(p.call.k.shape), dv = made(p.call.v.shape);
  Told<float> told(p.call);
  told.options.packing = p.packing();
  heed::ConstTensorView rows = lse.view();
  --rows.rank;
  heed::attention_backward({.q = q.view(4),
                            .k = k.view(4),
                            .v = v.view(4),
                            .output = o.view(4),
                            .lse = rows,
                            .d_output = d_output.view(4)},
                           {.dq = dq.out(4), .dk = dk.out(4), .dv = dv.out(4)}, told.options,
                           {.executor = nullptr, .threads = 2});
  return {written(dq), written(dk), written(dv)};
}

TEST(packing, backward_in_16_bits_has_the_bits_of_float32_rounded_once) {
  Random random(76);
  for (const heed::DType dtype : {heed::DType::f16, heed::DType::bf16}) {
    for (auto drawn = draws(12); drawn; ++drawn) {
      Packed<float> p = random_packed<float>(random);
      p.call = nearest(p.call, dtype);
      const Call<float>& c = p.call;
      const Dims d = c.dims();
      Tensor<float> lse({1, d.heads, d.queries, 1});
      Tensor<float> o({1, d.heads, d.queries, d.value_size}), g = o;
      Told<float> told(c);
      told.options.packing = p.packing();
      heed::TensorView rows = lse.out();
      --rows.rank;
      heed::attention_forward(c.q.view(4), c.k.view(4), c.v.view(4),
                              {.output = o.out(4), .lse = rows}, told.options);
      fill_normal(g, random);
      o = nearest(std::move(o), dtype);
      g = nearest(std::move(g), dtype);
      // Rows of no sequence stay as they are.
      const auto threes = [](const auto& shape) {
        Tensor<float> t(shape);
        std::fill(t.memory.begin(), t.memory.end(), 3.0F);
        return t;
      };
      auto wide = gradients(p, c.q, c.k, c.v, o, g, lse, threes);
      const auto half = [&](const Tensor<float>& t) { return Halves(t, dtype); };
      const auto got = gradients(p, half(c.q), half(c.k), half(c.v), half(o), half(g), lse,
                                 [&](const auto& shape) { return half(threes(shape)); });
      for (std::size_t i = 0; i < wide.size(); ++i) {
        EXPECT_TRUE(same_bits(got[i], nearest(std::move(wide[i]), dtype)))
            << "d"
            << "qkv"[i] << ": " << describe(c);
      }
    }
  }
}

}  // namespace
}  // namespace heed_test

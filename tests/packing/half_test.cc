// Packed sequences in float16 and bfloat16: the bits of calls on each sequence alone, whatever
// instructions the CPU has for them.
#include "forward/half.h"

#include <gtest/gtest.h>

#include "packing/packed.h"

namespace heed_test {
namespace {

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
  for (int n = draws(20); n > 0; --n) {
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

}  // namespace
}  // namespace heed_test

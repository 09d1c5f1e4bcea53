// Caches of float16 and bfloat16: attention against them has the bits of one call over the whole
// sequence, on pages of any size, whatever instructions the CPU has for the type.
#include "forward/half.h"

#include <gtest/gtest.h>

#include "cached.h"

namespace heed_test {
namespace {

/// Rows begin .. end - 1 of a view [1, H, T, D] of 16-bit elements.
template <typename View>
View rows_of_halves(View view, std::int64_t begin, std::int64_t end) {
  using Bytes = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(view.data)>>,
                                   const std::byte, std::byte>;
  view.data = static_cast<Bytes*>(view.data) + 2 * begin * view.stride[2];
  view.shape[2] = end - begin;
  return view;
}

void expect_prefill(Call<float> call, heed::DType dtype, std::int64_t page_keys) {
  call.causal = true;
  call = nearest(call, dtype);
  const Dims d = call.dims();
  const Tensor<float> whole = run_half(call, dtype).o;
  heed::KvCache cache({.kv_heads = d.kv_heads,
                       .head_size = d.size,
                       .value_size = d.value_size,
                       .dtype = dtype,
                       .pages = (d.keys + page_keys - 1) / page_keys,
                       .page_keys = page_keys});
  const heed::SequenceId id = cache.create();
  const Halves q(call.q, dtype), k(call.k, dtype), v(call.v, dtype);
  Halves o(whole.shape, Layout::bhtd, dtype);
  const Told<float> told(call);
  Random random(static_cast<std::uint64_t>(page_keys));
  for (std::int64_t at = 0; at < d.keys;) {
    const std::int64_t end =
        std::min(d.keys, at + random.pick<std::int64_t>({1, 1, 2, 5, random.between(20, 300)}));
    cache.append(id, rows_of_halves(k.view(4), at, end), rows_of_halves(v.view(4), at, end));
    heed::attention_decode(rows_of_halves(q.view(4), at, end), cache, {&id, 1},
                           {.output = rows_of_halves(o.out(4), at, end)}, told.options,
                           {.executor = nullptr, .threads = 2});
    at = end;
  }
  EXPECT_TRUE(same_bits(o.written("output"), whole))
      << "pages of " << page_keys << ": " << describe(call);
}

TEST(decode, has_the_bits_of_prefill_in_16_bits) {
  for (const heed::DType dtype : {heed::DType::f16, heed::DType::bf16}) {
    for (const heed::Isa isa : runnable_isas()) {
      const Forced forced(isa);
      for (const std::int64_t page_keys : {16, 96, 112, 192, 448}) {
        expect_prefill(plain_call<float>({1, 4, 2, 430, 430, 9, 7}, 1), dtype, page_keys);
        expect_prefill(plain_call<float>({1, 2, 1, 201, 201, 16, 16}, 2), dtype, page_keys);
      }
    }
  }
}

}  // namespace
}  // namespace heed_test

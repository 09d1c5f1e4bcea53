// Caches of float16 and bfloat16: attention against them has the bits of one call over the whole
// sequence, on pages of any size, whatever instructions the CPU has for the type.
#include "forward/half.h"

#include <gtest/gtest.h>

#include "cached.h"
#include "sanitized.h"

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
    for (const heed::Isa isa : isas_for_races(isas_of(dtype))) {
      const Forced forced(isa);
      for (const std::int64_t page_keys : {16, 96, 112, 192, 448}) {
        if (sanitized() && page_keys != 16 && page_keys != 192) continue;
        expect_prefill(plain_call<float>({1, 4, 2, 430, 430, 9, 7}, 1), dtype, page_keys);
        expect_prefill(plain_call<float>({1, 4, 2, 201, 201, 16, 16}, 2), dtype, page_keys);
        expect_prefill(plain_call<float>({1, 4, 2, 430, 430, 64, 32}, 3), dtype, page_keys);
      }
    }
  }
}

/// A sequence whose first keys are evicted, an odd number of them: half a pair.
TEST(decode, in_16_bits_hides_evicted_keys_as_a_mask_does) {
  for (const heed::DType dtype : {heed::DType::f16, heed::DType::bf16}) {
    for (const heed::Isa isa : isas_of(dtype)) {
      const Forced forced(isa);
      for (const std::int64_t gone : {1, 101, 192, 299}) {
        const bool whole = gone % 2 == 1;  // vectors, as the kernels for few rows take them
        const std::int64_t size = whole ? 64 : 9, value_size = whole ? 32 : 7;
        Call<float> call =
            nearest(plain_call<float>({1, 4, 2, whole ? 2 : 3, 300, size, value_size}, 4), dtype);
        const Halves q(call.q, dtype), k(call.k, dtype), v(call.v, dtype);
        heed::KvCache cache({.kv_heads = 2,
                             .head_size = size,
                             .value_size = value_size,
                             .dtype = dtype,
                             .pages = 7,
                             .page_keys = 48});
        const heed::SequenceId id = cache.create();
        cache.append(id, k.view(4), v.view(4));
        cache.evict(id, gone);
        Halves o({1, 4, call.q.shape[2], value_size}, Layout::bhtd, dtype);
        heed::attention_decode(q.view(4), cache, {&id, 1}, {.output = o.out(4)});
        call.drop = Tensor<std::uint8_t>({1, 1, 1, 300});
        call.drop.each(
            [&](auto b, auto h, auto i, auto j) { call.drop.at(b, h, i, j) = j < gone; });
        EXPECT_TRUE(same_bits(o.written("output"), run_half(call, dtype).o))
            << gone << " keys are gone: " << describe(call);
      }
    }
  }
}

TEST(decode, in_16_bits_has_the_same_bits_where_splits_of_keys_are_tasks) {
  for (const heed::DType dtype : {heed::DType::f16, heed::DType::bf16}) {
    for (const heed::Isa isa : isas_of(dtype)) {
      const Forced forced(isa);
      const Call<float> call = nearest(plain_call<float>({1, 1, 1, 20, 2501, 32, 17}, 5), dtype);
      const heed::Execution several{.executor = nullptr, .threads = 3};
      const Halves q(call.q, dtype), k(call.k, dtype), v(call.v, dtype);
      EXPECT_NE(heed::explain(q.view(4), k.view(4), v.view(4), {}, several).path.find("splits"),
                std::string::npos);
      const heed::Execution one{.executor = nullptr, .threads = 1};
      EXPECT_TRUE(same_bits(run_half(call, dtype, {}, several).o, run_half(call, dtype, {}, one).o))
          << describe(call);
    }
  }
}

}  // namespace
}  // namespace heed_test

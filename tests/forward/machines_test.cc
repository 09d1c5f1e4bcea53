// The bits of fixed problems, written down: every machine and every release has them (D6), x86-64
// or arm64. All of them in float32; also few rows and other orders and types, and what is made of
// results.
#include "forward/machines.h"

#include <gtest/gtest.h>

#include <cmath>

#include "forward/seen.h"
#include "heed/kv_cache.h"
#include "heed/merge.h"
#include "inspection/looked.h"

namespace heed_test {
namespace {

constexpr heed::Execution kByKey{.decode_order = heed::DecodeOrder::key_by_key};

std::uint64_t hash_of(const Result<float>& result, std::uint64_t before = kNoHash) {
  return hashed(result.weights, hashed(result.lse, hashed(result.o, before)));
}

void expect_hash(const Call<float>& call, std::uint64_t expected) {
  SCOPED_TRACE(describe(call));
  expect_everywhere(expected, [&] { return hash_of(run(call, {.lse = true, .weights = true})); });
}

TEST(machines, have_one_result_of_plain_attention) {
  expect_hash(uniform_call(1), 0x9416b5b83d40c467);
}

TEST(machines, have_one_result_of_a_causal_window) {
  Call<float> s = uniform_call(2);
  s.causal = true;
  s.query_start = {1663};
  s.left = 900;
  expect_hash(s, 0x1cc0612ab8ca1699);
}

TEST(machines, have_one_result_of_softcap_alibi_and_sinks) {
  Call<float> s = uniform_call(3);
  s.softcap = 3;
  s.alibi = {0.5, 0.25, 0.125, 0.0625};
  s.sinks = {1, -1, 0, 4};
  expect_hash(s, 0x2d53e145d2beb899);
}

TEST(machines, have_one_result_of_cosine_attention_with_lengths) {
  Call<float> s = uniform_call(4);
  s.normalize_qk = true;
  s.scale = {10, 0.1, -3, 1};
  s.key_lengths = {1001, 77};
  expect_hash(s, 0xe6427bbe7447ab70);
}

TEST(machines, have_one_result_of_dropout) {
  Call<float> s = uniform_call(6);
  s.causal = true;
  s.query_start = {1600};
  s.dropout = {0.25, 0x0123456789abcdef};
  expect_hash(s, 0xc5411ad602e2929c);
}

TEST(machines, have_one_result_of_bias_and_keep) {
  Call<float> s = uniform_call(5);
  Random random(6);
  s.bias = Tensor<double>({1, 4, 37, 1700});
  s.keep = Tensor<std::uint8_t>({2, 1, 37, 1700});
  s.bias.each([&](auto b, auto h, auto i, auto j) { s.bias.at(b, h, i, j) = random.uniform(); });
  s.keep.each([&](auto b, auto h, auto i, auto j) { s.keep.at(b, h, i, j) = random.chance(0.5); });
  expect_hash(s, 0x8aad18b03fefac70);
}

/// Two to four rows for each KV head: sizes of whole vectors, of which few rows have products of
/// their own, and more than one chain of 128 coordinates; two splits of keys.
std::vector<Call<float>> calls_of_few_rows() {
  Call<float> plain = uniform_call(7, {1, 4, 2, 1, 900, 128, 64});
  Call<float> more = uniform_call(8, {1, 2, 1, 2, 800, 192, 128});
  more.softcap = 3;
  more.alibi = {0.5, 0.25};
  more.sinks = {1, -1};
  Call<float> masked = uniform_call(9, {2, 2, 2, 3, 800, 64, 64});
  masked.causal = true;
  masked.query_start = {500, 797};
  masked.dropout = {0.25, 0x0123456789abcdef};
  return {plain, more, masked};
}

/// One row for each KV head: those that may be computed key by key.
std::vector<Call<float>> calls_of_single_rows() {
  Call<float> ragged = uniform_call(10, {2, 2, 2, 1, 900, 128, 64});
  ragged.key_lengths = {900, 95};
  return {ragged, uniform_call(11, {1, 1, 1, 1, 800, 160, 96})};
}

std::uint64_t hash_of(const std::vector<Call<float>>& calls, const heed::Execution& execution) {
  std::uint64_t hash = kNoHash;
  for (const Call<float>& call : calls) {
    for (const bool weights : {false, true}) {
      hash = hash_of(run(call, {.lse = true, .weights = weights}, execution), hash);
    }
  }
  return hash;
}

TEST(machines, have_one_result_of_few_rows) {
  const std::vector<Call<float>> calls = calls_of_few_rows();
  expect_everywhere(0xc68d64f59cb7624f, [&] { return hash_of(calls, {}); });
}

TEST(machines, have_one_result_of_decoding_key_by_key) {
  const std::vector<Call<float>> calls = calls_of_single_rows();
  expect_everywhere(0x652c365edfe3c9c6, [&] { return hash_of(calls, kByKey); });
}

std::vector<Call<float>> in_type(std::vector<Call<float>> calls, heed::DType dtype) {
  for (Call<float>& call : calls) {
    if (dtype != heed::DType::f32) call = narrowed(call, dtype);
  }
  return calls;
}

/// Of a prompt, of few rows, and key by key.
void expect_hash_in(heed::DType dtype, std::uint64_t expected, const heed::Execution& execution) {
  std::vector<Call<float>> calls = calls_of_few_rows();
  calls.push_back(uniform_call(12, {1, 2, 1, 37, 900, 20, 9}));
  calls = in_type(calls, dtype);
  const std::vector<Call<float>> single = in_type(calls_of_single_rows(), dtype);
  heed::Execution by_key = execution;
  by_key.decode_order = heed::DecodeOrder::key_by_key;
  expect_everywhere(
      expected, [&] { return 31 * hash_of(calls, execution) + hash_of(single, by_key); }, dtype);
}

TEST(machines, have_one_result_of_float16) {
  expect_hash_in(heed::DType::f16, 0x5409a0eb7110c75a, {});
}

TEST(machines, have_one_result_of_bfloat16_that_is_to_be_reproducible) {
  expect_hash_in(heed::DType::bf16, 0xc1a1ec0796b5d35c, {.reproducible = true});
}

/// Rows that are brought to length 1 are no longer bfloat16, and nobody needs to ask.
TEST(machines, have_one_result_of_cosine_attention_of_bfloat16) {
  std::vector<Call<float>> calls = in_type(
      {uniform_call(13, {1, 2, 1, 37, 900, 20, 9}), uniform_call(14, {1, 2, 1, 1, 900, 64, 64})},
      heed::DType::bf16);
  for (Call<float>& call : calls) call.normalize_qk = true;
  expect_everywhere(
      0x09afbe9e5e2c286f, [&] { return hash_of(calls, {}); }, heed::DType::bf16);
}

TEST(machines, have_one_result_of_statistics) {
  std::vector<Call<float>> calls = calls_of_few_rows();
  calls.push_back(uniform_call(15));
  calls.back().causal = true;
  calls.back().query_start = {1663};
  calls.back().left = 900;
  expect_everywhere(0xf2ea245ff9c62541, [&] {
    std::uint64_t hash = kNoHash;
    for (const Call<float>& call : calls) {
      const Seen<float> seen(call);
      for (const auto field : statistic_numbers<float>()) hash = hashed(seen.*field, hash);
      hash = hashed(seen.visible, hashed(seen.key, hash));
    }
    return hash;
  });
}

/// But for lift_map, whose logarithms are the C library's. bfloat16 is widened without being asked.
TEST(machines, have_one_result_of_weights_on_demand) {
  for (const auto& [dtype, expected] :
       {std::pair{heed::DType::f32, std::uint64_t{0xb8f894337eefcda5}},
        std::pair{heed::DType::bf16, std::uint64_t{0x8422a0e8a05b8a1f}}}) {
    Call<float> call = uniform_call(16, {2, 4, 2, 300, 200, 20, 9});
    call.causal = true;
    call.query_start = {-20, 5};
    call.softcap = 3;
    call = in_type({call}, dtype)[0];
    const auto lse = run(call, {}, {.reproducible = true}).lse;
    expect_everywhere(
        expected,
        [&] {
          const Looked<float> looked(call, lse, {});
          std::uint64_t hash = hashed(looked.histogram, hashed(looked.top_keys, kNoHash));
          for (const auto field : Looked<float>::kNumbers) {
            if (field != &Looked<float>::lift_map) hash = hashed(looked.*field, hash);
          }
          return hash;
        },
        dtype);
  }
}

/// Three parts, one of which is empty for some rows.
TEST(machines, have_one_result_of_merging) {
  for (const auto& [dtype, expected] :
       {std::pair{heed::DType::f32, std::uint64_t{0xb91626834dfb6f61}},
        std::pair{heed::DType::f16, std::uint64_t{0x4bfae96b2d9d81db}},
        std::pair{heed::DType::bf16, std::uint64_t{0x786a630df17261db}}}) {
    std::vector<Tensor<float>> o(3, Tensor<float>({2, 3, 37, 20})),
        lse(3, Tensor<float>({2, 3, 37, 1}));
    Random random(17);
    for (std::size_t n = 0; n < 3; ++n) {
      fill_uniform(o[n], random);
      fill_uniform(lse[n], random);
      for (float& x : lse[n].memory) x *= 8;
      if (dtype != heed::DType::f32) o[n] = nearest(o[n], dtype);
    }
    for (std::int64_t i = 0; i < 37; i += 2) lse[1].at(1, 2, i, 0) = -INFINITY;
    expect_everywhere(expected, [&, type = dtype] {
      Tensor<float> all({2, 3, 37, 20}), all_lse({2, 3, 37, 1});
      const heed::TensorView to_lse = without_last_axis(all_lse.out());
      const auto merge_into = [&](const heed::TensorView& to, const auto& from) {
        std::vector<heed::AttentionPart> parts;
        for (std::size_t n = 0; n < 3; ++n) {
          parts.push_back({from[n].view(4), without_last_axis(lse[n].view())});
        }
        heed::merge(parts, {.output = to, .lse = to_lse});
      };
      if (type == heed::DType::f32) {
        merge_into(all.out(), o);
      } else {
        std::vector<Halves> halves;
        for (const Tensor<float>& part : o) halves.emplace_back(part, type);
        Halves to(all.shape, Layout::bhtd, type);
        merge_into(to.out(4), halves);
        all = to.written("output");
      }
      return hashed(all_lse, hashed(all, kNoHash));
    });
  }
}

/// The batch entries of a call as sequences of a cache, whose pages cut blocks of keys.
template <typename Numbers>
void decode_on_pages(const Call<float>& call, const Numbers& q, const Numbers& k, const Numbers& v,
                     const heed::ForwardOutputs& outputs, const heed::Execution& execution) {
  const Dims d = call.dims();
  heed::KvCache cache({.kv_heads = d.kv_heads,
                       .head_size = d.size,
                       .value_size = d.value_size,
                       .dtype = call.dtype,
                       .pages = 80,
                       .page_keys = 48});
  std::vector<heed::SequenceId> ids;
  for (std::int64_t b = 0; b < d.batch; ++b) {
    const auto keys_of = [&](heed::ConstTensorView view) {
      const auto step = static_cast<std::int64_t>(heed::size_of(view.dtype)) * view.stride[0];
      view.data = static_cast<const std::byte*>(view.data) + b * step;
      view.shape[0] = 1;
      if (!call.key_lengths.empty()) view.shape[2] = call.key_lengths[static_cast<std::size_t>(b)];
      return view;
    };
    ids.push_back(cache.create());
    cache.append(ids.back(), keys_of(k.view(4)), keys_of(v.view(4)));
  }
  Call<float> rest = call;
  rest.key_lengths = {};
  const Told<float> told(rest);
  heed::attention_decode(q.view(4), cache, ids, outputs, told.options, execution);
}

std::uint64_t hash_on_pages(const Call<float>& call, const heed::Execution& execution) {
  const Dims d = call.dims();
  Tensor<float> o({d.batch, d.heads, d.queries, d.value_size}),
      lse({d.batch, d.heads, d.queries, 1});
  const heed::TensorView to_lse = without_last_axis(lse.out());
  if (call.dtype == heed::DType::f32) {
    decode_on_pages(call, call.q, call.k, call.v, {.output = o.out(), .lse = to_lse}, execution);
  } else {
    const Halves q(call.q, call.dtype), k(call.k, call.dtype), v(call.v, call.dtype);
    Halves to(o.shape, Layout::bhtd, call.dtype);
    decode_on_pages(call, q, k, v, {.output = to.out(4), .lse = to_lse}, execution);
    o = to.written("output");
  }
  const std::uint64_t hash = hashed(lse, hashed(o, kNoHash));
  EXPECT_EQ(hash, hash_of(run(call, {}, execution))) << "without a cache: " << describe(call);
  return hash;
}

/// Also the bits of the same calls without a cache.
TEST(machines, have_one_result_of_decoding_on_pages) {
  for (const auto& [dtype, expected] :
       {std::pair{heed::DType::f32, std::uint64_t{0xf933dd67ed7feffb}},
        std::pair{heed::DType::f16, std::uint64_t{0x8cff5909934f9db4}},
        std::pair{heed::DType::bf16, std::uint64_t{0x0aab20006ab72680}}}) {
    const std::vector<Call<float>> calls = in_type(calls_of_single_rows(), dtype);
    expect_everywhere(
        expected,
        [&] {
          std::uint64_t hash = 0;
          for (const Call<float>& call : calls) {
            for (const auto order :
                 {heed::DecodeOrder::of_prefill, heed::DecodeOrder::key_by_key}) {
              hash = 31 * hash + hash_on_pages(call, {.reproducible = true, .decode_order = order});
            }
          }
          return hash;
        },
        dtype);
  }
}

}  // namespace
}  // namespace heed_test

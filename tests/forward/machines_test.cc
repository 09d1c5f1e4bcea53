// The bits of fixed problems in float32, written down: every machine and every release has them
// (D6), x86-64 or arm64.
#include "forward/machines.h"

#include <gtest/gtest.h>

namespace heed_test {
namespace {

std::uint64_t hash_of(const Result<float>& result) {
  return hashed(result.weights, hashed(result.lse, hashed(result.o, kNoHash)));
}

void expect_hash(const Call<float>& call, std::uint64_t expected) {
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    EXPECT_EQ(hash_of(run(call, {.lse = true, .weights = true})), expected)
        << std::hex << expected << " expected of " << heed::name_of(isa) << ": " << describe(call);
  }
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

}  // namespace
}  // namespace heed_test

// The bits of gradients of fixed problems in float32, written down: every machine and every release
// has them, x86-64 or arm64.
#include "forward/machines.h"

#include <gtest/gtest.h>

#include "backward/support.h"

namespace heed_test {
namespace {

/// Of all gradients, and of the norms of dS.
void expect_hashes(const Call<float>& s, std::uint64_t expected, std::uint64_t expected_norms) {
  Random random(99);
  Tensor<float> g = draw_d_output(s, 1);
  fill_uniform(g, random);
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    std::uint64_t hash = kNoHash;
    const auto got = run_backward(s, g);
    each_gradient(got, [&](const Tensor<float>& t, const char*) {
      if (&t != &got.ds_norms) hash = hashed(t, hash);
    });
    EXPECT_EQ(hash, expected) << std::hex << hash << " has " << heed::name_of(isa) << ": "
                              << describe(s);
    const std::uint64_t norms = hashed(got.ds_norms, kNoHash);
    EXPECT_EQ(norms, expected_norms)
        << std::hex << norms << " have the norms of " << heed::name_of(isa) << ": " << describe(s);
  }
}

TEST(backward_machines, have_one_result_of_plain_attention) {
  expect_hashes(uniform_call(1), 0xcf6f4dd7e3b6c5bb, 0x0cdd734330c556a3);
}

TEST(backward_machines, have_one_result_of_a_causal_window) {
  Call<float> s = uniform_call(2);
  s.causal = true;
  s.query_start = {1663};
  s.left = 900;
  expect_hashes(s, 0xca46e40557dfd689, 0x288985b08c681b40);
}

TEST(backward_machines, have_one_result_of_softcap_alibi_and_sinks) {
  Call<float> s = uniform_call(3);
  s.softcap = 3;
  s.alibi = {0.5, 0.25, 0.125, 0.0625};
  s.sinks = {1, -1, 0, 4};
  expect_hashes(s, 0xd1d8ad7e91ff64f8, 0xcd771f2eeeae6309);
}

TEST(backward_machines, have_one_result_of_cosine_attention_and_a_shared_bias) {
  Call<float> s = uniform_call(4);
  s.normalize_qk = true;
  s.scale = {10, 0.1, -3, 1};
  s.key_lengths = {1001, 77};
  Random random(6);
  s.bias = Tensor<double>({1, 4, 37, 1700});
  s.bias.each([&](auto b, auto h, auto i, auto j) { s.bias.at(b, h, i, j) = random.uniform(); });
  expect_hashes(s, 0x541a955d93569b4a, 0xee0bc0c005da29e6);
}

}  // namespace
}  // namespace heed_test

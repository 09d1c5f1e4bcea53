// The bits of the forward-mode derivative of fixed problems in float32, written down: every machine
// and every release has them, x86-64 or arm64.
#include "forward/machines.h"

#include <gtest/gtest.h>

#include "jvp/support.h"

namespace heed_test {
namespace {

void expect_hash(const Call<float>& s, std::uint64_t expected) {
  Motion<float> m = draw_motion(s, 7);
  Random random(8);
  for (Tensor<float>* t : {&m.q, &m.k, &m.v}) fill_uniform(*t, random);
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    const MovedResult<float> got = run_jvp(s, m);
    const std::uint64_t hash = hashed(got.lse, hashed(got.o, kNoHash));
    EXPECT_EQ(hash, expected) << std::hex << hash << " has " << heed::name_of(isa) << ": "
                              << describe(s);
  }
}

TEST(jvp_machines, have_one_result_of_plain_attention) {
  expect_hash(uniform_call(1), 0x3b2f0413a893d0df);
}

TEST(jvp_machines, have_one_result_of_a_causal_window) {
  Call<float> s = uniform_call(2);
  s.causal = true;
  s.query_start = {1663};
  s.left = 900;
  expect_hash(s, 0x782988468368f766);
}

TEST(jvp_machines, have_one_result_of_softcap_alibi_and_sinks) {
  Call<float> s = uniform_call(3);
  s.softcap = 3;
  s.alibi = {0.5, 0.25, 0.125, 0.0625};
  s.sinks = {1, -1, 0, 4};
  expect_hash(s, 0xd9c8476309c2aab9);
}

TEST(jvp_machines, have_one_result_of_cosine_attention_with_lengths) {
  Call<float> s = uniform_call(4);
  s.normalize_qk = true;
  s.scale = {10, 0.1, -3, 1};
  s.key_lengths = {1001, 77};
  expect_hash(s, 0x4e015d54cafd6a7f);
}

}  // namespace
}  // namespace heed_test

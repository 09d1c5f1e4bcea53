// Packed sequences against the oracle: of each, on its rows alone, output and lse are within their
// bounds in every type, gradients in float32 and float64.
// Method: random lengths and options, every row a sequence's, on the instruction sets by turns.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>

#include "backward/support.h"
#include "forward/judge.h"
#include "packing/packed.h"

namespace heed_test {
namespace {

/// Of more than one row in all: an axis of length 1 is one that broadcasts, and sequence() would
/// give it to each.
Lengths lengths_that_add_up(Random& random) {
  const auto one = [](const std::vector<std::int64_t>& all) {
    return std::accumulate(all.begin(), all.end(), std::int64_t{0}) == 1;
  };
  Lengths lengths = random_lengths(random);
  while (one(lengths.queries) || one(lengths.keys)) lengths = random_lengths(random);
  return lengths;
}

/// Without rows of no sequence, so that run() can say what was never written.
template <typename T>
Packed<T> drawn(Random& random, heed::DType dtype) {
  const std::int64_t kv_heads = random.between(1, 2), group = random.between(1, 3);
  const Dims dims{
      1, kv_heads * group, kv_heads, 0, 0, random.between(1, 20), random.between(1, 20)};
  Packed<T> p = packed<T>(random, lengths_that_add_up(random), dims, 0);
  add_options(random, p);
  if constexpr (std::is_same_v<T, float>) {
    if (dtype != heed::DType::f32) p.call = narrowed(std::move(p.call), dtype);
  }
  return p;
}

/// What heed is told: all sequences in one call.
template <typename T>
Call<T> call_of(const Packed<T>& p) {
  Call<T> all = p.call;
  all.query_offsets = p.query_offsets;
  all.key_offsets = p.key_offsets;
  return all;
}

class packing_truth : public testing::TestWithParam<heed::DType> {};

template <typename T>
void expect_outputs(heed::DType dtype) {
  Random random(77);
  const std::vector<heed::Isa> isas = isas_of(dtype);
  std::size_t sequences = 0;
  for (auto draw = draws(16); draw; ++draw) {
    const int n = *draw;
    const Packed<T> p = drawn<T>(random, dtype);
    const Forced forced(isas[static_cast<std::size_t>(n) % isas.size()]);
    const Result<T> all = run(call_of(p), {}, {.executor = nullptr, .threads = 1 + n % 3});
    for (std::size_t s = 0; s < p.sequences(); ++s) {
      const Call<T> one = p.sequence(s);
      const Result<T> own{
          rows_of(all.o, p.query_offsets, s), rows_of(all.lse, p.query_offsets, s), {}};
      EXPECT_TRUE(within_bounds(own, truth_of(one, false)))
          << "draw " << n << ", sequence " << s << ": " << describe(one);
      sequences += one.dims().queries > 0 && one.dims().keys > 0;
    }
  }
  EXPECT_GE(sequences, static_cast<std::size_t>(draws(16).count()))
      << "hardly any has rows and keys";
}

TEST_P(packing_truth, outputs_of_each_sequence_are_within_the_oracles_bounds) {
  if (GetParam() == heed::DType::f64) return expect_outputs<double>(GetParam());
  expect_outputs<float>(GetParam());
}

INSTANTIATE_TEST_SUITE_P(types, packing_truth,
                         testing::Values(heed::DType::f32, heed::DType::f64, heed::DType::f16,
                                         heed::DType::bf16),
                         [](const auto& one) { return std::string(heed::name_of(one.param)); });

/// One number per head, and its bound, added up over sequences.
void add(oracle::Truth& sum, const oracle::Truth& one) {
  if (sum.value.empty()) sum.resize(one.value.size());
  for (std::size_t h = 0; h < one.value.size(); ++h) {
    sum.value[h] += one.value[h];
    sum.bound[h] += one.bound[h];
  }
}

/// dbias belongs to pairs of a sequence, or is a sum over all: packing_test has it, bit for bit.
template <typename T>
void expect_gradients() {
  Random random(78);
  const std::vector<heed::Isa> isas = runnable_isas();
  for (auto draw = draws(12); draw; ++draw) {
    const int n = *draw;
    const Packed<T> p = drawn<T>(random, heed::detail::dtype_of<T>());
    const Forced forced(isas[static_cast<std::size_t>(n) % isas.size()]);
    const Tensor<T> g = draw_d_output(p.call, random.bits());
    const Gradients<T> all =
        run_backward(call_of(p), g, {}, {.executor = nullptr, .threads = 1 + n % 3});
    oracle::Gradients sums;
    for (std::size_t s = 0; s < p.sequences(); ++s) {
      const Call<T> one = p.sequence(s);
      const oracle::Gradients truth = true_gradients(one, rows_of(g, p.query_offsets, s));
      Gradients<T> own;
      own.dq = rows_of(all.dq, p.query_offsets, s);
      own.dk = rows_of(all.dk, p.key_offsets, s);
      own.dv = rows_of(all.dv, p.key_offsets, s);
      own.ds_norms = rows_of(all.ds_norms, p.query_offsets, s);
      EXPECT_TRUE(within_bounds(one, own, truth))
          << "draw " << n << ", sequence " << s << ": " << describe(one);
      add(sums.dscale, truth.dscale);
      add(sums.dalibi, truth.dalibi);
      add(sums.dsinks, truth.dsinks);
    }
    Gradients<T> of_all;
    of_all.dscale = all.dscale;
    of_all.dalibi = all.dalibi;
    of_all.dsinks = all.dsinks;
    Call<T> call = p.call;
    call.bias = {};
    EXPECT_TRUE(within_bounds(call, of_all, sums)) << "draw " << n << ": " << describe(p.call);
  }
}

TEST(packing, gradients_of_each_sequence_are_within_the_oracles_bounds_in_float32) {
  expect_gradients<float>();
}
TEST(packing, gradients_of_each_sequence_are_within_the_oracles_bounds_in_float64) {
  expect_gradients<double>();
}

}  // namespace
}  // namespace heed_test

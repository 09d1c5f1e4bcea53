// Derivatives in float16 and bfloat16: the bits of the float32 kernels on the same numbers, dq, dk,
// dv and the moved output rounded once, all other results in float32.
// Method: cases of the matrix in both types.
#include "forward/half.h"

#include <gtest/gtest.h>

#include "backward/judge.h"
#include "forward/draws.h"
#include "forward/executors.h"
#include "jvp/support.h"

namespace heed_test {
namespace {

class half_gradients : public testing::TestWithParam<heed::DType> {
 protected:
  /// One case in `every` of those whose numbers the types hold.
  template <typename Judge>
  void judge_all(const std::vector<Case>& cases, std::size_t every, const Judge& judge) {
    int count = 0;
    for (std::size_t n = 0; n < cases.size() && !HasFailure(); n += every, ++count) {
      Call<float> call = make<float>(cases[n], GetParam());
      call.fewer_axes = false;
      judge(nearest(std::move(call), GetParam()), cases[n], n);
    }
    EXPECT_GT(count, 0);
  }
};

TEST_P(half_gradients, have_the_bits_of_float32_rounded_once) {
  const heed::DType dtype = GetParam();
  const auto judge = [&](const Call<float>& s, const Case& c, std::size_t) {
    Result<float> forward = run(s);
    forward.o = nearest(std::move(forward.o), dtype);
    const auto g = nearest(draw_d_output(s, c.seed ^ 77, c.output), dtype);
    Gradients<float> wide = run_backward(s, forward, g);
    for (Tensor<float>* t : {&wide.dq, &wide.dk, &wide.dv}) *t = nearest(std::move(*t), dtype);
    const auto got = run_half_backward(s, forward, g, c.output, dtype);
    EXPECT_TRUE(same_bits(got, wide)) << describe(s);
  };
  judge_all(core_cases(), 13, judge);
  judge_all(layout_cases(), 2, judge);
  judge_all(head_cases(), 1, judge);
  judge_all(broadcast_cases(), 3, judge);
  judge_all(value_cases(), 7, judge);
}

/// Directions that the type holds.
Motion<float> draw_motion_in(heed::DType dtype, const Call<float>& s, std::uint64_t seed,
                             Layout layout) {
  Motion<float> m = draw_motion(s, seed, layout);
  for (Tensor<float>* t : {&m.q, &m.k, &m.v}) *t = nearest(std::move(*t), dtype);
  return m;
}

TEST_P(half_gradients, of_forward_mode_have_the_bits_of_float32_rounded_once) {
  const heed::DType dtype = GetParam();
  const auto judge = [&](const Call<float>& s, const Case& c, std::size_t n) {
    Result<float> forward = run(s);
    forward.o = nearest(std::move(forward.o), dtype);
    Motion<float> m = draw_motion_in(dtype, s, c.seed ^ 55, c.q);
    if (n % 3 != 0) m.bias = {};
    MovedResult<float> wide = run_jvp(s, forward, m);
    wide.o = nearest(std::move(wide.o), dtype);
    EXPECT_TRUE(same_bits(run_half_jvp(s, forward, m, c.output, dtype), wide)) << describe(s);
  };
  judge_all(core_cases(), 13, judge);
  judge_all(layout_cases(), 2, judge);
  judge_all(head_cases(), 1, judge);
}

/// Cases of the matrix, and larger ones of which each of four threads has a share.
std::vector<Case> shared_cases() {
  std::vector<Case> all;
  const std::vector<Case> core = core_cases(), heads = head_cases();
  for (std::size_t n = 0; n < core.size(); n += 131) all.push_back(core[n]);
  for (std::size_t n = 0; n < heads.size(); n += 17) all.push_back(heads[n]);
  const auto add = [&](const Dims& dims, Masking masking) {
    Case c;
    c.dims = dims;
    c.masking = masking;
    c.mask_axes = 3;
    c.seed = 900 + all.size();
    all.push_back(c);
  };
  for (const Masking masking : {Masking::none, Masking::causal_at_end, Masking::bias_masking,
                                Masking::sinks, Masking::everything}) {
    add({1, 2, 1, 37, 850, 9, 5}, masking);
  }
  add({1, 2, 2, 40, 800, 64, 64}, Masking::none);
  add({1, 1, 1, 20, 800, 192, 128}, Masking::causal_at_end);
  return all;
}

/// A call with all that its derivatives take, of a forward pass in float32.
struct Derivable {
  Call<float> s;
  heed::DType dtype;
  Layout output;
  Result<float> forward = run(s);
  Tensor<float> g;
  Motion<float> m;

  Derivable(Call<float> call, const Case& c, heed::DType type)
      : s(std::move(call)), dtype(type), output(c.output) {
    forward.o = nearest(std::move(forward.o), dtype);
    g = nearest(draw_d_output(s, c.seed ^ 33, output), dtype);
    m = draw_motion_in(dtype, s, c.seed ^ 34, c.q);
  }
  [[nodiscard]] Gradients<float> back(const heed::Execution& execution) const {
    return run_half_backward(s, forward, g, output, dtype, execution);
  }
  [[nodiscard]] MovedResult<float> onward(const heed::Execution& execution) const {
    return run_half_jvp(s, forward, m, output, dtype, execution);
  }
};

constexpr heed::Execution kOneThread{.executor = nullptr, .threads = 1};

TEST_P(half_gradients, have_the_same_bits_on_every_instruction_set_for_any_threads) {
  const std::vector<heed::Isa> isas = isas_of(GetParam());
  const auto judge = [&](const Call<float>& s, const Case& c, std::size_t) {
    const Derivable of(s, c, GetParam());
    const auto back = of.back(kOneThread);
    const auto onward = of.onward(kOneThread);
    for (const heed::Isa isa : isas) {
      const Forced forced(isa);
      std::vector<int> counts{1, 2, 4};
      if (isa == isas.back()) counts.assign(thread_counts().begin(), thread_counts().end());
      for (const int threads : counts) {
        const heed::Execution execution{.executor = nullptr, .threads = threads};
        EXPECT_TRUE(same_bits(of.back(execution), back))
            << heed::name_of(isa) << ", " << threads << " threads: " << describe(s);
        EXPECT_TRUE(same_bits(of.onward(execution), onward))
            << heed::name_of(isa) << ", " << threads << " threads, forward mode: " << describe(s);
      }
    }
  };
  judge_all(shared_cases(), 1, judge);
}

// Keys are shared out, and in forward mode rows.
TEST_P(half_gradients, have_the_same_bits_where_64_threads_share) {
  const auto many = [&](std::int64_t queries, std::int64_t keys) {
    return Derivable(
        nearest(for_many_threads<float>(Masking::everything, queries, keys), GetParam()), {},
        GetParam());
  };
  const Derivable of_keys = many(20, 6200), of_rows = many(520, 330);
  expect_same_where_64_threads_share(
      [&](const auto& execution) { return of_keys.back(execution); });
  expect_same_where_64_threads_share(
      [&](const auto& execution) { return of_rows.onward(execution); });
}

// Forward in the type, by dot products of bfloat16 where the CPU has them, then backward on its
// results.
TEST_P(half_gradients, of_a_forward_pass_in_the_type_are_within_bounds) {
  int count = 0;
  const auto judge = [&](const std::vector<Case>& cases, std::size_t every) {
    for (std::size_t n = 0; n < cases.size() && !HasFailure(); n += every) {
      judge_half_gradients({cases[n]}, GetParam());
      ++count;
    }
  };
  judge(core_cases(), 13);
  judge(head_cases(), 1);
  EXPECT_GT(count, 190);
}

INSTANTIATE_TEST_SUITE_P(types, half_gradients,
                         testing::Values(heed::DType::bf16, heed::DType::f16),
                         [](const auto& one) { return std::string(heed::name_of(one.param)); });

}  // namespace
}  // namespace heed_test

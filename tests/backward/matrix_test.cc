// The case matrix of the backward pass: on every instruction set against the oracle's bounds, and
// those with float32 against each other bit by bit.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "backward/judge.h"
#include "sanitized.h"

namespace heed_test {
namespace {

constexpr std::size_t kMostReports = 10;

/// What has bounds: finite values. masked_test says what becomes of others.
bool bounded(const Case& c) {
  return c.values != Values::not_a_number && c.values != Values::v_infinite;
}

/// One case in `every`, and as many as the manifest says.
template <typename T>
void judge_all(const std::vector<Case>& cases, std::size_t every, std::size_t manifest) {
  const std::size_t fewer = one_in(manifest);
  std::size_t known = 0, count = 0, failed = 0;
  for (std::size_t n = 0; n < cases.size() && failed < kMostReports; n += every) {
    if (!bounded(cases[n]) || known++ % fewer != 0) continue;
    failed += judge_gradients<T>({cases[n]}, count++) ? 0 : 1;
  }
  EXPECT_EQ(known, manifest);
  EXPECT_EQ(count, (manifest + fewer - 1) / fewer);
  std::cout << count << " cases; the largest errors so far, as shares of their bounds:";
  for (const auto& [name, share] : worst_shares<T>()) std::cout << " " << name << " " << share;
  std::cout << "\n";
}

TEST(backward_matrix, sizes_lengths_and_masks_float32) { judge_all<float>(core_cases(), 2, 1106); }
TEST(backward_matrix, sizes_lengths_and_masks_float64) { judge_all<double>(core_cases(), 23, 97); }
TEST(backward_matrix, layouts_float32) { judge_all<float>(layout_cases(), 1, 121); }
TEST(backward_matrix, layouts_float64) { judge_all<double>(layout_cases(), 4, 31); }
TEST(backward_matrix, biases_and_masks_broadcast_float32) {
  judge_all<float>(broadcast_cases(), 1, 160);
}
TEST(backward_matrix, biases_and_masks_broadcast_float64) {
  judge_all<double>(broadcast_cases(), 3, 54);
}
TEST(backward_matrix, heads_and_batch_float32) { judge_all<float>(head_cases(), 1, 108); }
TEST(backward_matrix, heads_and_batch_float64) { judge_all<double>(head_cases(), 5, 22); }
TEST(backward_matrix, value_classes_float32) { judge_all<float>(value_cases(), 1, 480); }
TEST(backward_matrix, value_classes_float64) { judge_all<double>(value_cases(), 7, 70); }
TEST(backward_matrix, scales_float32) { judge_all<float>(scale_cases(), 1, 140); }
TEST(backward_matrix, dropout_float32) { judge_all<float>(dropout_cases(), 1, 105); }
TEST(backward_matrix, dropout_float64) { judge_all<double>(dropout_cases(), 4, 27); }
TEST(backward_matrix, few_rows_of_whole_vectors_float32) { judge_all<float>(few_cases(), 2, 165); }
TEST(backward_matrix, blocks_chunks_and_chains_float32) {
  judge_all<float>(large_cases(40, 60), 1, 60);
}
TEST(backward_matrix, blocks_chunks_and_chains_float64) {
  judge_all<double>(large_cases(3, 8), 1, 8);
}

TEST(backward_matrix, an_element_without_a_bound_fails_and_is_never_a_NaN) {
  auto s = plain_call<float>({1, 1, 1, 3, 5, 4, 4}, 81);
  s.scale = {1e7};  // scores whose own errors are above 1/8
  const auto g = draw_d_output(s, 82);
  const oracle::Gradients truth = true_gradients(s, g);
  Gradients<float> got = run_backward(s, g);
  EXPECT_FALSE(within_bounds(s, got, truth));
  EXPECT_TRUE(within_bounds(s, got, truth, Unbounded::is_finite));
  std::size_t unbounded = 0;
  while (!std::isinf(truth.dq.bound[unbounded])) ++unbounded;
  for (const float wrong : {NAN, INFINITY}) {
    got.dq.memory[unbounded] = wrong;
    EXPECT_FALSE(within_bounds(s, got, truth, Unbounded::is_finite)) << wrong;
  }
}

}  // namespace
}  // namespace heed_test

// The case matrix of the forward-mode derivative: on every instruction set against the oracle's
// bounds, float64 against complex steps too, and all instruction sets against each other bit by
// bit.
#include <iostream>
#include <optional>

#include "sanitized.h"
#include "support.h"

namespace heed_test {
namespace {

constexpr std::size_t kMostReports = 10;

struct Tally {
  std::size_t cases = 0, failed = 0;
  double worst_o = 0, worst_lse = 0;  // errors as shares of their bounds
};

template <typename T>
testing::AssertionResult within(const Tensor<T>& got, const oracle::Truth& truth, const char* name,
                                double* worst) {
  auto result = testing::AssertionSuccess();
  std::size_t n = 0;
  got.each([&](auto b, auto h, auto i, auto x) {
    const auto value = static_cast<double>(got.at(b, h, i, x));
    const double error = std::fabs((value - truth.value[n]) - truth.low[n]);
    // No case of the lists has an element whose bound is infinite: of one nothing would be known.
    const bool good = std::isfinite(truth.bound[n]) && error <= truth.bound[n] &&
                      !(value == 0 && std::signbit(value));
    *worst = std::max(*worst, error / truth.bound[n]);
    if (result && !good) {
      result = testing::AssertionFailure()
               << std::scientific << name << "[" << b << ", " << h << ", " << i << ", " << x
               << "] = " << value << ", oracle " << truth.value[n] << ", error " << error
               << ", bound " << truth.bound[n];
    }
    ++n;
  });
  return result;
}

/// What has bounds: finite values.
bool bounded(const Case& c) {
  return c.values != Values::not_a_number && c.values != Values::v_infinite;
}

template <typename T>
void judge(const Case& c, Tally& tally) {
  const Call<T> s = make<T>(c);
  const auto n = tally.cases++;
  Motion<T> m = draw_motion(s, c.seed ^ 55, c.q);
  if (n % 5 == 1) m.q = {};
  if (n % 7 == 2) m.k = {};
  if (n % 5 == 3) m.v = {};
  if (n % 3 != 0) m.bias = {};
  const oracle::Moved truth = oracle::moved(problem_of(s), m.plain());
  const heed::Execution execution{.executor = nullptr, .threads = static_cast<int>(1 + n % 3)};
  std::optional<MovedResult<T>> first;
  bool good = true;
  for (const heed::Isa isa : runnable_isas()) {
    const Forced forced(isa);
    const auto got = run_jvp(s, run(s), m, execution, c.output);
    auto result = within(got.o, truth.o, "output", &tally.worst_o);
    if (result) result = within(got.lse, truth.lse, "lse", &tally.worst_lse);
    if (result && first) result = same_bits(got, *first);
    good &= bool{result};
    EXPECT_TRUE(result) << heed::name_of(isa) << ": " << describe(s);
    if (!first) first = got;
  }
  tally.failed += good ? 0 : 1;
}

/// One case in `every`, and as many as the manifest says.
template <typename T>
void judge_all(const std::vector<Case>& cases, std::size_t every, std::size_t manifest) {
  const std::size_t fewer = one_in(manifest);
  Tally tally;
  std::size_t known = 0;
  for (std::size_t n = 0; n < cases.size() && tally.failed < kMostReports; n += every) {
    if (bounded(cases[n]) && known++ % fewer == 0) judge<T>(cases[n], tally);
  }
  EXPECT_EQ(known, manifest);
  EXPECT_EQ(tally.cases, (manifest + fewer - 1) / fewer);
  std::cout << tally.cases << " cases; the largest errors as shares of their bounds: output "
            << tally.worst_o << ", lse " << tally.worst_lse << "\n";
}

TEST(jvp_matrix, sizes_lengths_and_masks_float32) { judge_all<float>(core_cases(), 3, 738); }
TEST(jvp_matrix, sizes_lengths_and_masks_float64) { judge_all<double>(core_cases(), 31, 72); }
TEST(jvp_matrix, layouts_float32) { judge_all<float>(layout_cases(), 1, 121); }
TEST(jvp_matrix, biases_and_masks_broadcast_float32) {
  judge_all<float>(broadcast_cases(), 1, 160);
}
TEST(jvp_matrix, heads_and_batch_float32) { judge_all<float>(head_cases(), 1, 108); }
TEST(jvp_matrix, value_classes_float32) { judge_all<float>(value_cases(), 1, 480); }
TEST(jvp_matrix, scales_float32) { judge_all<float>(scale_cases(), 1, 140); }
TEST(jvp_matrix, dropout_float32) { judge_all<float>(dropout_cases(), 1, 105); }
TEST(jvp_matrix, dropout_float64) { judge_all<double>(dropout_cases(), 4, 27); }
TEST(jvp_matrix, few_rows_of_whole_vectors_float32) { judge_all<float>(few_cases(), 2, 165); }
TEST(jvp_matrix, blocks_and_splits_float32) { judge_all<float>(large_cases(40, 40), 1, 40); }

// The first key has nearly all the weight; of each other one O has lost 3/8 of the smallest number,
// times lse'.
TEST(jvp_ranges, what_an_output_lost_below_the_normal_numbers_is_multiplied_with_that_of_lse) {
  auto s = plain_call<float>({1, 1, 1, 1, 101, 1, 1}, 1);
  s.q.at(0, 0, 0, 0) = 1, s.scale = {1};
  Motion<float> m{};
  m.bias = Tensor<double>({1, 1, 1, 101});
  for (std::int64_t j = 0; j < 101; ++j) {
    s.k.at(0, 0, j, 0) = j == 0 ? 0 : std::log(0x1p-30F);
    s.v.at(0, 0, j, 0) = j == 0 ? 0 : 0x1.8p-121F;
    m.bias.at(0, 0, 0, j) = j == 0 ? 1e10 : 0;
  }
  const oracle::Moved truth = oracle::moved(problem_of(s), m.plain());
  double worst = 0;
  EXPECT_TRUE(within(run_jvp(s, m).o, truth.o, "output", &worst));
  EXPECT_LT(truth.o.value[0], -1e-35);
}

}  // namespace
}  // namespace heed_test

// The types that the full tier judges, each by what it promises.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "forward/judge.h"
#include "forward/shrink.h"

namespace heed_test {

enum class Type { f32, f64, f16, bf16, bf16_dots };
inline constexpr const char* kTypes[] = {"f32", "f64", "f16", "bf16", "bf16_dots"};

/// All cases in one type. What gtest keeps of the test says how many there were.
inline void judge_all_as(Type type, const std::vector<Case>& cases) {
  constexpr int kMostReports = 20;
  if (type == Type::bf16_dots) {
    heed::cap_instruction_set(kPaired);
    if (heed::instruction_set() != kPaired) {
      GTEST_SKIP() << "this CPU has no dot products of bfloat16 (" << heed::name_of(kPaired) << ")";
    }
  }
  Tally tally;
  for (std::size_t n = 0; n < cases.size(); ++n) {
    SCOPED_TRACE("case " + std::to_string(n));
    Tally one;
    judge_and_shrink(cases[n], [&](const Case& c) {
      if (type == Type::f32) one = judge<float>(c, n);
      if (type == Type::f64) one = judge<double>(c, n);
      if (type == Type::f16) one = judge_half(c, n, heed::DType::f16, judging_isas(c.dims));
      if (type == Type::bf16) one = judge_half(c, n, heed::DType::bf16, judging_isas(c.dims));
      if (type == Type::bf16_dots) one = judge_paired(c, n);
    });
    tally += one;
    const auto* const result = testing::UnitTest::GetInstance()->current_test_info()->result();
    if (result->total_part_count() >= kMostReports) break;  // the rest would say nothing new
  }
  testing::Test::RecordProperty("cases", static_cast<int>(tally.cases));
  testing::Test::RecordProperty("mistrusted", static_cast<int>(tally.mistrusted));
  EXPECT_EQ(tally.cases, cases.size());
}

}  // namespace heed_test

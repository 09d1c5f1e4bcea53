// Greedy: the first smaller case that fails is taken, until none does.
#include "forward/shrink.h"

#include <gtest/gtest-spi.h>

#include <algorithm>

namespace heed_test {

std::vector<testing::TestPartResult> failures(const std::function<void()>& body) {
  using Reporter = testing::ScopedFakeTestPartResultReporter;
  testing::TestPartResultArray results;
  {
    const Reporter reporter(Reporter::INTERCEPT_ALL_THREADS, &results);
    body();
  }
  std::vector<testing::TestPartResult> found;
  for (int n = 0; n < results.size(); ++n)
    if (results.GetTestPartResult(n).failed()) found.push_back(results.GetTestPartResult(n));
  return found;
}

bool fails_and_says(const std::function<void()>& body) {
  const auto found = failures(body);
  for (const testing::TestPartResult& one : found)
    ADD_FAILURE_AT(one.file_name(), one.line_number()) << one.message();
  return !found.empty();
}

std::vector<Case> smaller(const Case& c) {
  std::vector<Case> found;
  const auto with = [&](auto member, auto value) {
    if (c.*member == value) return;
    found.push_back(c);
    found.back().*member = value;
  };
  with(&Case::masking, Masking::none);
  with(&Case::values, Values::normal);
  with(&Case::scaling, Scaling::usual);
  with(&Case::dropout, 0.0);
  for (const auto layout : {&Case::q, &Case::k, &Case::v, &Case::output})
    with(layout, Layout::bhtd);
  with(&Case::packed, false);
  if (!c.packed) with(&Case::mask_axes, 15);
  with(&Case::mask_dtype, heed::DType::boolean);
  with(&Case::bias_dtype, heed::DType::f32);
  const auto sizes = [&](std::int64_t Dims::*size, std::int64_t to) {
    if (c.dims.*size <= to) return;
    found.push_back(c);
    found.back().dims.*size = to;
  };
  if (c.dims.kv_heads > 1) {
    sizes(&Dims::heads, c.dims.heads / c.dims.kv_heads);
    found.back().dims.kv_heads = 1;
  }
  sizes(&Dims::heads, c.dims.kv_heads);
  for (const auto size :
       {&Dims::batch, &Dims::queries, &Dims::keys, &Dims::size, &Dims::value_size}) {
    for (const std::int64_t to : {c.dims.*size / 2, c.dims.*size - 1})
      sizes(size, std::max<std::int64_t>(1, to));
  }
  return found;
}

Case shrunk(Case c, const std::function<bool(const Case&)>& fails) {
  constexpr int kMostTries = 300;  // a large case takes a second
  int tries = 0;
  for (;;) {
    const std::vector<Case> all = smaller(c);
    const auto next = std::find_if(all.begin(), all.end(), [&](const Case& one) {
      return ++tries <= kMostTries && fails(one);
    });
    if (next == all.end()) return c;
    c = *next;
  }
}

void judge_and_shrink(const Case& c, const std::function<void(const Case&)>& judge) {
  if (testing::Test::HasFailure()) return judge(c);
  if (!fails_and_says([&] { judge(c); })) return;
  const Case least =
      shrunk(c, [&](const Case& one) { return !failures([&] { judge(one); }).empty(); });
  SCOPED_TRACE("what is left of it when it is shrunk");
  judge(least);
}

}  // namespace heed_test

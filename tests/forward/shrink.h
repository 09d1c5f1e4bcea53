// The smallest problem that still fails, for whoever has to find out why a drawn one does.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "forward/cases.h"

namespace heed_test {

/// What the body reports as failures, none of which fails the test.
std::vector<testing::TestPartResult> failures(const std::function<void()>& body);

/// Whether the body fails. If so the test fails with what this run of it reported: another one may
/// not fail again, where threads or memory are to blame.
bool fails_and_says(const std::function<void()>& body);

/// The case with one size halved or one less, or without one of its options: all that are possible.
std::vector<Case> smaller(const Case& c);

/// The case, made smaller as long as one that is smaller fails, too.
Case shrunk(Case c, const std::function<bool(const Case&)>& fails);

/// Judges the case. The first that does not hold fails the test, and so does what is left of it
/// when it is shrunk.
void judge_and_shrink(const Case& c, const std::function<void(const Case&)>& judge);

}  // namespace heed_test

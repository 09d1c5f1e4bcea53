// The smallest problem that still fails, for whoever has to find out why a drawn one does.
#pragma once

#include <functional>
#include <vector>

#include "forward/cases.h"

namespace heed_test {

/// Whether the body fails the test; what it reports is dropped.
bool fails(const std::function<void()>& body);

/// The case with one size halved or one less, or without one of its options: all that are possible.
std::vector<Case> smaller(const Case& c);

/// The case, made smaller as long as one that is smaller fails, too.
Case shrunk(Case c, const std::function<bool(const Case&)>& fails);

/// Judges the case once if it holds. The first that does not is judged again, so that it fails the
/// test, and so is what is left of it when it is shrunk.
void judge_and_shrink(const Case& c, const std::function<void(const Case&)>& judge);

}  // namespace heed_test

// Memory that cannot be had, in what is built around attention: merging, looking at weights, modules.
// Method: this program's operator new and aligned_alloc fail at the n-th call, for every n until the call
// succeeds. Required: heed::Error of kind memory, and everything as it was.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "forward/failing_allocation.h"
#include "forward/support.h"
#include "heed/inspect.h"
#include "heed/merge.h"
#include "heed/modules.h"

namespace heed_test {
namespace {

using Numbers = std::vector<float>;

template <typename Act>
void fail_each(const char* name, const Act& act, const std::function<bool()>& untouched) {
  int failures = 0;
  bool succeeded = false;
  for (long n = 1; n < 400 && !succeeded; ++n) {
    std::string message;
    heed::ErrorKind kind = heed::ErrorKind::memory;
    failing = n;
    try {
      act();
      message = "";
    } catch (const heed::Error& error) {
      failing = 0;
      kind = error.kind();
      message = error.what();
    } catch (const std::exception& error) {
      failing = 0;
      message = error.what();
      ADD_FAILURE() << name << ", allocation " << n << ": " << message
                    << ", which is no heed::Error";
    }
    const bool reached = failing.exchange(0) <= 0;
    if (message.empty()) {
      succeeded = !reached;  // else one that could be done without
      continue;
    }
    ++failures;
    EXPECT_EQ(kind, heed::ErrorKind::memory) << name << ": " << message;
    EXPECT_TRUE(untouched()) << name << ": written in spite of: " << message;
  }
  EXPECT_TRUE(succeeded) << name;
  EXPECT_GT(failures, 0) << name << " allocates nothing: take it off this list";
}

/// On a thread of its own, since scratch that calls before were given stays with their thread.
template <typename Act>
void every_allocation_fails_once(const char* name, const Act& act,
                                 const std::function<bool()>& untouched) {
  std::thread([&] { fail_each(name, act, untouched); }).join();
}

bool all_are(const Numbers& numbers, float x) {
  return std::ranges::all_of(numbers, [x](float y) { return y == x; });
}

heed::Execution fresh() { return {.executor = nullptr, .threads = 1}; }

TEST(allocation_faults, of_linear_leave_result_and_gradients) {
  std::int64_t rows = 40;
  const Numbers x(400 * 300, 0.5F), dy(400 * 200, 0.25F);
  Numbers y(400 * 200, 7), dx(400 * 300, 7);
  every_allocation_fails_once(
      "a Linear", [] { const heed::Linear linear({.inputs = 300, .outputs = 200, .bias = true}); },
      [] { return true; });
  heed::Linear linear({.inputs = 300, .outputs = 200, .bias = true});
  every_allocation_fails_once(
      "forward",
      [&] {
        heed::detail::ViewOf<float> to = heed::view(y.data(), {++rows, 200});
        heed::Linear wider({.inputs = 300, .outputs = 200});
        linear.forward(heed::view(x.data(), {rows, 300}), to, fresh());
      },
      [&] { return all_are(y, 7); });
  const auto gradients = [&] {
    Numbers all(linear.weight_gradient().begin(), linear.weight_gradient().end());
    all.insert(all.end(), linear.bias_gradient().begin(), linear.bias_gradient().end());
    return all;
  };
  every_allocation_fails_once(
      "backward",
      [&] {
        ++rows;
        linear.backward(heed::view(x.data(), {rows, 300}), heed::view(dy.data(), {rows, 200}),
                        heed::view(dx.data(), {rows, 300}), fresh());
      },
      [&] { return all_are(dx, 7) && all_are(gradients(), 0); });
}

TEST(allocation_faults, of_multi_head_attention_leave_result_and_gradients) {
  heed::MultiHeadAttention attention({.d_model = 64, .heads = 4});
  const Numbers x(2 * 300 * 64, 0.5F);
  Numbers y(2 * 300 * 64, 7), dx(2 * 300 * 64, 7);
  std::int64_t rows = 20;
  heed::SavedAttention saved;
  const auto input = [&] { return heed::view(x.data(), {2, rows, 64}); };
  every_allocation_fails_once(
      "forward",
      [&] {
        ++rows;
        heed::SavedAttention anew;
        attention.forward({.x = input()},
                          {.output = heed::view(y.data(), {2, rows, 64}), .saved = &anew}, {},
                          fresh());
        saved = std::move(anew);
      },
      [&] { return all_are(y, 7); });
  const auto gradients = [&] {
    Numbers all;
    for (const heed::Parameter& p : attention.parameters())
      all.insert(all.end(), p.gradient.begin(), p.gradient.end());
    return all;
  };
  every_allocation_fails_once(
      "backward",
      [&] {
        attention.backward({.x = input()}, saved, heed::view(x.data(), {2, rows, 64}),
                           {.dx = heed::view(dx.data(), {2, rows, 64})}, {}, fresh());
      },
      [] { return true; });  // some of the gradients may be there: heed/modules.h says so
  EXPECT_FALSE(all_are(gradients(), 0));
}

TEST(allocation_faults, of_looking_at_weights_leave_the_results) {
  const auto s = plain_call<float>({1, 2, 1, 200, 900, 16, 16}, 3);
  const auto r = run(s);
  heed::ConstTensorView lse = r.lse.view();
  --lse.rank;
  Numbers sums(2 * 900, 7), map(2 * 8 * 8, 7), top(2 * 200 * 3, 7);
  every_allocation_fails_once(
      "inspect_weights",
      [&] {
        heed::inspect_weights({s.q.view(), s.k.view(), lse},
                              {.top_weights = heed::view(top.data(), {1, 2, 200, 3}),
                               .column_sums = heed::view(sums.data(), {1, 2, 900}),
                               .mean_map = heed::view(map.data(), {1, 2, 8, 8})},
                              {}, fresh());
      },
      [&] { return all_are(sums, 7) && all_are(map, 7) && all_are(top, 7); });
  const auto numbers = heed::view(s.q.memory.data(), {1, 2, 200});
  every_allocation_fails_once(
      "summarize", [&] { (void)heed::summarize(numbers); }, [] { return true; });
  every_allocation_fails_once(
      "saturation", [&] { (void)heed::saturation(numbers); }, [] { return true; });
}

}  // namespace
}  // namespace heed_test

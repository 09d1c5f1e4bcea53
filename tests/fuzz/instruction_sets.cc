// F7: forward and backward pass of a drawn problem: the same bits on every instruction set.
#include "problem.h"

namespace {

template <typename T>
void compare(const heed_test::Case& c, bool backward) {
  using heed_fuzz::expect;
  const heed_test::Call<T> call = heed_test::make<T>(c);
  const auto g = heed_test::draw_d_output(call, c.seed ^ 77, c.output);
  heed_test::Result<T> first;
  heed_test::Gradients<T> first_gradients;
  for (const heed::Isa isa : heed_test::runnable_isas()) {
    heed::cap_instruction_set(isa);
    expect(heed::instruction_set() == isa, "another instruction set would run");
    const auto result = heed_test::run(call, {.weights = true, .output = c.output, .ones = true});
    heed_test::Gradients<T> gradients;
    if (backward) gradients = heed_test::run_backward(call, result, g, {.layout = c.output});
    if (first.o.present()) {
      const auto same = heed_test::same_bits(result, first);
      expect(same, std::string(heed::name_of(isa)) + " against scalar: " + same.message() + ", " +
                       heed_test::describe(call));
      const auto same_gradients = heed_test::same_bits(gradients, first_gradients);
      expect(same_gradients, std::string(heed::name_of(isa)) + " against scalar: " +
                                 same_gradients.message() + ", " + heed_test::describe(call));
    } else {
      first = result;
      first_gradients = gradients;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool aborts = [] {
    GTEST_FLAG_SET(break_on_failure, true);  // a failed EXPECT of the tests' support is a finding
    return true;
  }();
  heed_fuzz::Bytes bytes(data, size);
  const bool wide = bytes.chance(64), backward = bytes.chance(128);
  const heed_test::Case c = heed_fuzz::decode_case(bytes);
  // A NaN may have all bits set, which that check would take for memory never written.
  const bool gradients = aborts && backward && heed_fuzz::gradients_are_bounded(c);
  wide ? compare<double>(c, gradients) : compare<float>(c, gradients);
  return 0;
}

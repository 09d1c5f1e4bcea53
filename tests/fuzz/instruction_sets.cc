// F7: forward and backward pass of a drawn problem, in any type: the same bits on every instruction
// set.
#include "problem.h"

namespace {

template <typename T>
void compare(const heed_test::Case& c, bool backward, heed::DType dtype) {
  using heed_fuzz::expect;
  const heed_test::Call<T> call = heed_fuzz::in_type(heed_test::make<T>(c, dtype), dtype);
  const auto g = heed_fuzz::in_type(heed_test::draw_d_output(call, c.seed ^ 77, c.output), dtype);
  heed_test::Result<T> first;
  heed_test::Gradients<T> first_gradients;
  for (const heed::Isa isa : heed_test::isas_of(dtype)) {
    heed::cap_instruction_set(isa);
    expect(heed::instruction_set() == isa, "another instruction set would run");
    const auto result = heed_fuzz::run_in_type(
        dtype, call, {.weights = true, .output = c.output, .ones = true},
        {.executor = nullptr, .reproducible = isa == heed_test::kPaired});  // else other bits
    heed_test::Gradients<T> gradients;
    if (backward) gradients = heed_fuzz::run_backward_in_type(dtype, call, result, g, c.output);
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
  heed_fuzz::with_type(bytes, [&]<typename T>(T, heed::DType dtype) {
    const bool backward = bytes.chance(128);
    const heed_test::Case c = heed_fuzz::decode_case(bytes);
    heed_fuzz::tell_of(dtype, {static_cast<std::size_t>(c.masking),
                               static_cast<std::size_t>(c.values), backward ? 1U : 0U});
    // A NaN may have all bits set, which that check would take for memory never written.
    compare<T>(c, aborts && backward && heed_fuzz::gradients_are_bounded(c), dtype);
  });
  return 0;
}

// Every kernel on every instruction set of this machine, against plain loops with std::fma.
//
// Chains are compared bit for bit: they are the contract. Elementary functions are compared with
// libm's double ones, in units of the last place. The list of kernels makes the list of tests.

#include <string>

#include "heed/runtime.h"
#include "kernels_support.h"

namespace heed::kernels {
namespace {

/// All kernels of all instruction sets that this machine runs.
template <typename Test>
void on_every_target(const Test& test) {
  int ran = 0;
  for (const InstructionSet& set : instruction_sets()) {
    if (!set.compiled || !set.supported) continue;
    const Kernels<float>* table = kernels_for<float>(static_cast<int>(set.isa));
    ASSERT_NE(table, nullptr) << name_of(set.isa);
    if (table_of(static_cast<int>(set.isa)) != static_cast<int>(set.isa)) continue;
    ASSERT_EQ(table->target, static_cast<int>(set.isa)) << "another one ran";
    for (int vectors = 1; vectors <= table->highest_vectors; ++vectors) {
      SCOPED_TRACE(std::string(name_of(set.isa)) + ", " + std::to_string(vectors) + " vectors");
      Bench bench(*table, vectors);
      test(bench);
      ++ran;
    }
  }
  EXPECT_GT(ran, 0);
}

#define HEED_TEST(name, result, parameters) \
  TEST(kernels, name) { on_every_target(&test_##name); }
#define Real float
HEED_KERNELS(HEED_TEST)
#undef Real

TEST(targets, tables_of_the_two_types_are_two) {
  for (const InstructionSet& set : instruction_sets()) {
    if (!set.compiled || !set.supported) continue;
    const auto* narrow = kernels_for<float>(static_cast<int>(set.isa));
    const auto* wide = kernels_for<double>(static_cast<int>(set.isa));
    ASSERT_NE(static_cast<const void*>(narrow), static_cast<const void*>(wide));
    EXPECT_TRUE(narrow->lanes == 1 || narrow->lanes == 2 * wide->lanes) << name_of(set.isa);
  }
}

TEST(targets, scalar_is_always_there) {
  EXPECT_NE(kernels_for<float>(kScalar), nullptr);
  EXPECT_NE(kernels_for<double>(kScalar), nullptr);
  EXPECT_TRUE(targets().supported & 1u << kScalar);
}

}  // namespace
}  // namespace heed::kernels

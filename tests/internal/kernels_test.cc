// Every kernel on every instruction set of this machine, against plain loops with std::fma.
//
// Chains are compared bit for bit: they are the contract. Elementary functions are compared with
// libm's double ones, in units of the last place. The list of kernels makes the list of tests.

#include <fstream>
#include <string>

#include "heed/runtime.h"
#include "kernels/bf16.h"
#include "kernels/conversions.h"
#include "kernels/target_list.h"
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

// Whether or not this machine runs it.
TEST(targets, what_was_compiled_has_tables_and_nothing_else_does) {
  for (const InstructionSet& set : instruction_sets()) {
    SCOPED_TRACE(name_of(set.isa));
    const int target = static_cast<int>(set.isa);
    EXPECT_EQ(kernels_for<float>(target) != nullptr, set.compiled);
    EXPECT_EQ(kernels_for<double>(target) != nullptr, set.compiled);
    EXPECT_EQ(conversions_for(target) != nullptr, set.compiled);
    const bool pairs = set.compiled && table_of(target) != target;
    EXPECT_EQ(bf16_kernels_for<float>(target) != nullptr, pairs);
    EXPECT_EQ(bf16_kernels_for<double>(target), nullptr);
  }
  for (const int target : {-1, 1000}) {
    EXPECT_EQ(kernels_for<float>(target), nullptr);
    EXPECT_EQ(kernels_for<double>(target), nullptr);
    EXPECT_EQ(conversions_for(target), nullptr);
    EXPECT_EQ(bf16_kernels_for<float>(target), nullptr);
  }
  EXPECT_NE(kernels_for<float>(kScalar), nullptr);
  EXPECT_TRUE(targets().supported & 1u << kScalar);
}

// CPUs that this machine is not, and systems that keep less than the CPU has.
struct Case {
  const char* name;
  Cpu cpu;
  std::uint32_t supported;
};

#if defined(__x86_64__)
constexpr Case kCpus[] = {
    {"core2duo", {0, false}, 1u << kScalar},
    {"Haswell", {HWY_AVX2, false}, 1u << kScalar | 1u << kAvx2},
    {"Skylake server", {HWY_AVX2 | HWY_AVX3, false}, 1u << kScalar | 1u << kAvx2 | 1u << kAvx512},
    {"Zen 4",
     {HWY_AVX2 | HWY_AVX3, true},
     1u << kScalar | 1u << kAvx2 | 1u << kAvx512 | 1u << kAvx512Bf16},
    {"Sapphire Rapids",
     {HWY_AVX2 | HWY_AVX3, true, true},
     1u << kScalar | 1u << kAvx2 | 1u << kAvx512 | 1u << kAvx512Bf16},
    {"Zen 4, the system keeps no zmm", {HWY_AVX2, true}, 1u << kScalar | 1u << kAvx2},
    {"Zen 4, the system keeps no ymm", {0, true}, 1u << kScalar},
    {"a target that is not compiled", {HWY_AVX3_DL, false}, 1u << kScalar},
};
#elif HEED_NEON_BF16
constexpr Case kCpus[] = {
    {"without AES", {0, false}, 1u << kScalar},
    {"Cortex-A72", {HWY_NEON, false}, 1u << kScalar | 1u << kNeon},
    {"Neoverse V1", {HWY_NEON, true}, 1u << kScalar | 1u << kNeon | 1u << kNeonBf16},
    {"dot products without AES", {0, true}, 1u << kScalar},
};
#endif

#if defined(__x86_64__) || HEED_NEON_BF16
TEST(targets, each_cpu_is_given_what_it_and_its_system_have) {
  for (const Case& each : kCpus) {
    const Targets found = targets(each.cpu);
    EXPECT_EQ(found.supported, each.supported) << each.name;
    constexpr std::uint32_t kDots = 1u << kAvx512Bf16 | 1u << kNeonBf16;
    EXPECT_EQ(found.slow, each.cpu.slow_dots ? each.supported & kDots : 0) << each.name;
  }
}
#endif

#if defined(__x86_64__)
TEST(targets, dot_products_of_bfloat16_are_slow_on_cpus_of_intel) {
  std::ifstream file("/proc/cpuinfo");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(this_cpu().slow_dots, text.find("GenuineIntel") != std::string::npos);
}

// Linux takes a flag away whose registers it does not keep.
TEST(targets, dot_products_of_bfloat16_are_where_the_system_lists_them) {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (line.rfind("flags", 0) != 0 && std::getline(file, line)) continue;
  ASSERT_TRUE(file.good()) << "no line of flags in /proc/cpuinfo";
  EXPECT_EQ((targets().supported >> kAvx512Bf16 & 1u) == 1,
            (line + ' ').find(" avx512_bf16 ") != std::string::npos);
}
#endif

}  // namespace
}  // namespace heed::kernels

// The choice of an instruction set: words, caps, CPUs of all kinds.
#include "runtime/isa.h"

#include <gtest/gtest.h>

#include <string>

#include "heed/error.h"
#include "support.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace heed::runtime {
namespace {

constexpr Isa kAll[] = {Isa::scalar, Isa::neon,        Isa::avx2,
                        Isa::avx512, Isa::avx512_bf16, Isa::neon_bf16};
constexpr Isa kHighest = Isa::neon_bf16;

constexpr std::uint32_t bit(Isa isa) { return 1U << static_cast<unsigned>(isa); }

constexpr std::uint32_t kEverything = 0x3F;

TEST(isa, words_and_names_are_the_same) {
  for (const Isa isa : kAll) EXPECT_EQ(parse_isa(name_of(isa)), isa);
  EXPECT_EQ(name_of(Isa::avx512_bf16), "avx512_bf16");
}

TEST(isa, unknown_word_is_an_error_that_lists_the_words) {
  for (const char* word : {"AVX2", "sse", "avx", "avx2 ", "auto", "avx512\n"}) {
    const std::string message = testing::message_of([&] { (void)parse_isa(word); });
    EXPECT_NE(message.find("instruction_set: HEED_MAX_ISA is '"), std::string::npos) << message;
    EXPECT_NE(message.find("'; it must be one of scalar, neon, avx2, avx512, "
                           "avx512_bf16, neon_bf16"),
              std::string::npos)
        << message;
  }
}

TEST(isa, sets_of_this_architecture_ascend_and_begin_with_scalar) {
  const auto sets = heed::instruction_sets();
  ASSERT_FALSE(sets.empty());
  EXPECT_EQ(sets.front().isa, Isa::scalar);
  EXPECT_TRUE(sets.front().compiled && sets.front().supported);
  for (std::size_t i = 1; i < sets.size(); ++i) EXPECT_LT(sets[i - 1].isa, sets[i].isa);
}

TEST(isa, compiled_and_supported_are_told_apart) {
  const auto sets = instruction_sets({.compiled = bit(Isa::avx2), .supported = bit(Isa::avx512)});
  for (const InstructionSet& set : sets) {
    EXPECT_EQ(set.compiled, set.isa == Isa::scalar || set.isa == Isa::avx2);
    EXPECT_EQ(set.supported, set.isa == Isa::scalar || set.isa == Isa::avx512);
  }
}

TEST(isa, only_what_is_compiled_and_supported_is_chosen) {
  EXPECT_EQ(choose_isa({.compiled = 0, .supported = kEverything}, kHighest), Isa::scalar);
  EXPECT_EQ(choose_isa({.compiled = kEverything, .supported = 0}, kHighest), Isa::scalar);
}

#if defined(__x86_64__)
TEST(isa, best_below_the_cap_is_chosen) {
  const kernels::Targets all{.compiled = kEverything, .supported = kEverything};
  EXPECT_EQ(choose_isa(all, Isa::avx512_bf16), Isa::avx512_bf16);
  EXPECT_EQ(choose_isa(all, kHighest), Isa::avx512_bf16);
  EXPECT_EQ(choose_isa(all, Isa::avx512), Isa::avx512);
  EXPECT_EQ(choose_isa(all, Isa::avx2), Isa::avx2);
  EXPECT_EQ(choose_isa(all, Isa::scalar), Isa::scalar);
}

TEST(isa, slow_one_is_chosen_where_the_cap_names_it_and_nowhere_else) {
  const kernels::Targets intel{
      .compiled = kEverything, .supported = kEverything, .slow = bit(Isa::avx512_bf16)};
  EXPECT_EQ(choose_isa(intel, kHighest), Isa::avx512);
  EXPECT_EQ(choose_isa(intel, Isa::avx512_bf16), Isa::avx512_bf16);
  EXPECT_EQ(choose_isa(intel, Isa::avx2), Isa::avx2);
  for (const InstructionSet& set : instruction_sets(intel)) {
    EXPECT_EQ(set.slow, set.isa == Isa::avx512_bf16) << name_of(set.isa);
  }
}

TEST(isa, cap_above_the_cpu_is_the_cpu) {
  const kernels::Targets haswell{.compiled = kEverything,
                                 .supported = bit(Isa::scalar) | bit(Isa::avx2)};
  EXPECT_EQ(choose_isa(haswell, Isa::avx512_bf16), Isa::avx2);
}

TEST(isa, gap_below_the_cap_is_stepped_over) {
  const kernels::Targets gap{.compiled = kEverything & ~bit(Isa::avx512), .supported = kEverything};
  EXPECT_EQ(choose_isa(gap, Isa::avx512), Isa::avx2);
}

TEST(isa, neon_as_a_cap_leaves_scalar_here) {
  EXPECT_EQ(choose_isa({.compiled = kEverything, .supported = kEverything}, Isa::neon),
            Isa::scalar);
}
#elif defined(__aarch64__)
TEST(isa, avx2_as_a_cap_leaves_neon_here) {
  EXPECT_EQ(choose_isa({.compiled = kEverything, .supported = kEverything}, Isa::avx2), Isa::neon);
  EXPECT_EQ(choose_isa({.compiled = kEverything, .supported = kEverything}, kHighest),
            Isa::neon_bf16);
  EXPECT_EQ(choose_isa({.compiled = kEverything, .supported = kEverything}, Isa::scalar),
            Isa::scalar);
}

TEST(isa, neon_runs_where_the_cpu_has_aes) {
  if ((getauxval(AT_HWCAP) & HWCAP_AES) == 0) GTEST_SKIP() << "Highway's NEON asks for AES";
  cap_instruction_set(Isa::neon);
  EXPECT_EQ(instruction_set(), Isa::neon);
}
#endif

TEST(isa, cap_of_the_process_holds_until_the_next_one) {
  cap_instruction_set(Isa::scalar);
  EXPECT_EQ(instruction_set(), Isa::scalar);
  cap_instruction_set(kHighest);
  EXPECT_EQ(instruction_set(), choose_isa(kernels::targets(), kHighest));
}

TEST(isa, cap_that_is_none_is_refused) {
  cap_instruction_set(Isa::scalar);
  try {
    cap_instruction_set(static_cast<Isa>(99));
    ADD_FAILURE();
  } catch (const heed::Error& error) {
    EXPECT_STREQ(error.what(), "cap_instruction_set: highest is 99, which is no Isa");
  }
  EXPECT_EQ(instruction_set(), Isa::scalar);
  cap_instruction_set(kHighest);
}

TEST(isa, chosen_one_is_compiled_and_supported) {
  for (const Isa cap : kAll) {
    cap_instruction_set(cap);
    for (const InstructionSet& set : heed::instruction_sets()) {
      EXPECT_TRUE(set.isa != instruction_set() || (set.compiled && set.supported));
    }
  }
}

}  // namespace
}  // namespace heed::runtime

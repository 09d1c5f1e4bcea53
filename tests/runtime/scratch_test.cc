// Scratch leases: whose memory it is, and for how long.
#include "runtime/scratch.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "heed/attention.h"
#include "support.h"

namespace heed::runtime {
namespace {

constexpr std::size_t kMega = std::size_t{1} << 20;

/// A thread of its own begins and ends with nothing kept.
template <class Function>
void on_a_new_thread(Function&& function) {
  std::thread(function).join();
}

bool can_be_written(const ScratchLease& lease) {
  std::memset(lease.data(), 0x5A, lease.size());
  for (std::size_t i = 0; i < lease.size(); ++i) {
    if (lease.data()[i] != std::byte{0x5A}) return false;
  }
  return true;
}

TEST(scratch, every_size_is_aligned_and_writable) {
  on_a_new_thread([] {
    for (const std::size_t bytes :
         {0U, 1U, 63U, 64U, 4095U, 4096U, 4097U, 65536U, 1000000U, 5000U, 0U}) {
      const ScratchLease lease(bytes);
      EXPECT_EQ(lease.size(), bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(lease.data()) % kScratchAlignment, 0U);
      EXPECT_TRUE(can_be_written(lease));
    }
  });
}

TEST(scratch, same_or_smaller_size_gets_the_same_memory_again) {
  on_a_new_thread([] {
    const std::byte* first = nullptr;
    for (const std::size_t bytes : {kMega, kMega, kMega / 2, std::size_t{1}, kMega}) {
      const ScratchLease lease(bytes);
      if (first == nullptr) first = lease.data();
      EXPECT_EQ(lease.data(), first);
      EXPECT_EQ(scratch_kept(), 0U);
    }
    EXPECT_EQ(scratch_kept(), kMega);
  });
}

TEST(scratch, growing_sizes_keep_only_the_last) {
  on_a_new_thread([] {
    for (std::size_t bytes = 1; bytes <= kMega; bytes *= 2) const ScratchLease lease(bytes);
    EXPECT_EQ(scratch_kept(), kMega);
  });
}

TEST(scratch, nested_leases_have_memory_of_their_own) {
  on_a_new_thread([] {
    for (int round = 0; round < 3; ++round) {
      const ScratchLease outer(10000);
      std::memset(outer.data(), 1, outer.size());
      {
        const ScratchLease middle(20000);
        const ScratchLease inner(5000);
        EXPECT_NE(outer.data(), middle.data());
        EXPECT_NE(outer.data(), inner.data());
        EXPECT_NE(middle.data(), inner.data());
        EXPECT_TRUE(can_be_written(middle));
        EXPECT_TRUE(can_be_written(inner));
      }
      for (std::size_t i = 0; i < outer.size(); ++i) ASSERT_EQ(outer.data()[i], std::byte{1});
    }
  });
}

TEST(scratch, nested_leases_are_kept_side_by_side) {
  on_a_new_thread([] {
    const std::byte* outer_data = nullptr;
    const std::byte* inner_data = nullptr;
    for (int round = 0; round < 3; ++round) {
      const ScratchLease outer(10000);
      const ScratchLease inner(50000);
      if (round > 0) {
        EXPECT_EQ(outer.data(), outer_data);
        EXPECT_EQ(inner.data(), inner_data);
      }
      outer_data = outer.data();
      inner_data = inner.data();
    }
  });
}

TEST(scratch, no_more_than_the_cap_is_kept) {
  on_a_new_thread([] {
    { const ScratchLease lease(kScratchKept + 1); }
    EXPECT_EQ(scratch_kept(), 0U);
    { const ScratchLease lease(kScratchKept); }
    EXPECT_EQ(scratch_kept(), kScratchKept);
    scratch_release();
    {
      const ScratchLease outer(kScratchKept / 2);
      const ScratchLease inner(kScratchKept / 2 + 1);
    }
    EXPECT_LE(scratch_kept(), kScratchKept);
    EXPECT_GT(scratch_kept(), 0U);
  });
}

TEST(scratch, release_frees_what_is_kept_and_nothing_in_use) {
  on_a_new_thread([] {
    const ScratchLease used(10000);
    { const ScratchLease kept(10000); }
    EXPECT_GT(scratch_kept(), 0U);
    scratch_release();
    EXPECT_EQ(scratch_kept(), 0U);
    EXPECT_TRUE(can_be_written(used));
  });
}

TEST(scratch, threads_keep_their_own) {
  { const ScratchLease lease(kMega); }
  on_a_new_thread([] { EXPECT_EQ(scratch_kept(), 0U); });
}

TEST(scratch, a_call_takes_what_explain_tells) {
  const std::int64_t rows = 40;
  const std::vector<std::byte> zeros(rows * 256 * 8);
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    for (const auto& sizes : {std::pair{32, 256}, std::pair{256, 32}}) {
      on_a_new_thread([&] {
        const auto [size, value_size] = sizes;
        std::vector<std::byte> output(rows * 256 * 8);
        const auto of = [&](std::int64_t columns) {
          return view(static_cast<const void*>(zeros.data()), dtype, {rows, columns});
        };
        const std::int64_t told = explain(of(size), of(size), of(value_size)).scratch_bytes;
        attention_forward(of(size), of(size), of(value_size),
                          {.output = view(output.data(), dtype, {rows, value_size})});
        const auto kept = static_cast<std::int64_t>(scratch_kept());
        EXPECT_GE(kept, told) << name_of(dtype) << " " << size;
        EXPECT_LT(kept, told + std::int64_t{2 * kScratchAlignment}) << "in whole pages";
      });
    }
  }
}

struct LeasesWhenItsThreadEnds {
  ~LeasesWhenItsThreadEnds() { EXPECT_TRUE(can_be_written(ScratchLease(kMega))); }
};

TEST(scratch, works_and_does_not_leak_while_a_thread_ends) {  // LeakSanitizer looks on
  on_a_new_thread([] {
    static thread_local LeasesWhenItsThreadEnds last;
    (void)&last;                          // constructed before, hence destroyed after,
    { const ScratchLease lease(kMega); }  // what frees the thread's memory
  });
}

TEST(scratch, impossible_size_is_an_error_that_names_the_bytes) {
  const std::size_t huge = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(testing::message_of([&] { const ScratchLease lease(huge); }),
            "scratch memory: 18446744073709551615 bytes could not be allocated");
  try {
    const ScratchLease lease(huge);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::memory);
  }
}

}  // namespace
}  // namespace heed::runtime

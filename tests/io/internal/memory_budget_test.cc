// The memory that the system and control groups leave to this process.
// Method: a folder with a /proc and a /sys of its own, as kernels, containers and odd systems have.
#include "io/memory_budget.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace heed::io {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kAvailable = std::int64_t{1'000} * 1024;

class memory_budget : public ::testing::Test {
 protected:
  memory_budget() : root_(::testing::TempDir() + "heed_memory_" + std::to_string(getpid())) {
    std::filesystem::remove_all(root_);
    write("/proc/meminfo", "MemTotal:  2000 kB\nMemFree:  300 kB\nMemAvailable:    1000 kB\n");
  }
  ~memory_budget() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void v2(const std::string& group) const {
    write("/proc/self/cgroup", "0::" + group + "\n");
    write("/sys/fs/cgroup" + group + "/memory.max", "max\n");
  }
  void v1(const std::string& group) const {
    write("/proc/self/cgroup", "5:cpu:/other\n4:memory:" + group + "\n1:name=systemd:/x\n0::/y\n");
    write("/sys/fs/cgroup/memory" + group + "/memory.limit_in_bytes", "9223372036854771712\n");
  }
  [[nodiscard]] std::int64_t free() const { return free_memory(root_); }

  std::string root_;
};

TEST_F(memory_budget, without_groups_is_what_the_system_has_available) {
  EXPECT_EQ(free(), kAvailable);
}

TEST_F(memory_budget, is_unlimited_where_nothing_is_told) {
  std::filesystem::remove_all(root_);
  EXPECT_EQ(free(), kMost);
}

TEST_F(memory_budget, v2_group_limits) {
  v2("/a.slice");
  write("/sys/fs/cgroup/a.slice/memory.max", "5000\n");
  EXPECT_EQ(free(), 5000);
  write("/sys/fs/cgroup/a.slice/memory.max", "0\n");
  EXPECT_EQ(free(), 0);
}

TEST_F(memory_budget, v2_max_is_no_limit) {
  v2("/a.slice");
  EXPECT_EQ(free(), kAvailable);
}

TEST_F(memory_budget, v2_smallest_on_the_way_up_counts) {
  v2("/a/b/c");
  write("/sys/fs/cgroup/a/b/c/memory.max", "8000");
  EXPECT_EQ(free(), 8000);
  write("/sys/fs/cgroup/a/memory.max", "3000");
  EXPECT_EQ(free(), 3000);
  write("/sys/fs/cgroup/memory.max", "2000");
  EXPECT_EQ(free(), 2000);
  write("/sys/fs/cgroup/a/b/memory.max", "1000");
  EXPECT_EQ(free(), 1000);
  write("/sys/fs/cgroup/a/b/c/memory.max", "500");
  EXPECT_EQ(free(), 500);
}

TEST_F(memory_budget, a_limit_above_what_the_system_has_changes_nothing) {
  v2("/a");
  write("/sys/fs/cgroup/a/memory.max", std::to_string(kAvailable + 1));
  EXPECT_EQ(free(), kAvailable);
}

TEST_F(memory_budget, neighbours_and_groups_below_do_not_count) {
  v2("/a/b");
  write("/sys/fs/cgroup/a/c/memory.max", "1000");
  write("/sys/fs/cgroup/a/b/d/memory.max", "1000");
  EXPECT_EQ(free(), kAvailable);
}

TEST_F(memory_budget, v2_usage_less_both_lists_of_file_cache_is_taken) {
  v2("/a/b");
  write("/sys/fs/cgroup/a/b/memory.max", "9000");
  write("/sys/fs/cgroup/a/b/memory.current", "7000");
  write("/sys/fs/cgroup/a/b/memory.stat",
        "anon 5\nfile 6\nworkingset_refault_file 7\ninactive_file 4000\nactive_file 1000\n");
  EXPECT_EQ(free(), 9000 - (7000 - 5000));
  write("/sys/fs/cgroup/a/memory.max", "9500");  // larger, and fuller
  write("/sys/fs/cgroup/a/memory.current", "9400");
  write("/sys/fs/cgroup/a/memory.stat", "inactive_file 0\nactive_file 30\n");
  EXPECT_EQ(free(), 9500 - (9400 - 30));
}

TEST_F(memory_budget, v1_group_limits) {
  v1("/a");
  EXPECT_EQ(free(), kAvailable);
  write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "5000\n");
  EXPECT_EQ(free(), 5000);
}

TEST_F(memory_budget, v1_smallest_on_the_way_up_counts) {
  v1("/a/b");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "6000\n");
  EXPECT_EQ(free(), 6000);
  write("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "5000\n");
  EXPECT_EQ(free(), 5000);
  write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4000\n");
  EXPECT_EQ(free(), 4000);
}

TEST_F(memory_budget, v1_counts_the_cache_of_the_groups_below_too) {
  v1("/a");
  write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9000\n");
  write("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "8000\n");
  write("/sys/fs/cgroup/memory/a/memory.stat",
        "inactive_file 1\nactive_file 2\ntotal_inactive_file 3000\ntotal_active_file 400\n");
  EXPECT_EQ(free(), 9000 - (8000 - 3400));
}

TEST_F(memory_budget, v1_controllers_may_be_mounted_together) {
  v1("/a");
  write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "5000\n");
  write("/proc/self/cgroup", "4:hugetlb,memory,misc:/a\n");
  EXPECT_EQ(free(), 5000);
  write("/proc/self/cgroup", "4:hugetlb,memory2:/a\n");
  EXPECT_EQ(free(), kAvailable);
}

TEST_F(memory_budget, hybrid_systems_take_the_smaller_one) {
  v1("/a");
  write("/proc/self/cgroup", "4:memory:/a\n0::/b\n");
  write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "5000\n");
  write("/sys/fs/cgroup/b/memory.max", "6000\n");
  EXPECT_EQ(free(), 5000);
  write("/sys/fs/cgroup/b/memory.max", "4000\n");
  EXPECT_EQ(free(), 4000);
}

TEST_F(memory_budget, v2_namespace_of_a_container_is_its_mount_point) {
  v2("/");
  write("/sys/fs/cgroup/memory.max", "2000\n");
  EXPECT_EQ(free(), 2000);
}

TEST_F(memory_budget, group_outside_the_namespace_falls_back_to_the_mount_point) {
  v2("/");
  write("/proc/self/cgroup", "0::/../sibling\n");
  write("/sys/fs/cgroup/memory.max", "2000\n");
  write("/sys/fs/sibling/memory.max", "1000\n");
  EXPECT_EQ(free(), 2000);
  write("/proc/self/cgroup", "0::/..\n");
  write("/sys/fs/memory.max", "1000\n");
  EXPECT_EQ(free(), 2000);
}

TEST_F(memory_budget, v1_container_sees_its_group_at_the_mount_point) {
  v1("/");
  write("/proc/self/cgroup", "4:memory:/docker/7f\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "6000\n");
  EXPECT_EQ(free(), 6000);
  // What a container in that container made; the process is not in it.
  write("/sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "1000\n");
  EXPECT_EQ(free(), 6000);
}

TEST_F(memory_budget, group_names_may_hold_blanks_and_colons) {
  v2("/a b:c");
  write("/sys/fs/cgroup/a b:c/memory.max", "3000\n");
  EXPECT_EQ(free(), 3000);
}

TEST_F(memory_budget, nonsense_is_no_limit) {
  v2("/a");
  for (const char* text : {"", "\n", "-5", "x", "max 100", "12x", "0x10", "1e3", "nan", "+7",
                           "99999999999999999999"}) {
    write("/sys/fs/cgroup/a/memory.max", text);
    EXPECT_EQ(free(), kAvailable) << text;
  }
  std::filesystem::remove(root_ + "/sys/fs/cgroup/a/memory.max");
  EXPECT_EQ(free(), kAvailable);
  write("/sys/fs/cgroup/memory.max", "2000\n");
  for (const char* text : {"", "\n", "nonsense\n0:\n:\n", "0::relative\n", "0::\n", "0::/gone\n",
                           "0::/a (deleted)\n"}) {
    write("/proc/self/cgroup", text);
    EXPECT_EQ(free(), 2000) << text;  // the mount point
  }
  std::filesystem::remove(root_ + "/sys/fs/cgroup/memory.max");
  for (const char* text : {"", "MemAvailable:\n", "MemAvailable: x kB\n", "MemAvailable: -1 kB\n",
                           "MemAvailable: 9223372036854775807 kB\n", "MemFree: 7 kB\n"}) {
    write("/proc/meminfo", text);
    EXPECT_EQ(free(), kMost) << text;
  }
}

TEST_F(memory_budget, usage_that_is_not_understood_is_nothing_taken) {
  v2("/a");
  write("/sys/fs/cgroup/a/memory.max", "9000\n");
  const auto told = [&](const char* usage, const char* stat) {
    write("/sys/fs/cgroup/a/memory.current", usage);
    write("/sys/fs/cgroup/a/memory.stat", stat);
    return free();
  };
  EXPECT_EQ(told("7000", "inactive_file 100\nactive_file 20\n"), 9000 - 6880);
  EXPECT_EQ(told("x", "inactive_file 100\nactive_file 20\n"), 9000);
  EXPECT_EQ(told("7000", ""), 9000);
  EXPECT_EQ(told("7000", "inactive_file 100\n"), 9000);
  EXPECT_EQ(told("7000", "active_file 100\n"), 9000);
  EXPECT_EQ(told("7000", "inactive_file -100\nactive_file 20\n"), 9000);
}

TEST_F(memory_budget, counts_that_contradict_each_other_stay_between_nothing_and_the_limit) {
  v2("/a");
  write("/sys/fs/cgroup/a/memory.max", "9000\n");
  write("/sys/fs/cgroup/a/memory.stat", "inactive_file 100\nactive_file 9223372036854775807\n");
  write("/sys/fs/cgroup/a/memory.current", "50\n");
  EXPECT_EQ(free(), 9000);
  write("/sys/fs/cgroup/a/memory.stat", "inactive_file 0\nactive_file 0\n");
  write("/sys/fs/cgroup/a/memory.current", "9223372036854775807\n");
  EXPECT_EQ(free(), 0);
}

TEST_F(memory_budget, is_80_percent_of_what_is_free_and_at_least_one_byte) {
  EXPECT_EQ(budget_of(5000), 4000);
  EXPECT_EQ(budget_of(kMost), kMost / 5 * 4);
  EXPECT_EQ(budget_of(4), 1);
  EXPECT_EQ(budget_of(0), 1);
}

}  // namespace
}  // namespace heed::io

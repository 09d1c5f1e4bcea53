// The CPU quota of control groups.
// Method: a folder with a /proc and a /sys of its own, as kernels, containers and odd systems have.
#include "runtime/cgroup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace heed::runtime {
namespace {

const std::string kV2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
const std::string kV1 =
    "33 24 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "34 24 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";

class cgroup : public ::testing::Test {
 protected:
  cgroup() : root_(::testing::TempDir() + "heed_cgroup_" + std::to_string(getpid())) {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  ~cgroup() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void v2(const std::string& group, const std::string& mounts = kV2) const {
    write("/proc/self/cgroup", "0::" + group + "\n");
    write("/proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/root rw\n" + mounts);
  }
  void v1(const std::string& group, const std::string& mounts = kV1) const {
    write("/proc/self/cgroup", "5:cpuset:/other\n4:cpu,cpuacct:" + group + "\n1:name=systemd:/x\n");
    write("/proc/self/mountinfo", mounts);
  }
  [[nodiscard]] std::optional<double> quota() const { return cgroup_cpu_quota(root_); }

  std::string root_;
};

TEST_F(cgroup, no_proc_is_no_quota) { EXPECT_EQ(quota(), std::nullopt); }

TEST_F(cgroup, v2_group_has_a_quota) {
  v2("/a.slice");
  write("/sys/fs/cgroup/a.slice/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota(), 1.5);
}

TEST_F(cgroup, v2_max_is_no_quota) {
  v2("/a.slice");
  write("/sys/fs/cgroup/a.slice/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), std::nullopt);
}

TEST_F(cgroup, v2_smallest_on_the_way_up_wins) {
  v2("/a/b/c");
  write("/sys/fs/cgroup/a/b/c/cpu.max", "800000 100000");
  write("/sys/fs/cgroup/a/cpu.max", "300000 100000");
  EXPECT_EQ(quota(), 3.0);
  write("/sys/fs/cgroup/cpu.max", "250000 100000");
  EXPECT_EQ(quota(), 2.5);
  write("/sys/fs/cgroup/a/b/cpu.max", "50000 100000");
  EXPECT_EQ(quota(), 0.5);
}

TEST_F(cgroup, v2_neighbour_does_not_count) {
  v2("/a/b");
  write("/sys/fs/cgroup/a/c/cpu.max", "100000 100000");
  write("/sys/fs/cgroup/a/b/d/cpu.max", "100000 100000");
  EXPECT_EQ(quota(), std::nullopt);
}

TEST_F(cgroup, v2_namespace_of_a_container_is_its_mount_point) {
  v2("/");
  write("/sys/fs/cgroup/cpu.max", "200000 100000");
  EXPECT_EQ(quota(), 2.0);
}

TEST_F(cgroup, v2_group_outside_the_namespace_falls_back_to_the_mount_point) {
  v2("/../sibling");
  write("/sys/fs/cgroup/cpu.max", "200000 100000");
  write("/sys/fs/sibling/cpu.max", "100000 100000");
  EXPECT_EQ(quota(), 2.0);
}

TEST_F(cgroup, v1_group_has_a_quota) {
  v1("/a");
  write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "350000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 3.5);
}

TEST_F(cgroup, v1_minus_one_is_no_quota) {
  v1("/a");
  write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), std::nullopt);
}

TEST_F(cgroup, v1_smallest_on_the_way_up_wins) {
  v1("/a/b");
  write("/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "400000");
  write("/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us", "100000");
  write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "50000");
  write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "50000");
  EXPECT_EQ(quota(), 1.0);
}

TEST_F(cgroup, v1_container_sees_its_group_at_the_mount_point) {
  v1("/docker/7f", "34 24 0:29 /docker/7f /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "600000");
  write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(quota(), 6.0);
}

TEST_F(cgroup, mounted_group_is_matched_by_whole_names) {
  v2("/docker/7fa", "30 23 0:26 /docker/7f /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  write("/sys/fs/cgroup/cpu.max", "200000 100000");
  write("/sys/fs/cgroupa/cpu.max", "100000 100000");
  EXPECT_EQ(quota(), 2.0);
}

TEST_F(cgroup, hybrid_systems_take_the_smaller_one) {
  write("/proc/self/cgroup", "4:cpu,cpuacct:/a\n0::/a\n");
  write("/proc/self/mountinfo",
        kV1 + "30 23 0:26 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n");
  write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "400000");
  write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000");
  EXPECT_EQ(quota(), 4.0);
  write("/sys/fs/cgroup/unified/a/cpu.max", "300000 100000");
  EXPECT_EQ(quota(), 3.0);
}

TEST_F(cgroup, mount_points_may_hold_blanks) {
  v2("/a", "30 23 0:26 / /my\\040groups rw - cgroup2 cgroup2 rw\n");
  write("/my groups/a/cpu.max", "300000 100000");
  EXPECT_EQ(quota(), 3.0);
}

TEST_F(cgroup, nonsense_is_no_quota) {
  v2("/a");
  for (const char* text : {"", "\n", "100000", "0 100000", "-5 100000", "100000 0", "x y", "nan 1",
                           "100000 100000 100000", "inf 100000", "1e9999 1"}) {
    write("/sys/fs/cgroup/a/cpu.max", text);
    EXPECT_EQ(quota(), std::nullopt) << text;
  }
  write("/proc/self/cgroup", "nonsense\n0:\n::\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("/proc/self/cgroup", "0::relative\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("/proc/self/mountinfo", "- cgroup2\n1 2 - cgroup2 x\n\n1 2 3 4 5 6 -\n");
  EXPECT_EQ(quota(), std::nullopt);
}

}  // namespace
}  // namespace heed::runtime

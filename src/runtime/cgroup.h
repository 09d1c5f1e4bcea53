// The share of CPU time that control groups grant this process.
#pragma once

#include <optional>
#include <string>

namespace heed::runtime {

/// The smallest quota, in CPUs, of this process's control groups and all above them, in cgroup v1
/// and v2; nothing if none is set. What cannot be read or understood counts as not set.
/// Every path is read below `root`, so that tests can bring their own /proc and /sys.
[[nodiscard]] std::optional<double> cgroup_cpu_quota(const std::string& root = "");

}  // namespace heed::runtime

// What /proc/meminfo and the limits of control groups say about memory.
//
//   /proc/meminfo          MemAvailable:   24036552 kB
//   /proc/self/cgroup      0::/system.slice/x               v2: the group
//                          4:memory:/docker/7f              v1: the group, per controller
//   /sys/fs/cgroup/<group>/memory.max                       v2: bytes or "max"
//   /sys/fs/cgroup/memory/<group>/memory.limit_in_bytes     v1: no limit is 2^63 less a page
#include "io/memory_budget.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>

#include "heed/io.h"

namespace heed {
namespace io {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

/// One version of control groups: how its line of /proc/self/cgroup, its files and their lines are
/// called. Those of memory.stat are the lines that count a group and all below it, like its usage.
struct Version {
  const char* controller;  // between commas; v2 names none
  const char* mount;
  const char* limit;
  const char* usage;
  const char* inactive;
  const char* active;
};

constexpr Version kV1{",memory,",
                      "/sys/fs/cgroup/memory",
                      "/memory.limit_in_bytes",
                      "/memory.usage_in_bytes",
                      "total_inactive_file ",
                      "total_active_file "};
constexpr Version kV2{
    ",,", "/sys/fs/cgroup", "/memory.max", "/memory.current", "inactive_file ", "active_file "};

/// The number that follows `key` at the start of a line, to its end or a blank; no sign, no locale.
std::optional<std::int64_t> number_after(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const auto begin = std::min(line.find_first_not_of(' ', key.size()), line.size());
    const char* last = line.data() + line.size();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(line.data() + begin, last, value);
    if (error != std::errc() || value < 0 || (end != last && *end != ' ')) return {};
    return value;
  }
  return {};
}

/// The path of this process's group below the mount point. Empty, the mount point itself, where the
/// process sees another part of the tree than the one that is mounted, as in many containers: their
/// own group is what they find there.
std::string group_of(const std::string& root, const Version& version) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto first = std::min(line.find(':'), line.size());
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string controllers = line.substr(first, second - first);  // ":memory,hugetlb"
    controllers.front() = ',';
    controllers.push_back(',');
    if (controllers.find(version.controller) == std::string::npos) continue;
    const std::string group = line.substr(second + 1);
    std::error_code error;
    const bool there = group.starts_with("/") && (group + "/").find("/../") == std::string::npos &&
                       std::filesystem::is_directory(root + version.mount + group, error);
    return there && group != "/" ? group : "";
  }
  return "";
}

/// What one group may still take, at least 0. File cache does not count as taken, since the kernel
/// drops it before it ends a process, and much of it are the very files that were just read;
/// MemAvailable of the whole system counts both of its lists in the same way. Where the group does
/// not tell how much of what is taken is cache, nothing counts as taken: most of it usually is, and
/// a run would be refused for the sake of its own inputs.
std::int64_t left_in(const std::string& folder, const Version& version) {
  const auto limit = number_after(folder + version.limit, "");
  // memory.stat costs the kernel a sum over all CPUs: it is not asked for where there is no limit.
  if (!limit || *limit > kMax / 2) return kMax;
  const auto usage = number_after(folder + version.usage, "");
  const auto inactive = number_after(folder + "/memory.stat", version.inactive);
  const auto active = number_after(folder + "/memory.stat", version.active);
  if (!usage || !inactive || !active) return *limit;
  // Read one after the other, while other processes run, they need not fit together.
  std::int64_t taken = *usage;
  for (const std::int64_t cache : {*inactive, *active}) taken -= std::min(taken, cache);
  return *limit - std::min(*limit, taken);
}

}  // namespace

std::int64_t free_memory(const std::string& root) {
  const auto kib = number_after(root + "/proc/meminfo", "MemAvailable:");
  std::int64_t bytes = kib && *kib < kMax / 1024 ? *kib * 1024 : kMax;
  for (const Version* version : {&kV1, &kV2}) {
    const std::string mount = root + version->mount;
    for (std::string group = group_of(root, *version);; group.erase(group.rfind('/'))) {
      bytes = std::min(bytes, left_in(mount + group, *version));
      if (group.empty()) break;
    }
  }
  return bytes;
}

std::int64_t budget_of(std::int64_t free) noexcept {
  return std::max<std::int64_t>(free / 5 * 4, 1);
}

}  // namespace io

std::int64_t memory_budget() { return io::budget_of(io::free_memory()); }

}  // namespace heed

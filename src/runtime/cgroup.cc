// The share of CPU time that control groups grant this process.
//
//   /proc/self/cgroup      0::/system.slice/x                      v2: the group
//                          4:cpu,cpuacct:/docker/7f                v1: the group, per controller
//   /proc/self/mountinfo   30 23 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw
//                          33 24 0:28 /docker/7f /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
//   <mount>/<group>/cpu.max                v2: "150000 100000" or "max 100000"
//   <mount>/<group>/cpu.cfs_quota_us       v1: -1 is no quota; cpu.cfs_period_us beside it
#include "runtime/cgroup.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <locale>
#include <sstream>
#include <string_view>
#include <vector>

namespace heed::runtime {
namespace {

enum class Version { v1, v2 };

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  stream.imbue(std::locale::classic());
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

/// Whether a list like "rw,cpu,cpuacct" names the controller.
bool names_cpu(const std::string& list) {
  return ("," + list + ",").find(",cpu,") != std::string::npos;
}

/// The path of this process's group, as the kernel sees it from the root of the hierarchy.
std::optional<std::string> group_of(const std::string& root, Version version) {
  for (const std::string& line : lines_of(root + "/proc/self/cgroup")) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool found = version == Version::v2 ? line.starts_with("0::") : names_cpu(controllers);
    if (found) return line.substr(second + 1);
  }
  return {};
}

/// mountinfo writes blanks and backslashes in paths as \ and three octal digits.
std::string unescaped(const std::string& text) {
  const auto digit = [&](std::size_t i) {
    return i < text.size() && text[i] >= '0' && text[i] <= '7' ? text[i] - '0' : -1;
  };
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && digit(i + 1) >= 0 && digit(i + 2) >= 0 && digit(i + 3) >= 0) {
      result += static_cast<char>(digit(i + 1) * 64 + digit(i + 2) * 8 + digit(i + 3));
      i += 3;
    } else {
      result += text[i];
    }
  }
  return result;
}

struct Mount {
  std::string group;  // the group that is mounted there: "/", or a container's own
  std::string point;
};

std::optional<Mount> mount_of(const std::string& root, Version version) {
  for (const std::string& line : lines_of(root + "/proc/self/mountinfo")) {
    const std::vector<std::string> words = words_of(line);
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4) continue;
    const bool found =
        version == Version::v2 ? dash[1] == "cgroup2" : dash[1] == "cgroup" && names_cpu(dash[3]);
    if (found) return Mount{.group = unescaped(words[3]), .point = unescaped(words[4])};
  }
  return {};
}

/// What one group is granted itself.
std::optional<double> quota_of(const std::string& folder, Version version) {
  std::vector<std::string> words;
  if (version == Version::v2) {
    for (const std::string& line : lines_of(folder + "/cpu.max")) words = words_of(line);
  } else {
    for (const char* file : {"/cpu.cfs_quota_us", "/cpu.cfs_period_us"}) {
      for (const std::string& line : lines_of(folder + file)) words.push_back(line);
    }
  }
  if (words.size() != 2) return {};
  const std::optional<std::int64_t> quota = number(words[0]);
  const std::optional<std::int64_t> period = number(words[1]);
  if (!quota || !period || *quota <= 0 || *period <= 0) return {};
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

/// The smallest quota from the group up to the mount point.
std::optional<double> quota_above(const std::string& root, Version version) {
  const std::optional<std::string> group = group_of(root, version);
  const std::optional<Mount> mount = mount_of(root, version);
  if (!group || !mount) return {};
  // Below the mount point the group's path goes on where the mounted group's ends. If it does not
  // begin with that one, the process sees a namespace of its own, and its group is the mount point.
  std::string below = *group;
  const std::string mounted = mount->group == "/" ? "" : mount->group;
  if ((below + "/").starts_with(mounted + "/")) {
    below.erase(0, mounted.size());
  } else {
    below.clear();
  }
  if ((below + "/").find("/../") != std::string::npos) below.clear();

  std::optional<double> smallest;
  for (;;) {
    const std::optional<double> quota = quota_of(root + mount->point + below, version);
    if (quota && (!smallest || *quota < *smallest)) smallest = quota;
    if (below.empty()) return smallest;
    below.erase(below.rfind('/'));
  }
}

}  // namespace

std::optional<double> cgroup_cpu_quota(const std::string& root) {
  const std::optional<double> v1 = quota_above(root, Version::v1);
  const std::optional<double> v2 = quota_above(root, Version::v2);
  return v1 && v2 ? std::min(v1, v2) : v1 ? v1 : v2;
}

}  // namespace heed::runtime

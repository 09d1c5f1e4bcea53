// Facts from /proc, the environment and the compiler.
#include "machine.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <string_view>
#include <system_error>

#include "exit_codes.h"
#include "heed/runtime.h"
#include "plain_text.h"

namespace heed::cli {
namespace {

// The rest of the first line that begins with `key` and a colon in the first 64 KiB of a file,
// which hold the first CPU of many, and thousands of groups of a user; "" if there is none. No
// stream reads it: one that has no memory for itself or for a line says that there is none.
std::string field(const char* path, std::string_view key) {
  std::array<char, 65536> bytes{};
  std::size_t size = 0;
  if (const int file = ::open(path, O_RDONLY | O_CLOEXEC); file >= 0) {
    ssize_t read = 0;
    do {
      read = ::read(file, bytes.data() + size, bytes.size() - size);
      size += static_cast<std::size_t>(std::max<ssize_t>(read, 0));
    } while (read > 0);
    ::close(file);
  }
  for (const std::string_view line : parts_of({bytes.data(), size}, '\n')) {
    if (!line.starts_with(key)) continue;
    const auto colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string_view::npos ? "" : std::string(line.substr(begin));
  }
  return "";
}

std::int64_t to_number(const std::string& text) {
  return text.empty() ? 0 : std::strtoll(text.c_str(), nullptr, 10);
}

// A line of /proc/self/status in bytes: "VmRSS:      1234 kB".
std::optional<std::int64_t> status_bytes(std::string_view key) {
  const std::string text = field("/proc/self/status", key);
  if (text.empty()) return std::nullopt;
  return to_number(text) * 1024;
}

}  // namespace

std::string cpu_model() {
  for (const char* key : {"model name", "Model", "cpu"}) {
    std::string model = field("/proc/cpuinfo", key);
    if (!model.empty()) return model;
  }
  const std::string part = field("/proc/cpuinfo", "CPU part");
  if (part.empty()) return "unknown";
  return "implementer " + field("/proc/cpuinfo", "CPU implementer") + ", part " + part;
}

std::string compiler() {
#if defined(__clang__)
  const std::string name = "clang++ ";
  const std::string number = __clang_version__;
#else
  const std::string name = "g++ ";
  const std::string number = __VERSION__;
#endif
  return name + number.substr(0, number.find(' ')) + ", " HEED_BUILD_TYPE;
}

std::string threads_source() {
  for (const char* name : {"HEED_NUM_THREADS", "OMP_NUM_THREADS"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return name;
  }
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  const bool known = sched_getaffinity(0, sizeof cpus, &cpus) == 0;
  return known && default_threads() < CPU_COUNT(&cpus) ? "cgroup quota" : "affinity";
}

void keep_one_heap() {
#if defined(__GLIBC__)
  mallopt(M_ARENA_MAX, 1);
#endif
}

bool reset_peak_memory() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
  std::ofstream file("/proc/self/clear_refs");
  file << 5 << std::flush;  // proc(5): "5: reset the peak resident set size"
  return file.good();
}

std::optional<std::int64_t> resident_memory() { return status_bytes("VmRSS"); }
std::optional<std::int64_t> peak_memory() { return status_bytes("VmHWM"); }

std::optional<std::int64_t> memory_added_by(const std::function<void()>& call) try {
  // Both are read in that thread: reading takes of its stack, too, and once it has ended and given
  // its memory back, the kernel knows the peak only roughly.
  const auto run = [&call] {
    const auto measured = [&call] {
      const auto before = resident_memory();
      call();
      return std::pair(before, peak_memory());
    };
    return std::async(std::launch::async, measured).get();
  };
  run();  // the first touches code and tables, which are no memory of the next
  if (!reset_peak_memory()) return std::nullopt;
  const auto [before, most] = run();
  if (!before || !most) return std::nullopt;
  return std::max<std::int64_t>(*most - *before, 0);
} catch (const std::system_error&) {
  return std::nullopt;
}

std::string data_file(const std::string& name) {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw Failure(ExitCode::io, "cannot find this program's folder: " + error.message());
  const auto path = (program.parent_path() / HEED_DATA_FROM_PROGRAM / name).lexically_normal();
  if (!std::filesystem::exists(path, error)) {
    throw Failure(ExitCode::io, "the sample is not at its place, " + path.string());
  }
  return path.string();
}

}  // namespace heed::cli

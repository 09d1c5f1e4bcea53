// How many threads a call gets when it does not say.
#include "runtime/threads.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <charconv>
#include <string>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

#include "heed/error.h"
#include "heed/runtime.h"
#include "runtime/cgroup.h"
#include "runtime/environment.h"

namespace heed {
namespace runtime {
namespace {

std::string_view trimmed(std::string_view text) noexcept {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

#if defined(__linux__)
int system_affinity(std::size_t bytes, unsigned char* mask) {
  return sched_getaffinity(0, bytes, reinterpret_cast<cpu_set_t*>(mask));
}
#else
int system_affinity(std::size_t, unsigned char*) {
  errno = ENOSYS;
  return -1;
}
#endif

}  // namespace

std::optional<int> parse_threads(std::string_view variable, std::string_view text, bool list) {
  if (text.empty()) return {};
  const std::string_view entry = trimmed(list ? text.substr(0, text.find(',')) : text);
  int threads = 0;
  // Of other bytes from_chars of libstdc++ 12 makes unsigned ones, which changes their value.
  const bool digits = entry.find_first_not_of("0123456789") == std::string_view::npos;
  const std::string_view number = digits ? entry : std::string_view();
  const std::errc error = std::from_chars(number.data(), number.data() + number.size(), threads).ec;
  if (error != std::errc() || threads < 1 || threads > kMaxThreads) {
    throw Error("default_threads: " + std::string(variable) + " is " + quoted(text) +
                "; it must be a number from 1 to " + std::to_string(kMaxThreads));
  }
  return threads;
}

int affinity_cpus(GetAffinity get_affinity) {
  if (get_affinity == nullptr) get_affinity = system_affinity;
  // The kernel refuses a mask shorter than its own, which it does not tell: 1024 CPUs, and twice
  // as many until it agrees.
  for (std::size_t bytes = 128; bytes <= std::size_t{1} << 17; bytes *= 2) {
    std::vector<unsigned char> mask(bytes);
    if (get_affinity(bytes, mask.data()) == 0) {
      int cpus = 0;
      for (const unsigned char byte : mask) cpus += std::popcount(byte);
      if (cpus > 0) return cpus;
      break;
    }
    if (errno != EINVAL) break;
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int choose_threads(std::string_view heed_num_threads, std::string_view omp_num_threads, int cpus,
                   std::optional<double> quota) {
  if (const auto threads = parse_threads("HEED_NUM_THREADS", heed_num_threads, false)) {
    return *threads;
  }
  if (const auto threads = parse_threads("OMP_NUM_THREADS", omp_num_threads, true)) return *threads;
  const int granted = quota && *quota < cpus ? static_cast<int>(*quota) : cpus;
  return std::clamp(granted, 1, kMaxThreads);
}

}  // namespace runtime

int default_threads() {
  static constinit std::atomic<int> found{0};
  int threads = found.load(std::memory_order_relaxed);
  if (threads == 0) {
    using namespace runtime;
    threads = choose_threads(environment_variable("HEED_NUM_THREADS"),
                             environment_variable("OMP_NUM_THREADS"), affinity_cpus(),
                             cgroup_cpu_quota());
    found.store(threads, std::memory_order_relaxed);
  }
  return threads;
}

}  // namespace heed

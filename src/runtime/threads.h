// How many threads a call gets when it does not say.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace heed::runtime {

inline constexpr int kMaxThreads = 4096;

/// The number in the text of HEED_NUM_THREADS or OMP_NUM_THREADS, "" being unset; `list`: the first
/// entry of a list. Throws an Error that names the variable, what was expected and what came.
[[nodiscard]] std::optional<int> parse_threads(std::string_view variable, std::string_view text,
                                               bool list);

/// Sets one bit per CPU that may be used, returns 0; -1 with errno EINVAL if the mask is too short.
using GetAffinity = int (*)(std::size_t bytes, unsigned char* mask);

/// The number of CPUs in this thread's affinity, at least 1; on any error, the machine's.
[[nodiscard]] int affinity_cpus(GetAffinity get_affinity = nullptr);

/// From the variables' texts, the CPUs and their quota: what default_threads() promises.
[[nodiscard]] int choose_threads(std::string_view heed_num_threads,
                                 std::string_view omp_num_threads, int cpus,
                                 std::optional<double> quota);

}  // namespace heed::runtime

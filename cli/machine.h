// Facts about this machine, process and build that results depend on or are reported with.
#pragma once

#include <cstdint>
#include <string>

namespace heed::cli {

/// "AMD EPYC 9655", or "unknown".
[[nodiscard]] std::string cpu_model();

/// "g++ 12.2.0, Release"
[[nodiscard]] std::string compiler();

/// Where default_threads() takes its number from: "HEED_NUM_THREADS", "OMP_NUM_THREADS",
/// "affinity" or "cgroup quota".
[[nodiscard]] std::string threads_source();

/// Bytes that a run may take unless told otherwise: 80 % of the memory that is free.
[[nodiscard]] std::int64_t memory_budget();

/// The folder share/heed of the tree, built or installed, in which this program lies.
[[nodiscard]] std::string data_file(const std::string& name);

}  // namespace heed::cli

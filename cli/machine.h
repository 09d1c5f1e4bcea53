// Facts about this machine, process and build that results depend on or are reported with.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace heed::cli {

/// "AMD EPYC 9655", or "unknown".
[[nodiscard]] std::string cpu_model();

/// "g++ 12.2.0, Release"
[[nodiscard]] std::string compiler();

/// Where default_threads() takes its number from: "HEED_NUM_THREADS", "OMP_NUM_THREADS",
/// "affinity" or "cgroup quota".
[[nodiscard]] std::string threads_source();

/// Makes all threads allocate from one heap: the C library gives back unused pages of no other, and
/// what a thread leaves behind would hide what the next one needs. For the start of a program.
void keep_one_heap();

/// Lets peak_memory() start anew from what is resident now, after giving unused pages back. False
/// where the system has no such thing.
[[nodiscard]] bool reset_peak_memory();

/// Bytes of this process that are in physical memory now, and their most since the reset. The
/// system counts in pages and lags behind by up to some dozens of them per CPU. Absent if it does
/// not say.
[[nodiscard]] std::optional<std::int64_t> resident_memory();
[[nodiscard]] std::optional<std::int64_t> peak_memory();

/// By how much a call raises the memory in use, the second time that it runs: each in a thread of
/// its own, because a thread keeps its scratch for the next call, and would find that of the one
/// before. Absent where the system refuses that thread, or does not say.
[[nodiscard]] std::optional<std::int64_t> memory_added_by(const std::function<void()>& call);

/// The folder share/heed of the tree, built or installed, in which this program lies.
[[nodiscard]] std::string data_file(const std::string& name);

}  // namespace heed::cli

// The memory that the system and this process's control groups leave to it.
#pragma once

#include <cstdint>
#include <string>

namespace heed::io {

/// Bytes that this process could still take: what the system can give without swapping, or the
/// least that is left in the process's control groups and all above them, in cgroup v1 and v2, if
/// that is less. What cannot be read or understood sets no limit; without any it
/// is the largest number.
/// Every path is read below `root`, so that tests can bring their own /proc and /sys.
[[nodiscard]] std::int64_t free_memory(const std::string& root = "");

/// 80 % of what is free, at least 1: as a limit of bytes, 0 would ask for this number again.
[[nodiscard]] std::int64_t budget_of(std::int64_t free) noexcept;

}  // namespace heed::io

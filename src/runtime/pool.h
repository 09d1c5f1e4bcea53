// What the tests ask the process-wide pool of threads.
#pragma once

#include <cstdint>

namespace heed::runtime {

struct PoolCounters {
  int threads;               ///< that the pool has started in this process and not ended
  std::int64_t shared_runs;  ///< that used the pool's threads
};

[[nodiscard]] PoolCounters pool_counters() noexcept;

}  // namespace heed::runtime

// A library with a heed of its own, as an interpreter loads one: loaded, used, unloaded.
#include <cstddef>

#include "runtime/scratch.h"
#include "support.h"

extern "C" int heed_module_runs_all(int threads) {
  heed::PoolExecutor executor(threads);
  return heed::testing::runs_all(executor, 1000) ? 1 : 0;
}

/// Keeps memory for the calling thread, as a call of attention does, and says how many bytes.
extern "C" std::size_t heed_module_keeps() {
  {
    const heed::runtime::ScratchLease lease(1);
  }
  return heed::runtime::scratch_kept();
}

extern "C" void heed_module_forgets() { heed::runtime::scratch_release(); }

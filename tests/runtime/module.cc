// A library with a heed of its own, as an interpreter loads one: loaded, used, unloaded.
#include <cstdint>

#include "support.h"

extern "C" int heed_module_runs_all(int threads) {
  heed::PoolExecutor executor(threads);
  return heed::testing::runs_all(executor, 1000) ? 1 : 0;
}

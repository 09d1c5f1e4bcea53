// F2: bytes as a .npy file, read to a tensor.
#include "mutate.h"
#include "reading.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  heed_fuzz::read_as_file(data, size);
  return 0;
}

HEED_FUZZ_REPAIR(heed_fuzz::repair_npy)

// F3: bytes as a .npz file.
#include "mutate.h"
#include "mutate_zip.h"
#include "reading.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  heed_fuzz::read_as_file(data, size);
  return 0;
}

HEED_FUZZ_REPAIR(heed_fuzz::repair_zip)

// F1: bytes as the header of a .npy file, read from memory.
#include <algorithm>
#include <cstring>

#include "io/npy.h"
#include "mutate.h"
#include "reading.h"

namespace {

class Memory final : public heed::io::Stream {
 public:
  Memory(const std::uint8_t* data, std::size_t size)
      : Stream("x.npy", static_cast<std::int64_t>(size)), data_(data) {}

 private:
  void fill(std::span<std::byte> to) override {
    if (!to.empty()) std::memcpy(to.data(), data_ + offset(), to.size());
  }
  const std::uint8_t* data_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Memory stream(data, size);
  try {
    const heed::io::NpyHeader header = heed::io::read_npy_header(stream);
    heed_fuzz::expect(header.shape.size() <= heed::io::kNpyMaxRank, "too many axes");
    for (const std::int64_t axis : header.shape) heed_fuzz::expect(axis >= 0, "a negative axis");
    heed_fuzz::expect(heed::size_of(header.dtype) > 0, "a type without a size");
    heed_fuzz::expect(header.descr_offset >= 10 && header.descr_offset < stream.offset() &&
                          header.shape_offset >= 10 && header.shape_offset < stream.offset(),
                      "offsets that lie outside the header");
  } catch (const heed::Error& error) {
    heed_fuzz::expect_refusal(error, "x.npy");
  }
  return 0;
}

HEED_FUZZ_REPAIR(heed_fuzz::repair_npy)

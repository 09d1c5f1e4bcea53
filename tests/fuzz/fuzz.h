// What fuzz targets share: a check that ends the process, and numbers made of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

/// One input: 0 if it counts, -1 if it is not worth keeping.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace heed_fuzz {

/// Ends the process, which is what a fuzzer takes for a finding, unless `holds`. Nothing is put
/// together before that is known: these are called millions of times.
inline void expect(bool holds, const char* what, const std::string& detail = {}) {
  if (holds) return;
  std::fprintf(stderr, "\nnot as promised: %s%s%s\n", what, detail.empty() ? "" : ": ",
               detail.c_str());
  std::abort();
}
inline void expect(bool holds, const std::string& what) { expect(holds, what.c_str()); }

#ifdef HEED_FUZZ
// libFuzzer takes what is counted in this section for edges. Kernels, which are not instrumented,
// have many ways that no other edge tells of.
__attribute__((section("__libfuzzer_extra_counters"))) static std::uint8_t told[1024];
#endif

/// Tells the fuzzer of a way that an input takes: a way of a kind, kind < 16, way < 64.
inline void tell([[maybe_unused]] std::size_t kind, [[maybe_unused]] std::size_t way) {
#ifdef HEED_FUZZ
  told[kind % 16 * 64 + way % 64] = 1;
#endif
}

/// Takes numbers from bytes, front to back; zeros once they are used up.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  std::uint8_t byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  /// In [0, n), n at most 65536.
  std::int64_t below(std::int64_t n) {
    std::int64_t value = byte();
    if (n > 256) value = value << 8 | byte();
    return value % n;
  }
  std::uint64_t word() {
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return value;
  }
  bool chance(int of_256) { return byte() < of_256; }
  template <typename T>
  T pick(std::initializer_list<T> all) {
    return all.begin()[below(static_cast<std::int64_t>(all.size()))];
  }
  std::string text(std::size_t most) {
    std::string taken(reinterpret_cast<const char*>(data_), size_ < most ? size_ : most);
    data_ += taken.size();
    size_ -= taken.size();
    return taken;
  }
  [[nodiscard]] std::size_t left() const { return size_; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

}  // namespace heed_fuzz

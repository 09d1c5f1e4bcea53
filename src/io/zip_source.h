// A file as libzip reads it: with pread, and without an exception passing through C.
#pragma once

#include <zip.h>

#include <cstdint>
#include <exception>

#include "io/input_file.h"
#include "io/npz.h"

namespace heed::io {

/// The file up to the end of the archive, as libzip reads it. What our own reading throws is kept,
/// since it must not pass through C, and thrown again when libzip has given up.
class ZipSource {
 public:
  ZipSource(const InputFile& file, std::int64_t size) : file_(file), size_(size) {}

  static zip_int64_t call(void* self, void* data, zip_uint64_t length, zip_source_cmd_t command) {
    return static_cast<ZipSource*>(self)->answer(data, length, command);
  }

  void rethrow() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  zip_int64_t answer(void* data, zip_uint64_t length, zip_source_cmd_t command);
  zip_int64_t read(void* data, zip_uint64_t length);

  const InputFile& file_;
  std::int64_t size_;
  std::int64_t at_ = 0;
  ZipError error_;
  std::exception_ptr thrown_;
};

}  // namespace heed::io

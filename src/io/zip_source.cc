// A file as libzip reads it: with pread, and without an exception passing through C.
#include "io/zip_source.h"

#include <algorithm>

namespace heed::io {

zip_int64_t ZipSource::answer(void* data, zip_uint64_t length, zip_source_cmd_t command) {
  switch (command) {
    case ZIP_SOURCE_OPEN:
      at_ = 0;
      return 0;
    case ZIP_SOURCE_READ:
      return read(data, length);
    case ZIP_SOURCE_SEEK: {
      const zip_int64_t to = zip_source_seek_compute_offset(static_cast<zip_uint64_t>(at_),
                                                            static_cast<zip_uint64_t>(size_), data,
                                                            length, &error_.state);
      if (to < 0) return -1;
      at_ = to;
      return 0;
    }
    case ZIP_SOURCE_TELL:
      return at_;
    case ZIP_SOURCE_STAT: {
      auto* stat = static_cast<zip_stat_t*>(data);
      zip_stat_init(stat);
      stat->valid |= ZIP_STAT_SIZE;
      stat->size = static_cast<zip_uint64_t>(size_);
      return static_cast<zip_int64_t>(sizeof *stat);
    }
    case ZIP_SOURCE_ERROR:
      return zip_error_to_data(&error_.state, data, length);
    case ZIP_SOURCE_SUPPORTS:
      return zip_source_make_command_bitmap(
          ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR,
          ZIP_SOURCE_FREE, ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, ZIP_SOURCE_SUPPORTS, -1);
    default:
      return 0;  // close, free: nothing is held
  }
}

zip_int64_t ZipSource::read(void* data, zip_uint64_t length) {
  const auto bytes = std::min<zip_uint64_t>(length, static_cast<zip_uint64_t>(size_ - at_));
  try {
    file_.read({static_cast<std::byte*>(data), bytes}, at_, "archive");
  } catch (...) {
    thrown_ = std::current_exception();
    zip_error_set(&error_.state, ZIP_ER_READ, 0);
    return -1;
  }
  at_ += static_cast<std::int64_t>(bytes);
  return static_cast<zip_int64_t>(bytes);
}

}  // namespace heed::io

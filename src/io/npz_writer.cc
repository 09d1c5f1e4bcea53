// Writes .npz: libzip lays out the archive, over a target of ours that writes to the new file.
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "heed/error.h"
#include "io/messages.h"
#include "io/npy.h"
#include "io/npz.h"

namespace heed::io {
namespace {

/// The new file as libzip writes it. What our own writing throws is kept, since it must not pass
/// through C, and thrown again when libzip has given up.
class Target {
 public:
  explicit Target(OutputFile& file) : file_(file) {}

  static zip_int64_t call(void* self, void* data, zip_uint64_t length, zip_source_cmd_t command) {
    return static_cast<Target*>(self)->answer(data, length, command);
  }

  void rethrow() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  zip_int64_t answer(void* data, zip_uint64_t length, zip_source_cmd_t command) {
    switch (command) {
      case ZIP_SOURCE_WRITE:
        return write(data, length);
      case ZIP_SOURCE_SEEK_WRITE: {
        const zip_int64_t to =
            zip_source_seek_compute_offset(at_, size_, data, length, &error_.state);
        if (to < 0) return -1;
        at_ = static_cast<zip_uint64_t>(to);
        return 0;
      }
      case ZIP_SOURCE_TELL_WRITE:
        return static_cast<zip_int64_t>(at_);
      case ZIP_SOURCE_STAT:
        zip_stat_init(static_cast<zip_stat_t*>(data));
        return static_cast<zip_int64_t>(sizeof(zip_stat_t));
      case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&error_.state, data, length);
      case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(
            ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR,
            ZIP_SOURCE_FREE, ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, ZIP_SOURCE_BEGIN_WRITE,
            ZIP_SOURCE_COMMIT_WRITE, ZIP_SOURCE_ROLLBACK_WRITE, ZIP_SOURCE_WRITE,
            ZIP_SOURCE_SEEK_WRITE, ZIP_SOURCE_TELL_WRITE, ZIP_SOURCE_REMOVE, ZIP_SOURCE_SUPPORTS,
            -1);
      default:
        return 0;  // nothing to read, begin, commit or roll back: OutputFile does that
    }
  }

  zip_int64_t write(const void* data, zip_uint64_t length) {
    try {
      file_.write({static_cast<const std::byte*>(data), length}, static_cast<std::int64_t>(at_));
    } catch (...) {
      thrown_ = std::current_exception();
      zip_error_set(&error_.state, ZIP_ER_WRITE, 0);
      return -1;
    }
    at_ += length;
    size_ = std::max(size_, at_);
    return static_cast<zip_int64_t>(length);
  }

  OutputFile& file_;
  zip_uint64_t at_ = 0;
  zip_uint64_t size_ = 0;
  ZipError error_;
  std::exception_ptr thrown_;
};

struct Discard {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};

[[noreturn]] void complain(const std::string& label, zip_error_t& error) {
  // libzip 1.7.3 fails with "No error" where some allocations of its own do, as tests/faults shows;
  // what else can go wrong while it writes has a code, or was thrown by the target.
  if (zip_error_code_zip(&error) == ZIP_ER_OK) zip_error_set(&error, ZIP_ER_MEMORY, 0);
  const bool memory = zip_error_code_zip(&error) == ZIP_ER_MEMORY;
  throw Error(memory ? ErrorKind::memory : ErrorKind::io,
              label + ": cannot write the archive: " + zip_error_strerror(&error));
}

zip_buffer_fragment_t fragment(const void* data, std::size_t bytes) {
  // libzip's type lacks const; the source only reads.
  return {const_cast<zip_uint8_t*>(static_cast<const zip_uint8_t*>(data)), bytes};
}

void add(zip_t* archive, const std::string& label, const std::string& name,
         const std::string& header, const Tensor& tensor) {
  const zip_buffer_fragment_t parts[] = {fragment(header.data(), header.size()),
                                         fragment(tensor.data.data(), tensor.data.size())};
  zip_source_t* source = zip_source_buffer_fragment(archive, parts, tensor.data.empty() ? 1 : 2, 0);
  if (source == nullptr) complain(label, *zip_get_error(archive));
  const zip_int64_t index =
      zip_file_add(archive, (name + ".npy").c_str(), source, ZIP_FL_ENC_UTF_8);
  if (index < 0) {
    zip_source_free(source);
    complain(label, *zip_get_error(archive));
  }
  constexpr zip_uint16_t kFirstDay = 1U << 5U | 1U;  // 1 January 1980, the first date zip knows
  const auto member = static_cast<zip_uint64_t>(index);
  if (zip_set_file_compression(archive, member, ZIP_CM_STORE, 0) != 0 ||
      zip_file_set_dostime(archive, member, 0, kFirstDay, 0) != 0) {
    complain(label, *zip_get_error(archive));
  }
}

}  // namespace

void write_npz(OutputFile& file, const TensorFile& tensors) {
  if (tensors.tensors.empty()) {  // libzip writes no empty archive
    std::string end("PK\5\6");
    end.resize(22, '\0');
    file.write(end);
    return;
  }
  std::vector<std::string> headers;
  for (const auto& [name, tensor] : tensors.tensors) {
    headers.push_back(npy_header(file.label() + ": " + in_quotes(name), tensor));
  }
  Target target(file);
  ZipError error;
  zip_source_t* sink = zip_source_function_create(Target::call, &target, &error.state);
  if (sink == nullptr) complain(file.label(), error.state);
  std::unique_ptr<zip_t, Discard> archive(
      zip_open_from_source(sink, ZIP_CREATE | ZIP_TRUNCATE, &error.state));
  if (archive == nullptr) {
    zip_source_free(sink);
    complain(file.label(), error.state);
  }
  std::size_t next = 0;
  for (const auto& [name, tensor] : tensors.tensors) {
    add(archive.get(), file.label(), name, headers[next++], tensor);
  }
  if (zip_close(archive.get()) != 0) {
    target.rethrow();
    complain(file.label(), *zip_get_error(archive.get()));
  }
  (void)archive.release();  // zip_close freed it
}

}  // namespace heed::io

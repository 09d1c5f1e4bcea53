// Reading bytes as a file, and what must be true of what comes out.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <span>
#include <string>

#include "fuzz.h"
#include "heed/error.h"
#include "heed/io.h"

namespace heed_fuzz {

/// A file in memory. Opening it by name costs as much as reading it: about 3 us.
class MemoryFile {
 public:
  MemoryFile()
      : descriptor_(memfd_create("heed-fuzz", 0)),
        path_("/proc/self/fd/" + std::to_string(descriptor_)) {
    expect(descriptor_ >= 0, "memfd_create");
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(descriptor_); }

  void put(const void* data, std::size_t size) {
    expect(pwrite(descriptor_, data, size, 0) == static_cast<ssize_t>(size) &&
               ftruncate(descriptor_, static_cast<off_t>(size)) == 0,
           "writing the file in memory");
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  int descriptor_;
  std::string path_;
};

/// A folder in memory, where there is one, that goes with the process.
inline const std::string& folder() {
  static const struct Folder {
    Folder() { expect(mkdtemp(path.data()) != nullptr, "mkdtemp"); }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() { std::filesystem::remove_all(path); }
    std::string path =
        (access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") + std::string("/heed-fuzz-XXXXXX");
  } folder;
  return folder.path;
}

/// "label: expected E, found F, at offset N", or about memory, in one line that prints.
inline void expect_refusal(const heed::Error& error, const std::string& label) {
  const std::string text = error.what();
  const bool format = error.kind() == heed::ErrorKind::format;
  expect(format || error.kind() == heed::ErrorKind::memory, "another kind of error", text);
  expect(text.starts_with(label + ": "), "the file's name comes first", text);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    expect(byte >= 0x20 && byte != 0x7F, "it is one line that prints", text);
  }
  expect(text.size() < 1000, "it is short", text);
  if (!format) return;
  const auto expected = text.find(": expected ");  // a name before it may have any of these words
  const auto found = expected == std::string::npos ? expected : text.find(", found ", expected);
  const auto offset = text.rfind(", at offset ");
  expect(found < offset && offset != std::string::npos &&
             text.find_first_not_of("0123456789", offset + 12) == std::string::npos,
         "expected, found, offset", text);
}

inline void expect_legal(const heed::TensorFile& file) {
  for (const auto& [name, tensor] : file.tensors) {
    auto bytes = static_cast<unsigned __int128>(heed::size_of(tensor.dtype));
    for (const std::int64_t axis : tensor.shape) {
      expect(axis >= 0, "a negative axis");
      bytes *= static_cast<unsigned __int128>(axis);
    }
    expect(bytes == tensor.data.size(), "the data do not fill the shape", name);
  }
  expect(file.trailing_bytes >= 0, "less than no surplus bytes");
}

/// The same names, types, shapes and bytes, those of NaNs too, and metadata.
inline bool same_tensors(const heed::TensorFile& a, const heed::TensorFile& b) {
  if (a.metadata != b.metadata || a.tensors.size() != b.tensors.size()) return false;
  for (const auto& [name, tensor] : a.tensors) {
    const auto other = b.tensors.find(name);
    if (other == b.tensors.end() || other->second.dtype != tensor.dtype ||
        other->second.shape != tensor.shape || other->second.data != tensor.data)
      return false;
  }
  return true;
}

/// What was read can be written as a file of the same kind, which reads as the same.
inline void expect_round_trip(const heed::TensorFile& file, std::string_view kind) {
  const std::string path = folder() + "/x" + std::string(kind);
  heed::write_tensors(path, file);
  const heed::TensorFile again = heed::read_tensors(path, {.max_bytes = 1 << 18});
  unlink(path.c_str());
  expect(same_tensors(file, again), "what is read again is what was read");
}

/// Reads these bytes as a user's file: a refusal as documented, or tensors that are legal, and the
/// same when they have been written.
inline void read_as_file(const std::uint8_t* data, std::size_t size) {
  static MemoryFile file;
  file.put(data, size);
  const heed::ReadOptions options{.max_bytes = 1 << 18, .allow_trailing = size % 2 == 1};
  heed::TensorFile tensors;
  try {
    tensors = heed::read_tensors(file.path(), options);
  } catch (const heed::Error& error) {
    return expect_refusal(error, file.path());
  }
  expect_legal(tensors);
  expect(options.allow_trailing || tensors.trailing_bytes == 0, "surplus bytes were accepted");
  const std::string_view start(reinterpret_cast<const char*>(data), size);
  expect_round_trip(tensors, start.starts_with("\x93NUMPY") ? ".npy"
                             : start.starts_with("PK")      ? ".npz"
                                                            : ".safetensors");
}

}  // namespace heed_fuzz

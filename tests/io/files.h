// Files built by hand, byte by byte, for the tests of readers and writers.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "heed/error.h"
#include "heed/io.h"

namespace heed::test {

/// A directory that goes with its contents; in memory where the system has such a place, since some
/// tests write ten thousand files.
class Directory {
 public:
  explicit Directory(const std::string& where = memory()) {
    std::string pattern = where + "/heed-io-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  static std::string memory() { return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : disk(); }
  static std::string disk() { return std::filesystem::temp_directory_path().string(); }

  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + '/' + name; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::size_t entries() const {
    const std::filesystem::directory_iterator all(path_);
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }

 private:
  std::string path_;
};

inline void put(const std::string& path, std::string_view bytes) {
  std::filesystem::remove(path);  // ext4 waits for the disk when a file is cut off and written anew
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string get(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A number of `bytes` bytes, lowest first.
inline std::string little(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i, value >>= 8) text += static_cast<char>(value & 0xFFU);
  return text;
}

template <typename T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

inline std::string bytes_of(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size()};
}

inline Tensor tensor(DType dtype, std::vector<std::int64_t> shape, const std::string& bytes) {
  Tensor result{dtype, std::move(shape), std::vector<std::byte>(bytes.size())};
  if (!bytes.empty()) std::memcpy(result.data.data(), bytes.data(), bytes.size());
  return result;
}

inline std::string npy(const std::string& dictionary, const std::string& data, char major = 1) {
  std::string file("\x93NUMPY");
  file += major;
  file += '\0';
  return file + little(dictionary.size(), major == 1 ? 2 : 4) + dictionary + data;
}

inline std::string npy_of(const std::string& descr, const std::string& shape,
                          const std::string& data, const std::string& fortran = "False") {
  return npy(
      "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n",
      data);
}

inline std::string safetensors(const std::string& header, const std::string& data) {
  return little(header.size(), 8) + header + data;
}

inline std::uint32_t crc32(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1U ^ (0xEDB88320U & (0U - (crc & 1U)));
  }
  return ~crc;
}

/// One member of a zip archive, and what its headers say of it.
struct Member {
  Member(std::string member_name, std::string bytes)
      : name(member_name), local_name(std::move(member_name)), data(std::move(bytes)) {
    size = data.size();
    crc = crc32(data);
  }

  /// The same content in one stored block of a deflate stream.
  Member& deflate() {
    const auto length = static_cast<std::uint16_t>(data.size());
    data = '\1' + little(length, 2) + little(static_cast<std::uint16_t>(~length), 2) + data;
    method = 8;
    return *this;
  }

  std::string name;
  std::string local_name;
  std::string data;  // as it lies in the archive
  std::uint64_t size = 0;
  std::uint32_t crc = 0;
  std::uint16_t method = 0;
  std::uint16_t flags = 0;
  bool zip64 = false;
  std::string extra;          // fields before that of zip64
  std::string before, after;  // beside local header and data: nobody's bytes, or a data descriptor
  std::uint32_t local_crc_change = 0;
  std::uint32_t local_size_change = 0;
  std::uint16_t local_method_change = 0;
};

inline std::string zip(const std::vector<Member>& members, bool zip64_end = false) {
  std::string file;
  std::string directory;
  for (const Member& member : members) {
    const std::string sizes = little(member.size, 8) + little(member.data.size(), 8);
    const std::string extra =
        member.extra + (member.zip64 ? little(1, 2) + little(16, 2) + sizes : "");
    const std::uint64_t all = 0xFFFFFFFFU;
    const auto common = [&](std::uint16_t method, std::uint32_t crc, std::uint32_t change) {
      return little(45, 2) + little(member.flags, 2) + little(method, 2) + little(0, 2) +
             little(0x21, 2) + little(crc, 4) + little(member.zip64 ? all : member.data.size(), 4) +
             little(member.zip64 ? all : member.size + change, 4) + little(member.name.size(), 2) +
             little(extra.size(), 2);
    };
    file += member.before;
    directory += std::string("PK\1\2") + little(45, 2) + common(member.method, member.crc, 0) +
                 little(0, 10) + little(file.size(), 4) + member.name + extra;
    file += std::string("PK\3\4") +
            common(static_cast<std::uint16_t>(member.method + member.local_method_change),
                   member.crc + member.local_crc_change, member.local_size_change) +
            member.local_name + extra + member.data + member.after;
  }
  const std::uint64_t start = file.size();
  const std::uint64_t count = members.size();
  file += directory;
  if (zip64_end) {
    const std::uint64_t record = file.size();
    file += std::string("PK\6\6") + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 8) +
            little(count, 8) + little(count, 8) + little(directory.size(), 8) + little(start, 8);
    file += std::string("PK\6\7") + little(0, 4) + little(record, 8) + little(1, 4);
    return file + "PK\5\6" + little(0, 4) + little(0xFFFFFFFFFFFFFFFF, 8) + little(~0ULL, 4) +
           little(0, 2);
  }
  return file + "PK\5\6" + little(0, 4) + little(count, 2) + little(count, 2) +
         little(directory.size(), 4) + little(start, 4) + little(0, 2);
}

inline const char* word(ErrorKind kind) {
  constexpr std::array kWords{"argument", "format", "io", "memory"};
  return kWords[static_cast<std::size_t>(kind)];
}

/// "kind: message" of what the call throws, the directory left out of it; "nothing" if it does not.
template <typename Call>
std::string error_of(const Directory& directory, Call call) {
  try {
    call();
  } catch (const Error& error) {
    std::string text = std::string(word(error.kind())) + ": " + error.what();
    const std::string prefix = directory.path() + '/';
    for (auto at = text.find(prefix); at != std::string::npos; at = text.find(prefix)) {
      text.erase(at, prefix.size());
    }
    return text;
  }
  return "nothing";
}

/// What reading these bytes under this name throws.
inline std::string read_error(const std::string& name, const std::string& bytes,
                              const ReadOptions& options = {}) {
  const Directory directory;
  put(directory / name, bytes);
  return error_of(directory, [&] { (void)read_tensors(directory / name, options); });
}

inline TensorFile read(const std::string& name, const std::string& bytes,
                       const ReadOptions& options = {}) {
  const Directory directory;
  put(directory / name, bytes);
  return read_tensors(directory / name, options);
}

inline Tensor read_npy(const std::string& bytes) { return read("x.npy", bytes).tensors.at(""); }

/// The bytes that writing makes.
inline std::string written(const std::string& name, const TensorFile& file) {
  const Directory directory;
  write_tensors(directory / name, file);
  EXPECT_EQ(directory.entries(), 1U);
  return get(directory / name);
}

}  // namespace heed::test

// F12: tensors made of bytes, written and read back: the same, or refused as an argument before
// there is a file.
#include <cstring>

#include "reading.h"

namespace {

using heed_fuzz::Bytes;
using heed_fuzz::expect;

heed::TensorFile decode(Bytes& bytes) {
  heed::TensorFile file;
  for (std::int64_t n = bytes.below(4); n > 0; --n) {
    const std::string name = bytes.text(static_cast<std::size_t>(bytes.below(9)));
    heed::Tensor tensor{.dtype = static_cast<heed::DType>(bytes.below(13))};
    std::size_t size = heed::size_of(tensor.dtype);
    for (std::int64_t rank = bytes.chance(4) ? 60 + bytes.below(8) : bytes.below(6); rank > 0;
         --rank) {
      tensor.shape.push_back(size < 4096 ? bytes.below(5) : 1);
      size *= static_cast<std::size_t>(tensor.shape.back());
    }
    if (bytes.chance(2)) ++size;  // does not fill its shape
    const std::string data = bytes.text(size);
    tensor.data.resize(size);
    if (!data.empty()) std::memcpy(tensor.data.data(), data.data(), data.size());
    file.tensors[name] = std::move(tensor);
  }
  for (std::int64_t n = bytes.chance(64) ? bytes.below(3) : 0; n > 0; --n) {
    const std::string key = bytes.text(3);
    file.metadata[key] = bytes.text(static_cast<std::size_t>(bytes.below(20)));
  }
  return file;
}

/// The first tensor alone, without a name, as .npy holds one.
void keep_one(heed::TensorFile& file) {
  auto tensor = file.tensors.extract(file.tensors.begin());
  tensor.key() = "";
  file.tensors.clear();
  file.tensors.insert(std::move(tensor));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(data, size);
  const std::string_view kind = bytes.pick({".npy", ".npz", ".safetensors"});
  heed::TensorFile file = decode(bytes);
  if (kind == ".npy" && !file.tensors.empty() && bytes.chance(250)) keep_one(file);
  const std::string path = heed_fuzz::folder() + "/x" + std::string(kind);
  bool written = false;
  try {
    heed::write_tensors(path, file);
    written = true;
  } catch (const heed::Error& error) {
    expect(error.kind() == heed::ErrorKind::argument, "an argument's error", error.what());
    expect(access(path.c_str(), F_OK) != 0, "a file in spite of", error.what());
  }
  if (!written) return 0;
  const heed::TensorFile read = heed::read_tensors(path, {.max_bytes = 1 << 20});
  unlink(path.c_str());
  if (kind == ".npy") keep_one(file);  // what is read has no name
  expect(heed_fuzz::same_tensors(file, read), "what is read is what was written");
  return 0;
}

// io_convert FILE_IN FILE_OUT [--allow-trailing]: reads one file and writes the other, for tests
// that compare heed with NumPy and with the safetensors library. A single tensor from .npy is
// called "x".
#include <cstdio>
#include <string>

#include "heed/error.h"
#include "heed/io.h"

int main(int count, char** arguments) {
  if (count < 3) {
    std::fputs("io_convert FILE_IN FILE_OUT [--allow-trailing]\n", stderr);
    return 2;
  }
  const bool allow = count > 3 && std::string(arguments[3]) == "--allow-trailing";
  try {
    heed::TensorFile file = heed::read_tensors(arguments[1], {.allow_trailing = allow});
    const std::string to = arguments[2];
    const bool from_npy = std::string(arguments[1]).ends_with(".npy");
    if (from_npy && file.tensors.size() == 1) {
      auto tensor = file.tensors.extract("");
      tensor.key() = std::string(1, 'x');
      file.tensors.insert(std::move(tensor));
    }
    if (!to.ends_with(".safetensors")) file.metadata.clear();
    heed::write_tensors(to, file);
  } catch (const heed::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.kind() == heed::ErrorKind::format   ? 3
           : error.kind() == heed::ErrorKind::io     ? 4
           : error.kind() == heed::ErrorKind::memory ? 5
                                                     : 2;
  }
  return 0;
}
